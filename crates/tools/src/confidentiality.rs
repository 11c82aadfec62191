//! What file tools declare of their output.

use regent_kernel::{Confidentiality, Integrity, Label};

/// What the manifest of a file tool declares: a file of the workspace, for the people who work there.
pub(crate) const WORKSPACE_FILE: Label =
    Label { integrity: Integrity::File, confidentiality: Confidentiality::Internal };

/// What a tool says of what it wrote: a path and numbers, nothing of what the file holds.
pub(crate) const RECEIPT: Label =
    Label { integrity: Integrity::OwnModel, confidentiality: Confidentiality::Internal };
