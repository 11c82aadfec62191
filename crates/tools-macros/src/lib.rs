//! `#[tool]` turns a Rust function into a tool. Use it as `regent_tools::tool`; that crate documents it.
//!
//! It works in three steps, one file each: `declared` reads the attribute, `arguments` the function's parameters, `expand` writes the
//! tool. All mistakes are reported at once, at their source positions.
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
