//! Headers of `SKILL.md`, as data.

use super::*;
use serde_json::json;

fn head(fields: &str) -> Result<Skill, SkillError> {
    Skill::parse(&format!("---\nname: pdf\ndescription: Reads PDFs.\n{fields}---\n\n# How\n"))
}

fn wants(fields: &str) -> Vec<String> {
    head(fields)
        .unwrap_or_else(|error| panic!("{fields}: {error}"))
        .permissions
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn reads_fields_of_agentskills_and_older_skills() {
    let skill = head(
        "license: MIT\ncompatibility: needs python\nallowed-tools: Bash(git:*) Read\nmetadata:\n  author: ada\n  version: 2.1\nversion: 1.2.0\n\
         id: org/pdf\nruntime: host\nentrypoint: scripts/run.py\npermissions:\n  filesystem:\n    read: [docs/**]\n    write: [out]\n  \
         network: {default: deny}\n  shell: {default: allow}\npii: {remote_model_calls: deny}\nsecrets: {remote_model_calls: deny}\n\
         color: red\n",
    )
    .unwrap();
    assert_eq!(
        (skill.name.as_str(), skill.version.as_str(), skill.runtime),
        ("pdf", "1.2.0", Runtime::Process)
    );
    assert_eq!(skill.entrypoint.as_deref(), Some("scripts/run.py"));
    assert_eq!((skill.license.as_deref(), skill.id.as_deref()), (Some("MIT"), Some("org/pdf")));
    assert_eq!(skill.metadata["author"], "ada");
    assert_eq!(skill.unknown, BTreeMap::from([("color".to_owned(), json!("red"))]));
    assert_eq!(skill.body, "# How\n");
    let permissions: Vec<String> = skill.permissions.iter().map(ToString::to_string).collect();
    assert_eq!(permissions, ["read:docs", "write:out", "shell", "tool:bash", "tool:read"]);
    assert_eq!(head("metadata: {version: 2.1.0}\n").unwrap().version, "2.1.0");
    assert_eq!(head("").unwrap().version, "0.0.0");
}

#[test]
fn each_runtime_has_one_word() {
    for (word, runtime) in [
        ("none", Runtime::Instruction),
        ("instruction", Runtime::Instruction),
        ("host", Runtime::Process),
        ("process", Runtime::Process),
        ("wasm", Runtime::Wasm),
        ("mvm", Runtime::Microvm),
        ("microvm", Runtime::Microvm),
    ] {
        let entrypoint = if runtime == Runtime::Instruction { "" } else { "entrypoint: run\n" };
        assert_eq!(head(&format!("runtime: {word}\n{entrypoint}")).unwrap().runtime, runtime);
    }
}

#[test]
fn parses_requested_permissions() {
    let cases: [(&str, &[&str]); 9] = [
        ("", &[]),
        ("allowed-tools: '*'\n", &["tool:*"]),
        ("allowed-tools: [fs.read, http.fetch]\n", &["tool:fs.read", "tool:http.fetch"]),
        ("permissions: {network: allow}\n", &["network:*"]),
        ("permissions: {network: {default: ask}}\n", &["network:*"]),
        ("permissions: {network: {hosts: [Example.com]}}\n", &["network:example.com"]),
        ("permissions: {filesystem: {read: '**'}}\n", &["read:."]),
        ("permissions: {shell: true}\n", &["shell"]),
        ("secrets: {remote_model_calls: allow}\n", &["secrets:remote-models"]),
    ];
    for (fields, permissions) in cases {
        assert_eq!(wants(fields), permissions, "{fields}");
    }
}

#[test]
fn reports_mistakes_in_the_header() {
    let long = "x".repeat(1025);
    for (text, why) in [
        ("# no head".to_owned(), "`---`"),
        ("---\nname: a".to_owned(), "second line"),
        ("---\n- a\n---\n".to_owned(), "list of fields"),
        ("---\nname: a\nname: b\n---\n".to_owned(), "line 3"),
        ("---\nname: !evil a\n---\n".to_owned(), "tags"),
        ("---\nname: PDF\ndescription: x\n---\n".to_owned(), "`name`"),
        ("---\nname: pdf--x\ndescription: x\n---\n".to_owned(), "`name`"),
        ("---\nname: ../x\ndescription: x\n---\n".to_owned(), "`name`"),
        ("---\nname: pаyment\ndescription: x\n---\n".to_owned(), "`name`"),
        ("---\nname: pdf\n---\n".to_owned(), "description"),
        (format!("---\nname: pdf\ndescription: {long}\n---\n"), "1024"),
    ] {
        let error = Skill::parse(&text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    for (fields, why) in [
        ("runtime: docker\n", "`runtime`"),
        ("runtime: process\n", "entrypoint"),
        ("entrypoint: run\n", "runtime"),
        ("runtime: wasm\nentrypoint: ../x\n", "leads outside"),
        ("permissions: {camera: allow}\n", "camera"),
        ("permissions: {filesystem: {read: [/etc]}}\n", "workspace"),
        ("permissions: {filesystem: {write: [.git]}}\n", "controls"),
        ("version: 'a b'\n", "`version`"),
    ] {
        let error = head(fields).unwrap_err().to_string();
        assert!(error.contains(why), "{fields}: {error}");
    }
}

proptest::proptest! {
    #[test]
    fn the_parser_never_panics(text in "(---\n)?(\\PC|\n){0,200}(---\n)?") {
        drop(Skill::parse(&text));
    }
}
