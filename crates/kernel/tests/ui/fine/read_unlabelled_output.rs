//! Labelled, it can.

use regent_kernel::{Label, Labelled};

fn read(output: Labelled) -> (Label, Vec<u8>) {
    (output.label(), output.into_bytes())
}

fn main() {
    let _read = read;
}
