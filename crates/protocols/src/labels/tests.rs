//! Labels files: their effect, invalid entries, and the position of errors.

use super::*;
use regent_kernel::Declared;
use serde_json::json;

fn user(text: &str) -> Result<Corrections, LabelFileError> {
    let user = LabelFile::parse(text, Whose::User)?;
    Ok(Corrections { user, project: LabelFile::default() })
}

fn project(text: &str) -> Corrections {
    let project = LabelFile::parse(text, Whose::Project).unwrap();
    Corrections { user: LabelFile::default(), project }
}

fn guessed(name: &str) -> FieldLabels {
    let schema = json!({"properties": {"to": {}, "body": {}}});
    Declared { schema, ..Declared::default() }.labelled(name).field_labels()
}

#[test]
fn the_users_entry_replaces_labels_and_vouches_for_the_tool() {
    let text = "[tools.send]\neffect = \"write\"\nsinks = [\"to\"]\ntaint = [\"note\"]\n\n[servers.Mail.tools.send]\neffect = \"read\"\nsinks = []\ntaint = \"none\"\nsecret = false\n";
    let corrections = user(text).unwrap();
    let of = |server: &str| corrections.apply("send", server, guessed("send")).unwrap();
    let any = of("other").labels;
    assert_eq!(any.taint, Taint::Fields(["note".to_owned()].into()));
    assert!(!any.inferred && any.secret, "what the entry leaves out stays");
    let mail = of("mail").labels;
    assert_eq!((mail.effect, mail.secret), (LabelEffect::Read, false), "a server's own entry comes first");
    let declared = FieldLabels::declared(&json!({"effect": "read", "taint": "none"}), &json!({}));
    assert_eq!(
        corrections.apply("send", "", declared).unwrap().labels.effect,
        LabelEffect::Write,
        "declared or not"
    );
    let other = corrections.apply("get", "", guessed("get")).unwrap();
    assert!(other.labels.inferred && !other.by_user);
}

#[test]
fn mistakes_name_the_place_and_the_reason() {
    let whole = "effect = \"read\"\nsinks = []\ntaint = \"none\"\n";
    for (text, line, why) in [
        ("[tools.a]\neffect = \"harmless\"\nsinks = []\ntaint = \"none\"\n", 2, "`effect` must be \"read\""),
        (&*format!("[tools.a]\n{whole}public = true\n"), 5, "unknown label `public`"),
        ("[tools.a]\neffect = \"read\"\nsinks = []\ntaint = \"some\"\n", 4, "`taint` must be"),
        ("[tools.a]\neffect = \"read\"\nsinks = []\ntaint = []\n", 4, "`taint` must be"),
        ("[tools.a]\neffect = \"read\"\nsinks = \"to\"\ntaint = \"none\"\n", 3, "list of names"),
        (&*format!("[tools.a]\n{whole}secret = \"no\"\n"), 5, "`secret` must be true or false"),
        ("\n[tools.a]\nsecret = true\n", 2, "needs `effect`, `sinks` and `taint`"),
        ("[tool.a]\n", 1, "neither `tools` nor `servers`"),
        ("[servers.mail]\neffect = \"read\"\n", 1, "has one section, `tools`"),
        ("[tools.a\n", 1, ""),
        (&*format!("[tools.a]\n{whole}[tools.a]\n{whole}"), 5, ""),
    ] {
        let error = user(text).unwrap_err();
        let start = error.span.map_or(0, |span| span.start);
        assert_eq!(text[..start].matches('\n').count() + 1, line, "{text}: {}", error.why);
        assert!(error.why.contains(why), "{text}: {}", error.why);
    }
    assert!(user("").is_ok());
}

#[test]
fn a_projects_entry_only_makes_labels_stricter() {
    let lax = "[tools.send]\neffect = \"read\"\nsinks = []\ntaint = \"none\"\nsecret = false\n";
    let base = guessed("send");
    let same = project(lax).apply("send", "", base.clone()).unwrap();
    assert!(same.labels == base && !same.by_project);
    let declared = FieldLabels::declared(
        &json!({"effect": "read", "taint": ["a"], "readers": ["ann", "bob"]}),
        &json!({}),
    );
    let strict = "[tools.send]\neffect = \"write\"\nsinks = [\"to\"]\ntaint = [\"b\"]\nsecret = true\nreaders = [\"bob\"]\n";
    let narrowed = project(strict).apply("send", "", declared.clone()).unwrap();
    let labels = &narrowed.labels;
    assert!(
        narrowed.by_project
            && labels.effect == LabelEffect::Egress
            && labels.secret
            && labels.also_sinks.contains("to")
    );
    assert_eq!(labels.taint, Taint::Fields(["a".to_owned(), "b".to_owned()].into()));
    assert_eq!(Vec::from_iter(&labels.readers), ["bob"]);
    assert!(project("[tools.send]\nreaders = [\"eve\"]\n").apply("send", "", declared).is_err());
    let observed =
        project("[tools.get]\ntaint = [\"note\"]\n").apply("get", "", guessed("get")).unwrap().labels;
    assert!(observed.inferred && observed.taint == Taint::Whole(Whole::Observed));
    assert_eq!(Vec::from_iter(&observed.remembered), ["note"]);
}

#[test]
fn a_snippet_is_read_back_as_the_same_labels() {
    for (name, server) in [("send", ""), ("mail.send", "acme/mail server"), ("a\"b", "é")] {
        let labels = FieldLabels { readers: ["ann@a.test".to_owned()].into(), ..guessed("send") };
        let text = snippet(name, server, &labels);
        let read = user(&text).unwrap().apply(name, server, guessed("get")).unwrap();
        let FieldLabels { effect, sinks, taint, secret, readers, .. } = labels;
        let back = read.labels;
        assert_eq!((back.effect, back.sinks, back.taint), (effect, sinks, taint), "{text}");
        assert_eq!((back.secret, back.readers), (secret, readers), "{text}");
    }
}
