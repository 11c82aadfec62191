//! What the WASM tier costs: a fresh guest for every call, and a guest's nested call.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use regent_kernel::{Digest, Driver, DriverKind, Outcome, Reply, Status, Tier, ToolSpec};
use regent_sandbox::wasm::{WasmConfig, WasmTier, self_test};
use regent_testkit::{TestKernel, run, spec};
use serde_json::json;

use crate::measure::median;
use crate::report::Report;

const ROUNDS: usize = 5_000;
const ROUNDS_TOGETHER: usize = 60;
/// Calls that one guest makes, so that what the guest itself costs doesn't count.
const CALLS: usize = 1_000;

/// Calls the tool `noop` a thousand times.
const CALLER: &str = r#"(component
  (import "regent:host/tools@0.1.0" (instance $tools
    (type $failure (record (field "code" string) (field "message" string)))
    (export "failure" (type $named (eq $failure)))
    (export "call" (func (param "name" string) (param "args" string) (result (result string (error $named)))))))
  (core module $libc
    (memory (export "memory") 1)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 2048))
  (core instance $libc (instantiate $libc))
  (core func $call
    (canon lower (func $tools "call") (memory $libc "memory") (realloc (func $libc "realloc"))))
  (core module $guest
    (import "libc" "memory" (memory 1))
    (import "host" "call" (func $call (param i32 i32 i32 i32 i32)))
    (data (i32.const 64) "noop{}")
    (func (export "run") (param i32 i32) (result i32)
      (local $i i32)
      (loop $again
        (call $call (i32.const 64) (i32.const 4) (i32.const 68) (i32.const 2) (i32.const 1024))
        (if (i32.load8_u (i32.const 1024)) (then unreachable))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $again (i32.lt_u (local.get $i) (i32.const 1000))))
      (i32.store (i32.const 16) (i32.const 0))
      (i32.store (i32.const 20) (i32.const 0))
      (i32.store (i32.const 24) (i32.const 0))
      (i32.const 16)))
  (core instance $guest (instantiate $guest
    (with "libc" (instance $libc))
    (with "host" (instance (export "call" (func $call))))))
  (func (export "run") (param "input" string) (result (result string (error string)))
    (canon lift (core func $guest "run") (memory $libc "memory") (realloc (func $libc "realloc")))))"#;

/// `wasm.*`.
pub fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let tested = runtime.block_on(runtime.spawn(self_test(ROUNDS)))??;
    let runs = tested.runs.iter().map(|took| took.as_secs_f64() * 1e6);
    report.figure("wasm.compile", tested.compile.as_secs_f64() * 1e3, "ms");
    report.figure("wasm.instantiate_call", median(runs.collect()), "us");
    let (plain_us, guest_us) = runtime.block_on(runtime.spawn(host_calls()))??;
    report.figure("wasm.host_call.path", plain_us, "us");
    report.figure("wasm.host_call.whole", guest_us, "us");
    report.figure("wasm.host_call", (guest_us - plain_us).max(0.0), "us");
    Ok(())
}

/// What a call costs that another tool makes, and one that a guest makes: the difference is the way through the door. In turns.
async fn host_calls() -> Result<(f64, f64)> {
    let tier = Arc::new(WasmTier::new(WasmConfig::default()));
    let caller = wat::parse_str(CALLER)?;
    let driver = Driver::wasm(Arc::new(tier.tool(&caller, Digest::compute(&caller))?));
    let declared = ToolSpec { driver: DriverKind::Wasm, tiers: vec![Tier::Wasm], ..spec("caller") };
    let builder = TestKernel::builder().driven(declared, driver);
    let kernel = builder.boot().await.map_err(|error| anyhow!(error))?;
    let (mut plain, mut guest) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS_TOGETHER {
        let started = Instant::now();
        for _ in 0..CALLS {
            done(kernel.call(run("noop", json!({}))).await?)?;
        }
        plain.push(started.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
        let started = Instant::now();
        done(kernel.call(run("caller", json!({}))).await?)?;
        guest.push(started.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
    }
    Ok((median(plain), median(guest)))
}

fn done(reply: Reply) -> Result<Outcome> {
    let Reply::Done(outcome) = reply else { return Err(anyhow!("it was not done: {reply:?}")) };
    ensure!(outcome.status == Status::Ok, "it ended with {:?}", outcome.status);
    Ok(outcome)
}
