//! Real programs do what they do on Linux, as far as it is promised.

use std::sync::Arc;

use regent_kernel::{Op, Reply, Signal, Status};
use regent_microvm::MicrovmTier;
use regent_sandbox::{Floor, ProcessTier};
use regent_testkit::{TestKernel, run, spawn};
use serde_json::json;

use crate::kit::{EVERYTHING, MicrovmFixture, RAISED, elf, failed_with, has_busybox, has_kvm, with_tools};

#[tokio::test]
async fn busybox_applets_work() {
    if !has_busybox() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    world.put("a.txt", "banana\napple\ncherry\n");
    world.put("sub/b.txt", "b\n");
    let here = world.path().display().to_string();
    assert_eq!(world.busybox(["echo", "hello", "world"]).await, "hello world\n");
    assert_eq!(world.busybox(["pwd"]).await, format!("{here}\n"));
    assert_eq!(world.busybox(["cat", "a.txt"]).await, "banana\napple\ncherry\n");
    assert_eq!(world.busybox(["sort", "a.txt"]).await, "apple\nbanana\ncherry\n");
    assert_eq!(world.busybox(["wc", "-l", "a.txt"]).await, "3 a.txt\n");
    assert_eq!(world.busybox(["grep", "-n", "an", "a.txt"]).await, "1:banana\n");
    assert_eq!(world.busybox(["ls", "-1"]).await, "a.txt\nsub\n");
    assert_eq!(world.busybox(["ls", "-1", "/"]).await.lines().filter(|name| *name == "etc").count(), 0);
    assert_eq!(
        world.busybox(["awk", "BEGIN { for (i = 1; i <= 100; i++) s += i; print s }"]).await,
        "5050\n"
    );
    assert_eq!(world.busybox(["head", "-c", "3", "/dev/zero"]).await, "\0\0\0");
    assert_eq!(world.busybox(["uname", "-sm"]).await, "Linux x86_64\n");
    assert_eq!(world.busybox(["id", "-u"]).await, "1000\n");
    let digest = regent_kernel::Digest::compute(b"banana\napple\ncherry\n");
    assert_eq!(world.busybox(["sha256sum", "a.txt"]).await, format!("{digest}  a.txt\n"));
    assert_eq!(world.busybox(["find", ".", "-name", "*.txt"]).await.lines().count(), 2);
}

#[tokio::test]
async fn what_a_program_writes_is_there_afterwards() {
    if !has_busybox() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    world.put("a.txt", "one\ntwo\n");
    world.busybox(["cp", "a.txt", "copy.txt"]).await;
    assert_eq!(world.text("copy.txt"), "one\ntwo\n");
    world.busybox(["sed", "-i", "s/two/three/", "a.txt"]).await;
    assert_eq!(world.text("a.txt"), "one\nthree\n");
    let outcome = world.sh("echo first > made; echo second >> made; echo in > d/f; echo x > /tmp/t; read y < /tmp/t; echo $y").await;
    assert_eq!(
        (outcome.output.text().as_ref(), &outcome.status),
        ("x\n", &Status::Ok),
        "{:?}",
        outcome.obtained
    );
    assert_eq!((world.text("made"), world.text("d/f")), ("first\nsecond\n".to_owned(), "in\n".to_owned()));
    assert!(!std::path::Path::new("/tmp/t").exists());
    world.busybox(["touch", "empty"]).await;
    assert_eq!(world.text("empty"), "");
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    world.put("bytes", &bytes);
    world.busybox(["cp", "bytes", "bytes2"]).await;
    assert_eq!(std::fs::read(world.path().join("bytes2")).unwrap(), bytes);
    world.busybox(["gzip", "bytes2", "-c"]).await;
}

