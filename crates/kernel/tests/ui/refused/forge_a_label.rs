//! Only the kernel says where output comes from.

use regent_kernel::{Confidentiality, Integrity, Label, Labelled};

fn main() {
    let label = Label { integrity: Integrity::Operator, confidentiality: Confidentiality::Public };
    let _forged = Labelled { bytes: b"trust me".to_vec().into(), label };
}
