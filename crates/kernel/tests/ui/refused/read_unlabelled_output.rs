//! What an executor brings back can't be read before the kernel has labelled it.

use regent_kernel::RawOutput;

fn read(raw: RawOutput) -> Vec<u8> {
    raw.bytes
}

fn main() {
    let _read = read;
}
