//! Output that comes while a program runs: at once, in order, no faster than it is read, without a secret, and recorded.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

use regent_ledger::Digest;
use serde_json::Value;

use crate::running::until;
use crate::secrets::{VALUE, with_secret};
use crate::world::{CliFixture, ended};

/// Says something, and goes on only when the file `go` is there.
const WAITS: &str = "echo first; echo aside >&2; while [ ! -e go ]; do sleep 0.05; done; echo second; exit 7";

fn outcome(world: &CliFixture) -> Value {
    let is_run = |entry: &Value| entry["kind"] == "outcome" && entry["body"]["obtained"]["tier"] == "process";
    world.entries().into_iter().rfind(is_run).unwrap()["body"].clone()
}

fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

fn readers(child: &mut Child) -> (BufReader<impl Read + use<>>, BufReader<impl Read + use<>>) {
    (BufReader::new(child.stdout.take().unwrap()), BufReader::new(child.stderr.take().unwrap()))
}

#[test]
fn output_arrives_while_the_program_runs() {
    let world = CliFixture::ready();
    for args in [&["run", "--", "sh", "-c", WAITS][..], &["run", "--agent", "a", "--", "sh", "-c", WAITS]] {
        let mut child = world.start(args);
        let (mut out, mut err) = readers(&mut child);
        // If either waited for the end, this would wait for ever.
        assert_eq!((line(&mut out), line(&mut err)), ("first\n".to_owned(), "aside\n".to_owned()));
        world.write("go", "");
        assert_eq!(line(&mut out), "second\n");
        assert_eq!(child.wait().unwrap().code(), Some(7));
        std::fs::remove_file(world.project("go")).unwrap();
        let outcome = outcome(&world);
        let [first, second] = outcome["delivered"].as_array().unwrap().as_slice() else {
            panic!("{outcome}")
        };
        for (delivered, channel, text) in [(first, "output", "first\nsecond\n"), (second, "error", "aside\n")]
        {
            assert_eq!(delivered["channel"], channel, "{outcome}");
            assert_eq!(delivered["bytes"], text.len(), "{outcome}");
            assert_eq!(delivered["digest"], Digest::compute(text.as_bytes()).to_string(), "{outcome}");
        }
        assert_eq!(outcome["obtained"]["ended"]["stdout_bytes"], 13, "{outcome}");
        assert_eq!(outcome["output"]["bytes"], 19, "the ledger has it all: {outcome}");
    }
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn output_that_goes_to_one_place_comes_there_in_order() {
    let world = CliFixture::ready();
    let script = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done";
    let path = world.home("both");
    let both = std::fs::File::create(&path).unwrap();
    let mut command = world.command(&["run", "--", "sh", "-c", script], &[]);
    command.stdin(Stdio::null()).stdout(both.try_clone().unwrap()).stderr(both);
    assert!(command.status().unwrap().success());
    let expected: String = (0..200).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!(std::fs::read_to_string(path).unwrap(), expected);
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_program_and_not_the_record() {
    let world = CliFixture::ready();
    let mut child = world.start(&["run", "--", "sh", "-c", "echo to-stderr >&2; exec yes"]);
    let (mut out, mut err) = readers(&mut child);
    assert_eq!((line(&mut out), line(&mut err)), ("y\n".to_owned(), "to-stderr\n".to_owned()));
    drop(out);
    // As a shell counts SIGPIPE.
    assert_eq!(child.wait().unwrap().code(), Some(141));
    let outcome = outcome(&world);
    assert_eq!(outcome["obtained"]["ended"]["status"]["signal"], 13, "{outcome}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_reader_that_is_slow_slows_the_program() {
    let world = CliFixture::ready();
    let wide = "version: 1\nlimits: { output: 1GiB }\nrules:\n  - { id: all, effect: allow }\n";
    for policy in [world.home(".config/regent/policy.yml"), world.project(".regent/policy.yml")] {
        std::fs::write(policy, wide).unwrap();
    }
    assert_eq!(world.run(&["trust", "--yes"]).code, 0);
    let script =
        "i=0; while [ $i -lt 1024 ]; do head -c 65536 /dev/zero; i=$((i+1)); echo $i > progress; done";
    let mut child = world.start(&["run", "--no-network", "--", "sh", "-c", script]);
    let (mut out, _err) = readers(&mut child);
    let progress = || std::fs::read_to_string(world.project("progress")).ok()?.trim().parse::<u64>().ok();
    // Nobody reads: the program stops after as much as the queues hold.
    let mut before = None;
    let written = until("the program waits", || {
        std::thread::sleep(std::time::Duration::from_millis(900));
        let now = progress();
        (now.is_some() && std::mem::replace(&mut before, now) == now).then_some(now?)
    });
    assert!(written < 256, "{written} of 1024 chunks were taken although nobody reads");
    let mut bytes = Vec::new();
    out.read_to_end(&mut bytes).unwrap();
    assert_eq!((bytes.len(), child.wait().unwrap().code()), (64 << 20, Some(0)));
    let outcome = outcome(&world);
    let delivered = &outcome["delivered"][0];
    assert_eq!(delivered["bytes"], 64 << 20, "{outcome}");
    assert_eq!(delivered["digest"], Digest::compute(&bytes).to_string(), "{outcome}");
    assert_eq!(delivered["kept_bytes"], outcome["output"]["bytes"], "{outcome}");
    assert!(outcome["output"]["bytes"].as_u64().unwrap() < 32 << 20, "{outcome}");
}

#[test]
fn adv_031_a_secret_that_comes_in_two_parts_is_masked() {
    let world = with_secret(&[]);
    let (first, second) = VALUE.split_at(10);
    let script = format!(
        "read -r x; printf 'before %.10s' \"$x\"; echo up > up; while [ ! -e go ]; do sleep 0.05; done; printf '%s after\\n' \"${{x#{first}}}\""
    );
    let mut child = world.start(&["run", "-i", "--", "sh", "-c", &script]);
    {
        use std::io::Write;
        child.stdin.take().unwrap().write_all(b"secret://api/token\n").unwrap();
    }
    until("the first part is written", || world.project("up").exists().then_some(()));
    world.write("go", "");
    let ended = ended(&child.wait_with_output().unwrap());
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(ended.stdout, "before [secret:api/token] after\n", "{ended:?}");
    assert!(!ended.stdout.contains(first) && !ended.stdout.contains(second), "{ended:?}");
    let outcome = outcome(&world);
    assert_eq!(outcome["label"]["confidentiality"], "secret", "{outcome}");
}

#[test]
fn a_limit_cuts_a_stream_where_it_says() {
    let world = CliFixture::ready();
    let narrow = "version: 1\nlimits: { output: 1KiB }\nrules:\n  - { id: all, effect: allow }\n";
    std::fs::write(world.home(".config/regent/policy.yml"), narrow).unwrap();
    let ended = world.run(&["run", "--no-network", "--", "yes"]);
    assert_eq!(ended.stdout, "y\n".repeat(512), "{}", ended.stderr);
    assert!(ended.code != 0 && ended.stderr.contains("output limit reached"), "{ended:?}");
    assert_eq!(outcome(&world)["delivered"][0]["bytes"], 1024);
}

#[test]
fn a_program_without_output_gives_none() {
    let world = CliFixture::ready();
    let ended = world.run(&["run", "--", "true"]);
    assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (0, "", ""), "{ended:?}");
    assert!(outcome(&world).get("delivered").is_none());
}

#[test]
fn what_is_drawn_on_a_terminal_is_recorded() {
    let world = CliFixture::ready();
    let (code, shown) = world.at_terminal(&["run", "--no-network", "--", "echo", "drawn"], "");
    assert!(code == 0 && shown.starts_with("drawn\r\n"), "{code} {shown:?}");
    let outcome = outcome(&world);
    let delivered = &outcome["delivered"][0];
    assert_eq!((&delivered["bytes"], &delivered["kept_bytes"]), (&7.into(), &7.into()), "{outcome}");
    assert_eq!(delivered["digest"], Digest::compute(b"drawn\r\n").to_string(), "{outcome}");
}

#[test]
fn a_terminal_draws_more_than_the_output_limit_and_the_ledger_keeps_no_more() {
    let world = CliFixture::ready();
    let narrow = "version: 1\nlimits: { output: 1KiB }\nrules:\n  - { id: all, effect: allow }\n";
    std::fs::write(world.home(".config/regent/policy.yml"), narrow).unwrap();
    let script = "head -c 3000 /dev/zero | tr '\\0' x; echo end";
    let (code, shown) = world.at_terminal(&["run", "--no-network", "--", "sh", "-c", script], "");
    assert!(code == 0 && shown.contains("xend"), "{code} {shown}");
    let outcome = outcome(&world);
    assert_eq!(outcome["delivered"][0]["bytes"], 3005, "{outcome}");
    assert_eq!(outcome["delivered"][0]["kept_bytes"], 1024, "{outcome}");
}

/// A world in which a program has been given the secret, so that it is looked for in all output from then on.
fn with_revealed_secret() -> CliFixture {
    let world = with_secret(&[]);
    let ended = world.run_with(&["run", "-i", "--", "true"], &[], b"secret://api/token\n");
    assert_eq!(ended.code, 0, "{ended:?}");
    world
}

#[test]
fn adv_031_a_secret_that_comes_to_a_terminal_in_two_parts_is_masked() {
    let world = with_revealed_secret();
    let (first, second) = VALUE.split_at(10);
    world.write("first", first);
    world.write("second", second);
    for pause in ["", "sleep 0.3;"] {
        let script = format!("cat first; {pause} cat second; echo; echo end");
        let (code, shown) = world.at_terminal(&["run", "--no-network", "--", "sh", "-c", &script], "");
        assert_eq!(code, 0, "{shown:?}");
        assert!(shown.contains("[secret:api/token]") && shown.contains("end"), "{shown:?}");
        assert!(!shown.contains(second) && !shown.contains(&VALUE[10..20]), "{shown:?}");
        let label = outcome(&world)["label"]["confidentiality"].clone();
        assert_eq!(label, "secret");
    }
}

#[test]
fn a_prompt_is_seen_while_it_waits_although_a_secret_might_begin_in_it() {
    use std::io::Write;
    let world = with_revealed_secret();
    let (mut keyboard, mut screen) = world.shell();
    let mut seen = String::new();
    let mut see = |text: &str, after: &str| {
        let mut buffer = [0; 4096];
        while !seen.rsplit_once(after).is_some_and(|(_, rest)| rest.contains(text)) {
            let count = screen.read(&mut buffer).unwrap();
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    // In two parts, so that the echo of what is typed isn't taken for what is meant.
    let line = "$REGENT run --no-network -- sh -c 'printf \"s3\"\"c? \"; read x; echo he\"\"ard $x'\n";
    keyboard.write_all(line.as_bytes()).unwrap();
    see("s3c? ", "REGENT");
    keyboard.write_all(b"yes\n").unwrap();
    // What is typed while the program runs is the program's: the shell must have the terminal back.
    see("bash-", "heard yes");
    keyboard.write_all(b"exit\n").unwrap();
    see("exit", "bash-");
}
