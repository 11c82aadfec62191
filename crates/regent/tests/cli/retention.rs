//! Payloads that are erased or no longer kept: the report matches what happens.

use serde_json::{Value, json};

use crate::world::CliFixture;

/// Reads a file under Regent, and gives the place of the intent.
fn read(world: &CliFixture) -> String {
    world.write("a.txt", "hello world\n");
    assert_eq!(world.run(&["tool", "call", "fs.read", r#"{"path": "a.txt"}"#]).code, 0);
    let entries = world.entries();
    let intent = entries.iter().rfind(|entry| entry["kind"] == "intent").unwrap();
    format!("{}/{}", intent["lane"].as_str().unwrap(), intent["seq"])
}

fn payloads(world: &CliFixture, args: &[&str]) -> Value {
    let done = world.run(&[&["--json"], args].concat());
    assert_eq!(done.code, 0, "{done:?}");
    let groups = done.json()["data"]["groups"].clone();
    groups
        .as_array()
        .unwrap()
        .iter()
        .find(|group| group["rule"] == "gc.payloads=1s")
        .cloned()
        .unwrap_or_default()
}

#[test]
fn b2_gc_removes_what_its_dry_run_named() {
    let world = CliFixture::ready();
    let place = read(&world);
    assert_eq!(world.run(&["config", "set", "gc.payloads", "1s"]).code, 0);
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    let planned = payloads(&world, &["gc", "--dry-run"]);
    assert_eq!(planned["removed"], 1, "{planned}");
    let done = payloads(&world, &["gc"]);
    assert_eq!(
        (&done["removed"], &done["bytes"], &done["items"]),
        (&planned["removed"], &planned["bytes"], &planned["items"])
    );
    let shown = world.run(&["audit", "show", &place]);
    assert!(!shown.stdout.contains("hello world"), "{shown:?}");
    assert_eq!(shown.stdout.matches("removed by gc").count(), 2, "arguments and output: {shown:?}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    // What remains is what gc itself has recorded; that is removed by the next run.
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    let planned = payloads(&world, &["gc", "--dry-run"]);
    assert_eq!(payloads(&world, &["gc"])["bytes"], planned["bytes"]);
    read(&world);
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn b2_a_pack_in_use_is_named_and_stays() {
    let world = CliFixture::ready();
    assert_eq!(world.run(&["config", "set", "gc.payloads", "1s"]).code, 0);
    let mut child = world.start(&["run", "--", "sh", "-c", "echo up > up; sleep 60"]);
    crate::running::until("it runs", || world.project("up").exists().then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    for args in [&["gc", "--dry-run"][..], &["gc"]] {
        let group = payloads(&world, args);
        assert_eq!(
            (&group["removed"], &group["in_use"]["count"]),
            (&json!(0), &json!(1)),
            "{args:?}: {group}"
        );
        let shown = world.run(args);
        assert!(shown.stdout.contains("1 in use"), "{shown:?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a11_an_erased_payload_is_called_erased_and_erased_once() {
    let world = CliFixture::ready();
    let place = read(&world);
    let shown = world.run(&["--json", "audit", "show", &place]).json();
    let digest = shown["data"]["outcome"]["body"]["output"]["sha256"].as_str().unwrap().to_owned();
    let erase = ["audit", "erase", &digest, "--because", "personal data"];
    let erased = world.run(&erase);
    assert!(erased.code == 0 && erased.stdout.contains("(1 record)"), "{erased:?}");
    assert!(erased.stdout.contains("may quote"), "{erased:?}");
    let again = world.run(&erase);
    assert!(again.code == 0 && again.stdout.contains("already erased"), "{again:?}");
    let shown = world.run(&["audit", "show", &place]);
    assert!(
        shown.stdout.contains("output: erased on") && shown.stdout.contains("personal data"),
        "{shown:?}"
    );
    // The same bytes are recorded again: the old erasure doesn't cover them, and the help names the command.
    read(&world);
    let verified = world.run(&["audit", "verify"]);
    let fix = format!("regent audit erase {digest}");
    assert!(
        verified.stdout.contains("1 payload still to be erased") && verified.stdout.contains(&fix),
        "{verified:?}"
    );
    assert!(world.run(&erase).stdout.contains("(1 record)"));
    assert!(!world.run(&["audit", "verify"]).stdout.contains("to be erased"));
}
