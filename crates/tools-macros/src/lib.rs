//! `#[tool]`: a Rust function becomes a tool. Use it as `regent_tools::tool`; the whole story is in that crate's documentation.
//!
//! Three steps, a file each: `declared` reads what the attribute says, `arguments` what the function takes, `expand` writes the
//! tool. Whatever can be found wrong here is, at the place where it is written, all of it at once.
#![forbid(unsafe_code)]

mod arguments;
mod declared;
mod expand;
mod prose;

use proc_macro::TokenStream;

/// Turns a function into a tool of the host tier; see `regent_tools::tool`.
#[proc_macro_attribute]
pub fn tool(attribute: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(attribute.into(), item.into()).unwrap_or_else(|error| error.into_compile_error()).into()
}
