//! Who someone is, is for the kernel to say.

use regent_kernel::Principal;

fn main() {
    let _operator = Principal::operator("root", "session".into());
}
