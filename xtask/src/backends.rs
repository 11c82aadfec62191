//! The backends of the state against their real servers, on loopback and in a folder of their own: the contract, servers that are killed, and
//! the program on them.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::machine::{
    capture, cargo, cargo_with, command, finish, free_port, has, is_root, python_with, target,
    wait_until_it_listens,
};
use crate::say;

/// The user that Debian calls `nobody`: Postgres refuses to run as root.
const ORDINARY_ID: u32 = 65_534;
const FEATURES: &str = "postgres,redis,dynamodb";
/// Steps of an outage, and after how many the server is killed each time.
const STEPS: u64 = 10_000;
const KILLED_EVERY: u64 = 1_000;
/// How long a server may take to start.
const START: Duration = Duration::from_secs(60);
/// PyPI packages of DynamoDB's emulator.
const EMULATOR: &[&str] = &["moto[server,dynamodb]==5.2.5"];
/// The emulator's transactions are not atomic between its threads, so it gets one.
const SERIAL: &str = "\
import sys
from werkzeug.serving import run_simple
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
run_simple('127.0.0.1', int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=False)
";

const USAGE: &str = "there is `contract`, `outage`, `product` and `figures`";

/// Runs the parts named, or the contract and the outages.
pub(crate) fn run(parts: &[String]) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("regent-backends-").tempdir()?;
    if is_root()? {
        chown(folder.path(), Some(ORDINARY_ID), Some(ORDINARY_ID))?;
    }
    let mut servers = Servers::start(folder.path())?;
    let named: Vec<&str> = parts.iter().map(String::as_str).collect();
    for part in if named.is_empty() { vec!["contract", "outage", "product"] } else { named } {
        match part {
            "contract" => contract(&servers)?,
            "outage" => {
                outage(&mut servers.postgres)?;
                outage(&mut servers.redis)?;
            }
            "product" => product(folder.path())?,
            "figures" => figures(&servers, folder.path())?,
            _ => bail!(USAGE),
        }
    }
    Ok(())
}

/// What CI runs.
pub(crate) fn check() -> Result<()> {
    run(&[])
}

fn contract(servers: &Servers) -> Result<()> {
    let Servers { postgres, redis, dynamodb } = servers;
    let environment = [
        ("REGENT_STATE_SERVERS", "all"),
        ("REGENT_TEST_POSTGRES", &postgres.url),
        ("REGENT_TEST_REDIS", &redis.url),
        ("REGENT_TEST_DYNAMODB", &dynamodb.url),
    ];
    let lints = ["clippy", "-p", "regent-store", "--locked", "--all-targets", "--features", FEATURES];
    cargo(&[&lints[..], &["--", "-D", "warnings"]].concat())?;
    cargo_with(&["test", "--quiet", "-p", "regent-store", "--locked", "--features", FEATURES], &environment)
}

/// The program that takes steps and measures. Figures are those of an optimised build.
fn program(profile: &str) -> Result<PathBuf> {
    let mut arguments = vec![
        "build",
        "--quiet",
        "-p",
        "regent-store",
        "--locked",
        "--features",
        FEATURES,
        "--example",
        "backends",
    ];
    if profile == "release" {
        arguments.push("--release");
    }
    cargo(&arguments)?;
    Ok(target().join(profile).join("examples/backends"))
}

