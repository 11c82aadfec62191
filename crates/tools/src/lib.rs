//! What can an agent do? The built-in tools, and how a Rust function becomes one.
//!
//! Each tool is one file: its manifest beside the driver that performs it. Drivers take a [`Permit`](regent_kernel::Permit) and
//! reach files only through its workspace. Programs (`shell.exec`, `process.exec`) are only described here; the process sandbox
//! performs them.
//!
//! Results are one JSON object, except for the text that `fs.read` returns as it is. What did not work is a failure with a stable
//! code (`fs.not_found`, `path.hard_link`, `http.address_refused`) and a sentence.
//!
//! # A tool of your own
//!
//! [`tool`] turns a function into a [`HostTool`]: the manifest from its signature, its doc comment and the attribute; the schema from
//! its types. What it returns becomes JSON; its context is the permit of the call.
//!
//! ```
//! use regent_tools::{Context, HostTool, ToolError, tool};
//!
//! /// Count the characters or the words of a text.
//! ///
//! /// - text: what to count in
//! /// - words: count words; characters if absent
//! #[tool(name = "text.count", effect = "none", capabilities = ["text"], idempotent, reversible, cost = "free")]
//! fn count(text: &str, words: Option<bool>, context: &Context<'_>) -> Result<usize, ToolError> {
//!     if text.len() as u64 > context.limits().file_bytes_max {
//!         return Err(ToolError::failed("args.invalid", "the text is too long"));
//!     }
//!     Ok(if words == Some(true) { text.split_whitespace().count() } else { text.chars().count() })
//! }
//!
//! let spec = count().spec();
//! assert_eq!(spec.input["required"], serde_json::json!(["text"]));
//! assert_eq!(spec.input["properties"]["words"]["type"], "boolean");
//! ```
//!
//! `catalogue.admit_own(tool_set("counting", [Arc::new(count()) as _]))` makes it known together with what performs it. What policy judges is
//! said at the argument: `#[arg(path = "read")]`, `#[arg(url)]`, `#[arg(argv)]`, `#[arg(shell)]`. `#[serde(…)]` and `#[schemars(…)]` at an
//! argument are passed on (`#[schemars(range(max = 10))]`). What a tool keeps between calls is a parameter `#[state] files: &Files`;
//! the maker then takes it: `count(files)`.
#![forbid(unsafe_code)]

// What `#[tool]` writes says `::regent_tools`, here too.
extern crate self as regent_tools;

mod confidentiality;
mod extract;
mod fs;
pub mod generated;
mod host;
mod http;
#[doc(hidden)]
pub mod macros;
mod manifest;
mod memory;
mod output;
mod pins;
mod process;
pub mod schema;
mod seam;
mod tool;

pub use extract::{EXTRACT, extract};
pub use host::{built_in, entry, hosted, tool_set};
pub use manifest::specs;
pub use pins::{PinError, PinFile};
pub use process::program_specs;
pub use regent_egress::{Broker, Network};
pub use regent_tools_macros::tool;
pub use schema::ToolFilter;
pub use tool::{Context, HostTool, ToolError};
