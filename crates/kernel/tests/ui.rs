//! What must not compile, each beside its twin that must: the seal of the permit is a fact that the compiler checks.
//!
//! `TRYBUILD=overwrite cargo test -p regent-kernel --test ui` writes the compiler's messages again.

/// The twins: what is refused is refused for the one thing that differs. They compile with this file, which is the whole test.
#[expect(dead_code, reason = "they only have to compile")]
#[path = "ui/fine"]
mod fine {
    mod act_as_the_operator;
    mod admit_a_tool;
    mod append_to_the_ledger;
    mod call_the_mint;
    mod clone_it;
    mod construct_a_permit;
    mod execute_a_bare_call;
    mod forge_a_label;
    mod impersonate;
    mod invent_a_tier;
    mod keep_for_later;
    mod move_to_a_weaker_tier;
    mod reach_the_workspace;
    mod read_a_private_key;
    mod read_unlabelled_output;
    mod replace_the_policy;
    mod swap_the_call;
    mod use_twice;
    mod use_unsafe;
}

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/ui/refused/*.rs");
}

#[test]
fn everything_refused_has_a_twin() {
    let names = |folder: &str| -> Vec<_> {
        let folder = std::fs::read_dir(format!("tests/ui/{folder}")).unwrap();
        let files = folder.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = files.filter(|name| name.ends_with(".rs")).collect();
        names.sort();
        names
    };
    assert_eq!(names("refused"), names("fine"));
}
