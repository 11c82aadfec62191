//! What a call to a model costs beside the model, and what the scheduler does to short calls among long ones.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use regent_kernel::{
    Catalogue, Executors, Inference, Host, Message, Models, NoSecrets, Op, Parts, Priority, Reply, Role, Sampling,
    Status, SystemClock, Workspace,
};
use regent_ledger::{Ledger, LedgerKey};
use regent_models::scheduler::Fair;
use regent_models::{Hub, Settings};
use regent_policy::{Layer, Source};
use regent_store::MemoryState;

use crate::local;
use crate::measure::median;
use crate::report::Report;

const POLICY: &str = "version: 1\nrules:\n  - { id: think, effect: allow, match: { op: model.infer } }\n";
/// Pieces that an answer comes in.
const PIECES: usize = 50;
const ROUNDS: usize = 400;

/// `provider.*` and `scheduler.mixed.*`.
pub fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let at = serve()?;
    let (bare_ms, call_ms) = runtime.block_on(overhead(&at))?;
    report.figure("provider.exchange", bare_ms, "ms");
    report.figure("provider.call", call_ms, "ms");
    report.figure("provider.overhead", (call_ms - bare_ms).max(0.0), "ms");
    let (first_in_first_out, fair) = (mixed(Order::FirstInFirstOut), mixed(Order::Fair));
    report.figure("scheduler.fifo.short.p95", first_in_first_out, "ms");
    report.figure("scheduler.mixed.short.p95", fair, "ms");
    report.figure("scheduler.mixed", first_in_first_out / fair, "x");
    local::measure(report)
}

/// A server that gives the same streamed answer to everybody.
fn serve() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let at = listener.local_addr()?.to_string();
    let piece = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"}}]}\n\n";
    let end = "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
               data: {\"choices\":[],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":50}}\n\ndata: [DONE]\n\n";
    let body = format!("{}{end}", piece.repeat(PIECES));
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that goes away early is its own loss.
            drop(exchange(stream, answer.as_bytes()));
        }
    });
    Ok(at)
}

fn exchange(mut stream: TcpStream, answer: &[u8]) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 8192];
    loop {
        let count = stream.read(&mut piece)?;
        request.extend_from_slice(piece.get(..count).unwrap_or_default());
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if count == 0 || body.len() >= length.unwrap_or(0) {
            return stream.write_all(answer);
        }
    }
}

/// Milliseconds of a bare exchange over a socket, and of the same through the kernel, streamed; measured in turns.
async fn overhead(at: &str) -> Result<(f64, f64)> {
    let folder = tempfile::tempdir()?;
    let text = format!("[models.m]\nkind = 'compatible'\nurl = 'http://{at}'\nmodels = ['x']\n");
    let hub = Hub::from_settings(Settings::parse(&text)?, None, Arc::new(SystemClock::default()))?;
    let kernel = Host::boot(Parts {
        policy: regent_policy::load(POLICY, &Source::new("bench", Layer::User)).map_err(|error| anyhow!("{error:?}"))?,
        ledger: Ledger::in_memory(LedgerKey::generate()?),
        executors: Executors {
            models: Some(Arc::new(hub) as Arc<dyn Models>),
            ..Executors::default()
        },
        catalogue: Catalogue::default(),
        workspace: Workspace::open(folder.path())?,
        state: Arc::new(MemoryState::default()),
        secrets: Arc::new(NoSecrets),
        clock: Arc::new(SystemClock::default()),
        sponsor: "bench".to_owned(),
        session: "bench".to_owned(),
    })
    .await?;
    let (at, mut bare, mut calls) = (at.to_owned(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let other_side = at.clone();
        tokio::task::spawn_blocking(move || bare_exchange(&other_side)).await??;
        bare.push(started.elapsed().as_secs_f64() * 1e3);
        let started = Instant::now();
        streamed(&kernel).await?;
        calls.push(started.elapsed().as_secs_f64() * 1e3);
    }
    Ok((median(bare), median(calls)))
}

fn bare_exchange(at: &str) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    stream.write_all(b"POST /chat/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}")?;
    stream.read_to_end(&mut Vec::new())
}

async fn streamed(kernel: &Host) -> Result<()> {
    let text = "Say fifty words.".to_owned();
    let inference = Inference {
        model: "m/x".to_owned(),
        messages: vec![Message::new(Role::User, text)],
        tools: Vec::new(),
        tokens_max: 100,
        sampling: Sampling::default(),
    };
    let mut stream = kernel.stream(&kernel.operator(), Op::Infer(inference));
    let mut bytes = 0;
    while let Some(chunk) = stream.next().await {
        bytes += chunk.output.bytes().len();
    }
    let Reply::Done(outcome) = stream.reply().await? else { return Err(anyhow!("not done")) };
    ensure!(outcome.status == Status::Ok && bytes == PIECES * 5, "{:?}, {bytes} bytes", outcome.status);
    Ok(())
}

#[derive(Clone, Copy, PartialEq)]
enum Order {
    FirstInFirstOut,
    Fair,
}

struct Job {
    arrives_ms: u64,
    tokens: u64,
    agent: &'static str,
    is_short: bool,
}

/// The 95th percentile, in simulated milliseconds, of how long short calls take from arrival to answer among long ones. Two calls run
/// at once at 100 tokens a second; four agents keep the provider about nine tenths busy with long answers, one asks short questions.
fn mixed(order: Order) -> f64 {
    let mut jobs = arrivals();
    jobs.sort_by_key(|job| job.arrives_ms);
    let mut fair = Fair::default();
    let mut line = VecDeque::new();
    let mut ends: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut short = Vec::new();
    let (mut next, mut now) = (0, 0);
    loop {
        while let Some(job) = jobs.get(next).filter(|job| job.arrives_ms <= now) {
            match order {
                Order::FirstInFirstOut => line.push_back(next),
                Order::Fair => fair.push(job.agent, 1, Priority::Normal, job.tokens, next),
            }
            next += 1;
        }
        while ends.peek().is_some_and(|Reverse(end)| *end <= now) {
            ends.pop();
        }
        while ends.len() < 2 {
            let popped = match order {
                Order::FirstInFirstOut => line.pop_front(),
                Order::Fair => fair.pop().map(|(_, at)| at),
            };
            let Some(job) = popped.and_then(|at: usize| jobs.get(at)) else { break };
            let end = now + job.tokens * 10;
            ends.push(Reverse(end));
            if job.is_short {
                short.push((end - job.arrives_ms) as f64);
            }
        }
        let arrival = jobs.get(next).map(|job| job.arrives_ms);
        let end = ends.peek().map(|Reverse(end)| *end);
        match arrival.into_iter().chain(end).min() {
            Some(then) => now = then,
            None => break,
        }
    }
    short.sort_by(f64::total_cmp);
    short.get(short.len() * 95 / 100).copied().unwrap_or(f64::NAN)
}

fn arrivals() -> Vec<Job> {
    // The same numbers each time: a linear congruential generator.
    let mut state = 42_u64;
    let mut draw = move |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let mut jobs = Vec::new();
    for agent in ["a", "b", "c", "d"] {
        let mut at = 0;
        for _ in 0..500 {
            // About 20 s of work every 47 s from each of four agents, on two places: nine tenths busy, in bursts.
            at += draw(94_000);
            jobs.push(Job { arrives_ms: at, tokens: 1_000 + draw(2_000), agent, is_short: false });
        }
    }
    let mut at = 0;
    for _ in 0..4_000 {
        at += draw(11_000);
        jobs.push(Job { arrives_ms: at, tokens: 20 + draw(60), agent: "short", is_short: true });
    }
    jobs
}
