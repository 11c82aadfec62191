//! What can an agent do? The built-in tools.
//!
//! Each tool is one file: its manifest beside the driver that performs it. Drivers take a [`Permit`](regent_kernel::Permit) and
//! reach files only through its workspace. Programs (`shell.exec`, `process.exec`) are only described here; the process sandbox
//! performs them.
//!
//! Results are one JSON object, except for the text that `fs.read` returns as it is. What did not work is a failure with a stable
//! code (`fs.not_found`, `path.hard_link`, `http.address_refused`) and a sentence.

mod confidentiality;
mod fs;
mod host;
mod http;
mod manifest;
mod output;
mod process;

pub use host::HostTools;
pub use manifest::{register, specs};
pub use regent_egress::{Broker, Network};
