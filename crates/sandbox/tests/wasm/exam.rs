//! The WASM tier takes the exam that every tier takes, and a program that Rust itself made runs in it.

use std::sync::Arc;

use regent_kernel::{Digest, Driver, Op, Tier};
use regent_sandbox::wasm::{WasmConfig, WasmTier};
use regent_sandbox::{Floor, ProcessTier};
use regent_testkit::contract::HOG_BYTES;
use regent_testkit::test_kernel::{Builder, SetupError};
use regent_testkit::{ALLOW_ALL, Exam, Task, executor_contract, run};
use serde_json::json;

use crate::guests::{CALL, courier, echo, endless, tool};
use crate::kit::{WasmFixture, spec, with_host_tools};

struct Guests;

impl Exam for Guests {
    fn tier(&self) -> Tier {
        Tier::Wasm
    }

    fn equip(&self, mut kernel: Builder) -> Result<Builder, SetupError> {
        let tier = Arc::new(WasmTier::new(WasmConfig::default()));
        // Reads the file that its arguments name, writes to it, and prints what was there.
        let touch = r#"
            (call $call (i32.const 64) (i32.const 7) (local.get $text) (local.get $bytes) (i32.const 4096))
            (memory.copy (i32.const 256) (local.get $text) (local.get $bytes))
            (memory.copy (i32.add (i32.const 255) (local.get $bytes)) (i32.const 79) (i32.const 21))
            (call $call (i32.const 71) (i32.const 8) (i32.const 256) (i32.add (local.get $bytes) (i32.const 20)) (i32.const 4160))
            (call $pass_on)"#;
        let words = r#"fs.readfs.write,\"content\":\"planted\"}"#;
        let hog = format!(
            "(if (i32.eq (memory.grow (i32.const {})) (i32.const -1)) (then unreachable))
            (call $say (i32.const 0) (i32.const 64) (i32.const 5))",
            HOG_BYTES >> 16
        );
        let grown = "(drop (memory.grow (i32.const 20))) (call $say (i32.const 0) (i32.const 8192) (i32.const 1000000))";
        let guests = [
            ("same", echo()),
            ("fail", tool("", "sorry", "(call $say (i32.const 1) (i32.const 64) (i32.const 5))")),
            ("connect", courier("http.fetch")),
            ("touch", tool(CALL, words, touch)),
            ("flood", tool("", "", grown)),
            ("hang", endless("", "", "")),
            ("hog", tool("", "taken", &hog)),
        ];
        for (name, wasm) in guests {
            let driver = Driver::wasm(Arc::new(tier.tool(&wasm, Digest::compute(&wasm))?));
            kernel = kernel.driven(spec(name), driver);
        }
        Ok(with_host_tools(kernel))
    }

    fn call(&self, task: &Task<'_>) -> Option<Op> {
        Some(match task {
            Task::Hello => run("same", json!({"say": "hello"})),
            Task::Fail => run("fail", json!({})),
            Task::Connect(port) => run("connect", json!({"url": format!("http://127.0.0.1:{port}/")})),
            Task::Touch(file) => run("touch", json!({"path": file.display().to_string()})),
            Task::Flood => run("flood", json!({})),
            Task::Hang => run("hang", json!({})),
            Task::Hog => run("hog", json!({})),
            // There is no environment and no descriptor to name, and nothing that could outlive the call: see `adv_031_…`.
            Task::Inherited | Task::Linger(_) => return None,
        })
    }
}

#[tokio::test]
async fn the_wasm_tier_passes_the_executors_exam() {
    let failed = executor_contract(&Guests).await.unwrap();
    assert_eq!(failed, Vec::<String>::new());
}

/// A sandbox starts as a copy of this process, which by then has a pool of guests and handlers for their traps in it.
#[tokio::test]
async fn programs_and_guests_live_in_one_kernel() {
    let traps = tool("", "", "unreachable");
    let world = WasmFixture::with(ALLOW_ALL, &[("same", echo()), ("traps", traps)], |builder| {
        builder.process(Arc::new(ProcessTier::new(Floor::LandlockSeccomp)))
    })
    .await;
    for _ in 0..3 {
        assert_eq!(world.said("same", json!({})).await, Ok("{}".to_owned()));
        assert!(world.said("traps", json!({})).await.unwrap_err().starts_with("wasm.trap: "));
        let program = json!({"argv": ["/bin/sh", "-c", "echo from a sandbox"]});
        assert_eq!(world.said("process.exec", program).await, Ok("from a sandbox\n".to_owned()));
    }
}

const PROGRAM: &str = r#"
use std::io::Read;
fn main() {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).unwrap();
    eprintln!("to the log");
    let seen: std::collections::HashMap<_, _> = [("a", 1)].into();
    let slept = { let t = std::time::Instant::now(); std::thread::sleep(std::time::Duration::from_millis(5)); t.elapsed() };
    println!("{input} {} {} {} {}", seen.len(), std::env::args().count(), std::env::vars().count(), slept.as_millis() >= 5);
    println!("{} {}", std::fs::read("/etc/passwd").is_err(), std::fs::read_dir(".").is_err());
    let _ = std::time::SystemTime::now();
    if input.contains("leave") { std::process::exit(3) }
    if input.contains("connect") { println!("{}", std::net::TcpStream::connect("127.0.0.1:1").is_ok()) }
}
"#;

/// A plain program of the target `wasm32-wasip2`, if Rust can make one here.
#[expect(clippy::disallowed_methods, reason = "the test needs a compiler, not a tool of an agent")]
fn program() -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (source, made) = (folder.path().join("program.rs"), folder.path().join("program.wasm"));
    std::fs::write(&source, PROGRAM).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let built = std::process::Command::new(rustc)
        .args(["--edition=2024", "--target=wasm32-wasip2", "-Copt-level=1", "-Cstrip=symbols", "-o"])
        .args([&made, &source])
        .output();
    match built {
        Ok(built) if built.status.success() => Some(std::fs::read(made).unwrap()),
        Ok(_) | Err(_) => None,
    }
}

#[tokio::test]
async fn a_program_that_rust_made_runs_on_a_machine_with_nothing_in_it() {
    let Some(program) = program() else {
        crate::skip::skipped("wasip2-target", "rustc lacks the target wasm32-wasip2");
        return;
    };
    let world = WasmFixture::new(ALLOW_ALL, &[("program", program)]).await;
    let outcome = world.outcome("program", json!({})).await;
    assert_eq!(outcome.output.text(), "{} 1 0 0 true\ntrue true\nto the log\n");
    assert_eq!(outcome.obtained.unwrap()["world"], "command");
    let said = world.said("program", json!({"do": "leave"})).await.unwrap_err();
    assert!(said.contains("code"), "{said}");
    let said = world.said("program", json!({"do": "connect"})).await.unwrap_err();
    assert!(said.starts_with("wasm.import: ") && said.contains("wasi:sockets"), "{said}");
}
