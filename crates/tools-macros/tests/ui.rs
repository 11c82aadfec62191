//! What `#[tool]` refuses, and how it says so. What it takes is used by the built-in tools and the tests of `regent-tools`.
//!
//! `TRYBUILD=overwrite cargo test -p regent-tools-macros --test ui` writes the messages again.

#[test]
fn mistakes_are_named_where_they_are() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