/// Kills the server again and again while steps are taken. The program checks the history.
fn outage(server: &mut Server) -> Result<()> {
    let program = program("debug")?;
    let mut client = command(&program.to_string_lossy());
    client
        .args(["outage", &STEPS.to_string()])
        .env("REGENT_TEST_STATE", format!("{}{}namespace=outage", server.url, server.separator()));
    let mut client =
        client.stdout(Stdio::piped()).spawn().context("the program of the outage can't be started")?;
    let output = client.stdout.take().context("it has no output")?;
    let (mut kills, mut next) = (0, KILLED_EVERY);
    for line in BufReader::new(output).lines() {
        let line = line?;
        match line.strip_prefix("progress ").and_then(|count| count.parse::<u64>().ok()) {
            Some(count) if count >= next && count < STEPS => {
                server.kill_and_start()?;
                kills += 1;
                next = count + KILLED_EVERY;
            }
            Some(_) => {}
            None => say(format!("{}: {line}", server.name)),
        }
    }
    let status = client.wait()?;
    if !status.success() {
        bail!("{} lost or halved a step", server.name);
    }
    say(format!("{}: killed {kills} times with SIGKILL", server.name));
    if kills < 5 {
        bail!("{} was killed {kills} times only", server.name)
    }
    Ok(())
}

/// Whether `regent` works on servers that its tests start and kill.
fn product(folder: &Path) -> Result<()> {
    let folder = folder.join("product");
    std::fs::create_dir(&folder)?;
    if is_root()? {
        chown(&folder, Some(ORDINARY_ID), Some(ORDINARY_ID))?;
    }
    let mut prepared = serde_json::Map::new();
    for mut server in [postgres(&folder)?, redis(&folder)?] {
        server.child.kill()?;
        server.child.wait()?;
        let described = serde_json::json!({
            "folder": folder, "line": ordinary_words(&server.line)?, "port": server.port,
            "url": server.url.replace("regent@", ""),
        });
        prepared.insert(server.name.to_owned(), described);
    }
    let lints = ["clippy", "-p", "regent", "--locked", "--all-targets", "--features", FEATURES];
    cargo(&[&lints[..], &["--", "-D", "warnings"]].concat())?;
    let prepared = serde_json::Value::Object(prepared).to_string();
    let tests =
        ["test", "--quiet", "-p", "regent", "--locked", "--features", FEATURES, "--test", "cli", "servers::"];
    cargo_with(&tests, &[("REGENT_TEST_SERVERS", &prepared)])
}

fn figures(servers: &Servers, folder: &Path) -> Result<()> {
    let program = program("release")?;
    let sqlite = format!("sqlite:{}", folder.join("figures.db").display());
    let named = [
        ("memory", "memory:"),
        ("sqlite", &sqlite),
        ("postgres", &servers.postgres.url),
        ("redis", &servers.redis.url),
    ];
    for (name, url) in named {
        let mut client = command(&program.to_string_lossy());
        finish(client.args(["figures", name]).env("REGENT_TEST_STATE", url), name)?;
    }
    Ok(())
}

/// All servers.
struct Servers {
    postgres: Server,
    redis: Server,
    dynamodb: Server,
}

/// A server that ends with us.
struct Server {
    name: &'static str,
    url: String,
    port: u16,
    line: Vec<String>,
    folder: PathBuf,
    child: Child,
}

impl Servers {
    fn start(folder: &Path) -> Result<Self> {
        Ok(Self { postgres: postgres(folder)?, redis: redis(folder)?, dynamodb: dynamodb(folder)? })
    }
}

fn postgres(folder: &Path) -> Result<Server> {
    let (programs, port) = (postgres_programs()?, free_port()?);
    let data = folder.join("postgres").display().to_string();
    let make = [programs.join("initdb").display().to_string(), "-D".to_owned(), data.clone()];
    let make = [&make[..], &["-A", "trust", "-U", "regent"].map(str::to_owned)].concat();
    let made = capture(&mut as_ordinary(&make, folder)?, "initdb")?;
    if !made.status.success() {
        bail!("initdb: {}", String::from_utf8_lossy(&made.stderr));
    }
    let line = [
        programs.join("postgres").display().to_string(),
        "-D".to_owned(),
        data,
        "-p".to_owned(),
        port.to_string(),
    ];
    let sockets = format!("unix_socket_directories={}", folder.display());
    let line =
        [&line[..], &["-c".to_owned(), "listen_addresses=127.0.0.1".to_owned(), "-c".to_owned(), sockets]]
            .concat();
    Server::start("postgres", format!("postgres://regent@127.0.0.1:{port}/postgres"), port, line, folder)
}

