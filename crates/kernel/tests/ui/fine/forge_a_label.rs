//! An executor can say how bad it is; the kernel joins that with what it knows.

use regent_kernel::{Confidentiality, Integrity, Label, RawOutput};

fn main() {
    let label = Label { integrity: Integrity::Web, confidentiality: Confidentiality::Secret };
    let _raised = RawOutput::new(b"from the web".to_vec()).with_label(label);
}
