//! What must not compile, each beside its twin that must: the seal of the permit is a fact that the compiler checks.
//!
//! `TRYBUILD=overwrite cargo test -p regent-kernel --test ui` writes the compiler's messages anew.

#[test]
fn what_must_not_compile_does_not_and_its_twin_does() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/fine/*.rs");
    cases.compile_fail("tests/ui/refused/*.rs");
}