fn redis(folder: &Path) -> Result<Server> {
    let port = free_port()?;
    let words =
        ["redis-server", "--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""].map(str::to_owned);
    let durable = ["--appendonly", "yes", "--appendfsync", "always"].map(str::to_owned);
    Server::start("redis", format!("redis://127.0.0.1:{port}"), port, [&words[..], &durable].concat(), folder)
}

fn dynamodb(folder: &Path) -> Result<Server> {
    let (python, port) = (python_with("moto", &["moto.server", "flask"], EMULATOR)?, free_port()?);
    let line = [&python.display().to_string(), "-c", SERIAL, &port.to_string()];
    let url = format!("dynamodb://key:secret@us-east-1/regent?endpoint=http://127.0.0.1:{port}");
    Server::start("dynamodb", url, port, line.map(str::to_owned).to_vec(), folder)
}

/// Debian keeps the programs of Postgres away from PATH, by version.
fn postgres_programs() -> Result<PathBuf> {
    let root = Path::new("/usr/lib/postgresql");
    let mut versions: Vec<PathBuf> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    versions.sort();
    if let Some(newest) = versions.into_iter().rev().find(|folder| folder.join("initdb").is_file()) {
        return Ok(newest);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .find(|folder| folder.join("initdb").is_file())
        .context("there is no Postgres: `cargo xtask ci install`")
}

/// The words of a command that an ordinary user runs.
fn ordinary_words(line: &[String]) -> Result<Vec<String>> {
    let id = ORDINARY_ID.to_string();
    let drop_root = ["setpriv", "--reuid", &id, "--regid", &id, "--clear-groups", "--"].map(str::to_owned);
    // The emulator's environment is in the home of the user who runs this, and only listens.
    let is_hidden = line.first().is_some_and(|program| program.contains("regent-python"));
    Ok(if is_root()? && !is_hidden { [&drop_root[..], line].concat() } else { line.to_vec() })
}

/// The same in a folder of its own.
fn as_ordinary(line: &[String], folder: &Path) -> Result<Command> {
    let line = ordinary_words(line)?;
    let (program, arguments) = line.split_first().context("an empty line")?;
    if !program.contains('/') && !has(program) {
        bail!("there is no `{program}`: `cargo xtask ci install`");
    }
    let mut command = command(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    Ok(command)
}

impl Server {
    fn start(name: &'static str, url: String, port: u16, line: Vec<String>, folder: &Path) -> Result<Self> {
        let child = spawn(name, &line, folder)?;
        let server = Self { name, url, port, line, folder: folder.to_owned(), child };
        server.wait_until_it_listens()?;
        Ok(server)
    }

    fn separator(&self) -> char {
        if self.url.contains('?') { '&' } else { '?' }
    }

    /// SIGKILL, and the same again at the same place. A start that fails because the old one isn't quite gone is tried again.
    fn kill_and_start(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        let until = Instant::now() + START;
        loop {
            self.child = spawn(self.name, &self.line, &self.folder)?;
            std::thread::sleep(Duration::from_millis(200));
            match self.child.try_wait()? {
                None => return self.wait_until_it_listens(),
                Some(status) if Instant::now() > until => bail!("{} doesn't come back: {status}", self.name),
                Some(_) => {}
            }
        }
    }

    fn wait_until_it_listens(&self) -> Result<()> {
        wait_until_it_listens(self.name, self.port, &self.folder.join(format!("{}.log", self.name)))
    }
}

fn spawn(name: &str, line: &[String], folder: &Path) -> Result<Child> {
    let log = std::fs::File::options().create(true).append(true).open(folder.join(format!("{name}.log")))?;
    let mut command = as_ordinary(line, folder)?;
    command.stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("{name} can't be started"))
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
