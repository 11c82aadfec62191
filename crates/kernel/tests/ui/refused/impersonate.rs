//! Who someone is, is for the kernel to say.

use regent_kernel::{PersonRole, Principal};

fn main() {
    let _operator = Principal::person("root", PersonRole::Admin, "session".into());
}
