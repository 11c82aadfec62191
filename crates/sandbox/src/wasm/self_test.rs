//! Whether the tier works here: a built-in guest is run with every door shut.

use std::sync::Arc;
use std::time::{Duration, Instant};

use regent_kernel::{Clock, Digest, Fault, Limits, Suspension, SystemClock};

use super::machine::WasmMachine;
use super::run::{GuestEnd, WasmJob, run};
use super::{WasmConfig, WasmError};
use crate::Finding;

/// A component of the world `tool` that gives back what it gets; made from `hello.wat` beside it.
const HELLO: &[u8] = include_bytes!("hello.wasm");
const LIMITS: Limits = Limits {
    wall_ms_max: 1_000,
    cpu_ms_max: 100,
    output_bytes_max: 1_000,
    memory_bytes_max: 1 << 20,
    pids_max: 0,
    open_files_max: 0,
    file_bytes_max: 0,
    tmp_bytes_max: 0,
};

/// Whether the tier works here, in words.
pub async fn finding() -> Finding {
    let name = "wasm tier";
    match self_test(1).await {
        Ok(tested) => {
            let run_us = tested.runs.iter().map(Duration::as_micros).max().unwrap_or(0);
            let says =
                format!("a guest was compiled in {} µs and ran in {run_us} µs", tested.compile.as_micros());
            Finding { name, ok: true, says, fix: None }
        }
        Err(error) => {
            let fix = matches!(error, WasmError::Unavailable(_)).then(|| "check `ulimit -v`".to_owned());
            Finding { name, ok: false, says: error.to_string(), fix }
        }
    }
}

/// The result of a self-test.
#[derive(Debug, Clone)]
pub struct SelfTest {
    /// How long the compiler took.
    pub compile: Duration,
    /// How long each run took: a fresh instance, one call, and everything thrown away.
    pub runs: Vec<Duration>,
}

/// Compiles the built-in guest and runs it this many times. It can't reach anything: there is no permit behind its door.
pub async fn self_test(rounds: usize) -> Result<SelfTest, WasmError> {
    let machine = WasmMachine::new(&WasmConfig { guests_max: 2, ..WasmConfig::default() })?;
    let began = Instant::now();
    let compiled = machine.compiled(HELLO, Digest::compute(HELLO))?;
    let compile = began.elapsed();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let mut runs = Vec::new();
    for _ in 0..rounds {
        let input = "hello".to_owned();
        let began = Instant::now();
        let job = WasmJob {
            compiled: &compiled,
            source: None,
            tool: "hello",
            input,
            limits: LIMITS,
            clock: &clock,
        };
        let shut = |_op| {
            let none: super::door::NestedReply = Err(Fault::NotRunning("this is a self test".to_owned()));
            Box::pin(std::future::ready(none)) as regent_kernel::BoxFuture<'static, _>
        };
        let ran = run(&machine, job, shut, std::future::pending(), Suspension::default()).await;
        runs.push(began.elapsed());
        match ran.map_err(|error| WasmError::Broken(error.to_string()))?.how {
            GuestEnd::Said(Ok(text)) if text == "hello" => {}
            GuestEnd::Said(said) => {
                return Err(WasmError::Broken(format!("it returned {said:?} instead of `hello`")));
            }
            GuestEnd::Trapped(error) => return Err(WasmError::Broken(error.to_string())),
            GuestEnd::Stopped => return Err(WasmError::Broken("the call was stopped".to_owned())),
        }
    }
    Ok(SelfTest { compile, runs })
}
