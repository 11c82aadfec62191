//! What the broker adds to a request: the same request, on a connection of its own, to a server on loopback: directly, and through the
//! broker, in turns. The client stands where a program would, at a listener that the broker serves with the permit of a running call.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use regent_egress::{Broker, Network};
use regent_kernel::{
    BoxFuture, Catalogue, Driver, DriverKind, ExecuteError, Executor, Executors, Host, NoSecrets, Op, Parts,
    Permit, RawOutput, Reply, SideEffect, SystemClock, Tier, ToolCall, ToolSet, ToolSpec, Workspace, tier,
};
use regent_ledger::{Ledger, LedgerKey, Options};
use regent_policy::{Layer, Source};
use regent_store::MemoryState;
use serde_json::json;

use crate::measure::median;
use crate::report::Report;

const ROUNDS: usize = 1_000;
const POLICY: &str = r#"
version: 1
rules:
  - { id: no-secrets, effect: deny, match: { path: "**/.ssh/**" } }
  - { id: metadata, effect: deny, match: { host: [169.254.169.254, metadata.google.internal] } }
  - { id: program, effect: allow, match: { tool: program } }
  - { id: reads, effect: allow, match: { tool: net.request, host: 127.0.0.1, method: GET } }
"#;

/// `broker.*`.
pub fn measure(report: &mut Report) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let memory = Ledger::in_memory(LedgerKey::generate()?);
    let (direct, through) = runtime.block_on(compare(&folder.path().join("memory"), memory))?;
    report.figure("broker.request.direct", direct, "ms");
    report.figure("broker.request.through", through, "ms");
    report.figure("broker.request.added", through - direct, "ms");
    let durable = Ledger::open(&folder.path().join("audit"), LedgerKey::generate()?, Options::default())?;
    let (direct, through) = runtime.block_on(compare(&folder.path().join("durable"), durable))?;
    report.figure("broker.request.durable.added", through - direct, "ms");
    Ok(())
}

/// Medians in milliseconds.
async fn compare(folder: &Path, ledger: Ledger) -> Result<(f64, f64)> {
    std::fs::create_dir(folder)?;
    let server = serve_hello()?;
    let network = Network { allow_private: vec![server.to_string()], ..Network::default() };
    let broker = Broker::new(network, folder);
    let catalogue = Catalogue::default();
    let client = Client { broker: broker.clone(), server };
    let tools = ToolSet::new("built-in").with(program(), Driver::process(Some(Arc::new(client)), None));
    let tools = broker.tools().into_iter().fold(tools, |set, (spec, driver)| set.with(spec, driver));
    catalogue.admit_own(tools)?;
    let kernel = Host::boot(Parts {
        policy: regent_policy::load(POLICY, &Source::new("bench", Layer::User))?,
        ledger,
        executors: Executors::default(),
        catalogue,
        workspace: Workspace::open(folder)?,
        state: Arc::new(MemoryState::default()),
        secrets: Arc::new(NoSecrets),
        clock: Arc::new(SystemClock::default()),
        sponsor: "bench".to_owned(),
        session: "bench".to_owned(),
    })
    .await?;
    let op = Op::RunTool(ToolCall { tool: "program".to_owned(), args: json!({}) });
    let Reply::Done(outcome) = kernel.syscall(&kernel.operator(), op).await? else {
        return Err(anyhow!("the program was not allowed"));
    };
    let medians: (f64, f64) = serde_json::from_slice(outcome.output.bytes())?;
    kernel.shutdown().await?;
    Ok(medians)
}

fn program() -> ToolSpec {
    ToolSpec {
        name: "program".to_owned(),
        description: "Makes requests.".to_owned(),
        input: json!({"type": "object"}),
        arguments: BTreeMap::new(),
        capabilities: Vec::new(),
        effect: SideEffect::Network,
        idempotent: false,
        reversible: false,
        driver: DriverKind::Process,
        tiers: vec![Tier::Process],
        output: ToolSpec::UNKNOWN_OUTPUT,
        ..ToolSpec::default()
    }
}

/// Stands for a program.
struct Client {
    broker: Broker,
    server: SocketAddr,
}

impl Executor<tier::Process> for Client {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            let broke = |error: std::io::Error| ExecuteError::Broken(error.to_string());
            let listener = TcpListener::bind("127.0.0.1:0").map_err(broke)?;
            let (proxy, server) = (listener.local_addr().map_err(broke)?, self.server);
            let program = tokio::task::spawn_blocking(move || requests(server, proxy));
            let medians = tokio::select! {
                medians = program => medians.map_err(|error| ExecuteError::Broken(error.to_string()))?,
                () = self.broker.serve(listener, &permit) => return Err(ExecuteError::Broken("no broker".to_owned())),
            };
            medians
                .map(|medians| RawOutput::json(&json!(medians)))
                .map_err(|error| ExecuteError::Broken(error.to_string()))
        })
    }
}

fn requests(server: SocketAddr, proxy: SocketAddr) -> Result<(f64, f64)> {
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + 50 {
        let (one, two) =
            (request(server, "/", server)?, request(proxy, &format!("http://{server}/"), server)?);
        // The first ones warm up.
        if round >= 50 {
            direct.push(one);
            through.push(two);
        }
    }
    Ok((median(direct), median(through)))
}

fn request(to: SocketAddr, target: &str, host: SocketAddr) -> Result<f64> {
    let started = Instant::now();
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.write_all(
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let took_ms = started.elapsed().as_secs_f64() * 1e3;
    ensure!(answer.ends_with(b"hello"), "the answer is {}", String::from_utf8_lossy(&answer));
    Ok(took_ms)
}

/// A server with one thread. It lives as long as the process.
fn serve_hello() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            let mut piece = [0; 1024];
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut piece) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => head.extend_from_slice(&piece[..count]),
                }
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello").ok();
        }
    });
    Ok(address)
}