#[tokio::test]
async fn arguments_are_honoured_and_the_receipt_says_how_it_ended() {
    if !has_busybox() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    world.put("sub/x", "");
    let args = json!({"argv": ["busybox", "sh", "-c", "pwd; read line; echo $line $WORD"], "cwd": "sub", "stdin": "in\n", "env": {"WORD": "w"}});
    let outcome = world.outcome("process.exec", args).await;
    assert_eq!(outcome.output.text(), format!("{}\nin w\n", world.path().join("sub").display()));
    let receipt = outcome.obtained.unwrap();
    assert_eq!((&receipt["tier"], &receipt["thread"]["seccomp"]), (&json!("microvm"), &json!(true)));
    assert_eq!(receipt["ended"]["status"], json!({"code": 0}));
    assert_eq!(receipt["program"].as_str().unwrap().len(), 64);
    let late =
        world.outcome("process.exec", json!({"argv": ["busybox", "sleep", "60"], "timeout_ms": 50})).await;
    assert!(failed_with(&late, "process.timeout"), "{late:?}");
    for (argv, code) in [
        (vec!["busybox", "sh", "-c", "exit 3"], "process.exit"),
        (vec!["busybox", "sh", "-c", "kill -9 $$"], "process.signal"),
        (vec!["busybox", "yes"], "process.output"),
        (vec!["no-such-program"], "microvm.not_found"),
        (vec!["./no-such-program"], "microvm.not_found"),
        (vec!["/bin/ls"], "microvm.not_static"),
        (vec!["./text"], "microvm.not_a_program"),
    ] {
        world.put("text", "#!/bin/sh\n");
        let outcome = world.outcome("process.exec", json!({"argv": argv})).await;
        assert!(failed_with(&outcome, code), "{argv:?}: {outcome:?}");
    }
    let nowhere = world.outcome("process.exec", json!({"argv": ["busybox", "true"], "cwd": "absent"})).await;
    assert!(failed_with(&nowhere, "process.cwd"), "{nowhere:?}");
    let tty = world.outcome("process.exec", json!({"argv": ["busybox", "true"], "terminal": true})).await;
    assert!(failed_with(&tty, "process.terminal"), "{tty:?}");
}

/// Compiles a C program without libraries of its own; `None`, loudly, where there is no compiler.
fn compiled(source: &str, extra: &[&str]) -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("p.c"), folder.path().join("p"));
    std::fs::write(&from, source).unwrap();
    #[expect(clippy::disallowed_methods, reason = "a test makes the program that it runs")]
    let mut compiler = std::process::Command::new("cc");
    let built = compiler.args(["-O1", "-w", "-o"]).arg(&to).args(extra).arg(&from).status();
    if !built.is_ok_and(|status| status.success()) {
        crate::skip::skipped("static-c", "there is no C compiler with static libraries");
        return None;
    }
    Some(std::fs::read(&to).unwrap())
}

const C_PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>
#include <unistd.h>
static __thread int own = 41;
int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "r");
    if (!in) { perror("open"); return 2; }
    long sum = 0, value; int count = 0;
    while (fscanf(in, "%ld", &value) == 1) { sum += value; count++; }
    fclose(in);
    char *big = malloc(40 << 20);
    memset(big, 7, 40 << 20);
    big = realloc(big, 60 << 20);
    if (!big || big[(40 << 20) - 1] != 7) return 3;
    free(big);
    for (int i = 0; i < 200; i++) {
        char *p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || p[5000] != 0) return 4;
        p[5000] = 9;
        if (mprotect(p, 4096, PROT_READ)) return 5;
        if (munmap(p, 1 << 20)) return 6;
    }
    struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
    own++;
    FILE *out = fopen(argv[2], "w");
    fprintf(out, "%ld %d %.3f %d\n", sum, count, (double)sum / 2, own);
    fclose(out);
    printf("done %d\n", t.tv_sec > 1600000000);
    return 0;
}
"#;

#[tokio::test]
async fn static_c_programs_read_compute_and_write() {
    if !has_kvm() {
        return;
    }
    let world = MicrovmFixture::new(RAISED).await;
    let numbers: String = (1..=1000).map(|number| format!("{number}\n")).collect();
    world.put("numbers", numbers);
    for extra in [&["-static"][..], &["-static-pie", "-fPIE"]] {
        let Some(program) = compiled(C_PROGRAM, extra) else { return };
        world.put("program", program);
        let outcome = world.exec(["./program", "numbers", "out"]).await;
        assert_eq!(outcome.status, Status::Ok, "{extra:?} {} {:?}", outcome.output.text(), outcome.obtained);
        assert_eq!(outcome.output.text(), "done 1\n");
        assert_eq!(world.text("out"), "500500 1000 250250.000 42\n");
        std::fs::remove_file(world.path().join("out")).unwrap();
    }
}

#[tokio::test]
async fn file_access_is_governed_call_by_call() {
    if !has_busybox() {
        return;
    }
    let policy = [
        EVERYTHING,
        "  - { id: secret, effect: deny, match: { path: 'secret*' }, reason: that is secret }\n",
        "  - { id: asked, effect: ask, match: { path: 'asked*' }, reason: ask first }\n",
    ];
    let world = MicrovmFixture::new(&policy.concat()).await;
    world.put("open.txt", "fine");
    world.put("secret.txt", "hunter2");
    world.put("asked.txt", "hunter3");
    assert_eq!(world.busybox(["cat", "open.txt"]).await, "fine");
    let before = world.intents().len();
    for (file, word) in [("secret.txt", "denied"), ("asked.txt", "needs an approval")] {
        let outcome = world.exec(["busybox", "cat", file]).await;
        let said = outcome.output.text().into_owned();
        assert!(said.contains("Permission denied") && !said.contains("hunter"), "{said}");
        let refused = outcome.obtained.unwrap()["refused"].to_string();
        assert!(refused.contains(word) && refused.contains(file), "{refused}");
    }
    // Each attempt is in the ledger, below the call that it was made from.
    let intents = world.intents();
    let nested: Vec<_> =
        intents[before..].iter().filter(|body| body.to_string().contains("fs.read")).collect();
    assert_eq!(nested.len(), 2, "{intents:?}");
    let written = world.exec(["busybox", "cp", "open.txt", "secret.new"]).await;
    assert!(matches!(written.status, Status::Failed(_)), "{written:?}");
    assert!(!world.path().join("secret.new").exists());
    let unheard = world.sh("echo x > secret.new").await;
    assert!(matches!(unheard.status, Status::Failed(_)), "{unheard:?}");
    assert!(!world.path().join("secret.new").exists());
}

#[tokio::test]
async fn policy_sends_a_program_to_a_microvm_and_nothing_falls_back() {
    if !has_busybox() {
        return;
    }
    let policy = format!(
        "{EVERYTHING}  - {{ id: guests, effect: raise-tier, tier: microvm, match: {{ tool: process.exec }} }}\n"
    );
    let process = Arc::new(ProcessTier::new(Floor::Full));
    let builder = with_tools(TestKernel::builder().policy(&policy)).process(process.clone());
    let world =
        MicrovmFixture { kernel: builder.microvm(Arc::new(MicrovmTier::new())).boot().await.unwrap() };
    let outcome = world.exec(["/bin/busybox", "echo", "hi"]).await;
    assert_eq!((outcome.output.text().as_ref(), outcome.status.clone()), ("hi\n", Status::Ok));
    assert_eq!(outcome.obtained.unwrap()["tier"], "microvm");
    // What can't be a guest isn't run in less.
    let dynamic = world.exec(["/bin/ls"]).await;
    assert!(failed_with(&dynamic, "microvm.not_static"), "{dynamic:?}");
    // Lines for the shell were not raised.
    assert_eq!(world.sh("echo hi").await.obtained.unwrap()["tier"], "process");
    // Without the tier, the call is refused before anything is run.
    let without = with_tools(TestKernel::builder().policy(&policy)).process(process).boot().await.unwrap();
    let reply = without.call(run("process.exec", json!({"argv": ["/bin/busybox", "true"]}))).await.unwrap();
    let Reply::Denied(denial) = reply else { panic!("{reply:?}") };
    assert_eq!(denial.reason.code, "tier.unavailable");
}

#[tokio::test]
async fn stop_pauses_a_guest_and_cont_lets_it_go_on() {
    if !has_kvm() {
        return;
    }
    let policy = "version: 1\nlimits: { wall: 5m, cpu: 1s }\nrules:\n  - { id: all, effect: allow }\n";
    let world = MicrovmFixture::new(policy).await;
    world.put("program", elf(&[0xeb, 0xfe]));
    let kernel = world.kernel.kernel.clone();
    let agent = spawn(&kernel, "paused").await.unwrap();
    let signal = |signal| Op::Signal { agent: agent.agent_id().unwrap().clone(), signal, group: false };
    let spins = || run("process.exec", json!({"argv": ["./program"]}));
    let before = world.intents().len();
    let paused = {
        let (kernel, agent, op) = (kernel.clone(), agent.clone(), spins());
        tokio::spawn(async move { kernel.syscall(&agent, op).await })
    };
    while world.intents().len() == before {
        tokio::task::yield_now().await;
    }
    // Twice, so that a signal which ended a run earlier doesn't end later ones.
    for _ in 0..2 {
        kernel.syscall(&kernel.operator(), signal(Signal::Stop)).await.unwrap();
        // As much work of others comes to its end meanwhile.
        assert!(failed_with(&world.exec(["./program"]).await, "process.cpu"));
        assert!(!paused.is_finished(), "it went on although its agent is suspended");
        kernel.syscall(&kernel.operator(), signal(Signal::Cont)).await.unwrap();
    }
    let Reply::Done(outcome) = paused.await.unwrap().unwrap() else { panic!("not done") };
    assert!(failed_with(&outcome, "process.cpu"), "it went on, and used up the rest: {outcome:?}");
}
