//! The recorder and the servers behind it: each listens on loopback, and ends with us.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::machine::{capture, command, free_port, node_with, python_with, wait_until_it_listens};
use crate::root;

/// The vendors' own packages, for their types.
const TYPES: &[&str] =
    &["openai==3.51.0", "anthropic==2.10.0", "google-genai==3.3.0", "ollama==0.6.3", "pydantic==2.14.3"];
const LITELLM: &[&str] = &["litellm[proxy]==1.106.2"];
const AIMOCK: &str = "@copilotkit/aimock@1.43.0";

/// The recorder, aimock and LiteLLM.
pub(super) struct Servers {
    folder: tempfile::TempDir,
    recorder: Server,
    _aimock: Server,
    _litellm: Server,
}

/// One request, as the recorder noted it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) run: String,
    pub(super) wire: String,
    /// Of the answer; 0 if there was none.
    pub(super) status: u64,
    /// What the vendor's types have against the request.
    pub(super) findings: Vec<String>,
    pub(super) refusal: String,
}

struct Server {
    child: Child,
    port: u16,
}

impl Servers {
    pub(super) fn start() -> Result<Self> {
        let types = python_with("vendors", &["openai", "ollama"], TYPES)?;
        let litellm = python_with("litellm", &["uvicorn"], LITELLM)?;
        let npm = node_with("aimock", AIMOCK)?;
        let folder = tempfile::Builder::new().prefix("regent-peers-").tempdir()?;
        let ours = root().join("xtask/peers");
        let [recorder_port, aimock_port, litellm_port] = [free_port()?, free_port()?, free_port()?];
        let at = |port: u16| format!("http://127.0.0.1:{port}");
        let key = key()?;

        let mut recorder = quiet("recorder", &types.display().to_string(), folder.path())?;
        recorder.arg(ours.join("recorder.py")).args(["--port", &recorder_port.to_string(), "--log"]);
        recorder.arg(log(folder.path()));
        recorder.args(["--target", &format!("aimock={}", at(aimock_port))]);
        recorder.args(["--target", &format!("litellm={}", at(litellm_port))]).env("KEY_LITELLM", &key);

        let mut aimock = quiet("aimock", "node", folder.path())?;
        aimock.arg(ours.join("aimock.mjs")).arg(npm).arg(aimock_port.to_string());

        let mut proxy =
            quiet("litellm", &litellm.with_file_name("litellm").display().to_string(), folder.path())?;
        proxy.arg("--config").arg(ours.join("litellm.yaml")).args(["--host", "127.0.0.1"]);
        proxy.args(["--port", &litellm_port.to_string(), "--num_workers", "1"]);
        proxy.env("LITELLM_MASTER_KEY", &key).envs(OFFLINE.iter().copied());
        // Whatever is not on loopback goes to the recorder, which refuses it and notes it.
        proxy.env("HTTP_PROXY", at(recorder_port)).env("HTTPS_PROXY", at(recorder_port));
        proxy.env("BACKEND_OPENAI", format!("{}/v1", at(aimock_port)));
        // As these vendors: their thoughts, with signatures, must survive LiteLLM. And aimock doesn't understand LiteLLM's Gemini.
        proxy.env("BACKEND_ANTHROPIC", format!("{}/litellm/anthropic/backend", at(recorder_port)));
        proxy.env("BACKEND_GEMINI", format!("{}/litellm/gemini/backend/v1beta", at(recorder_port)));

        // All at once: LiteLLM takes the longest. Dropping a server ends it, also when a later one doesn't start.
        let recorder = Server::start(recorder, recorder_port)?;
        let aimock = Server::start(aimock, aimock_port)?;
        let litellm = Server::start(proxy, litellm_port)?;
        for (name, server) in [("recorder", &recorder), ("aimock", &aimock), ("litellm", &litellm)] {
            wait_until_it_listens(name, server.port, &folder.path().join(format!("{name}.log")))?;
        }
        Ok(Self { folder, recorder, _aimock: aimock, _litellm: litellm })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The recorder's address.
    pub(super) fn recorder(&self) -> String {
        format!("http://127.0.0.1:{}", self.recorder.port)
    }

    /// The requests of a run so far.
    pub(super) fn records(&self, run: &str) -> Result<Vec<Record>> {
        let text = std::fs::read_to_string(log(self.folder.path())).context("the recorder's log")?;
        Ok(records(&text)?.into_iter().filter(|record| record.run == run).collect())
    }

    /// Asks LiteLLM's chat completions under a name in the log, without Regent; returns the answer's text.
    pub(super) fn ask(&self, name: &str, body: &str) -> Result<String> {
        let url = format!("{}/{name}/chat/litellm/v1/chat/completions", self.recorder());
        let mut curl = command("curl");
        curl.args(["--silent", "--show-error", "--max-time", "60", "--noproxy", "*"]);
        curl.args(["--header", "content-type: application/json", "--data", body, &url]);
        Ok(String::from_utf8_lossy(&capture(&mut curl, "curl")?.stdout).into_owned())
    }

    /// Copies what the servers and tasks have left to where it outlives them.
    pub(super) fn keep(&self) -> PathBuf {
        let kept = crate::machine::target().join("peers");
        std::fs::remove_dir_all(&kept).ok();
        let mut copy = command("cp");
        copy.args(["-r", "--"]).arg(self.folder.path()).arg(&kept);
        match capture(&mut copy, "cp") {
            Ok(output) if output.status.success() => kept,
            Ok(_) | Err(_) => self.folder.path().to_owned(),
        }
    }
}

/// LiteLLM without price maps, telemetry and the like from elsewhere.
const OFFLINE: &[(&str, &str)] = &[
    ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
    ("LITELLM_TELEMETRY", "False"),
    ("NO_PROXY", "127.0.0.1,localhost"),
    ("DISABLE_ADMIN_UI", "True"),
];

fn log(folder: &Path) -> PathBuf {
    folder.join("requests.jsonl")
}

/// A key for LiteLLM that no one else knows. It doesn't start without.
fn key() -> Result<String> {
    use std::io::Read as _;
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold("sk-".to_owned(), |key, byte| format!("{key}{byte:02x}")))
}

/// A program without anything of ours in its environment, that says what it says into a file.
fn quiet(name: &str, program: &str, folder: &Path) -> Result<Command> {
    let log = std::fs::File::create(folder.join(format!("{name}.log")))?;
    let mut quiet = command(program);
    quiet.current_dir(folder).env_clear().stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    quiet.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", folder);
    quiet.env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(quiet)
}

fn records(text: &str) -> Result<Vec<Record>> {
    let record = |line: &str| {
        let value: Value =
            serde_json::from_str(line).with_context(|| format!("the recorder wrote `{line}`"))?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let findings = value.get("findings").and_then(Value::as_array).context("a line without findings")?;
        Ok(Record {
            run: text("run"),
            wire: text("wire"),
            status: value.get("status").and_then(Value::as_u64).context("a line without a status")?,
            findings: findings.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            refusal: text("refusal"),
        })
    };
    // Another thread's run may be in the middle of a line.
    text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(record).collect()
}

impl Record {
    pub(super) fn is_refused(&self) -> bool {
        !(200..300).contains(&self.status)
    }
}

impl Server {
    fn start(mut command: Command, port: u16) -> Result<Self> {
        let child = command.spawn().context("a server can't be started")?;
        Ok(Self { child, port })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

#[cfg(test)]
mod tests {
    //! The log is read as it was written.

    use super::*;

    #[test]
    fn reads_whole_lines_and_refuses_others() {
        let one = "{\"run\":\"a\",\"wire\":\"chat\",\"status\":400,\"findings\":[\"x\"],\"refusal\":\"no\",\"body\":{}}\n";
        let half = &one[..20];
        let read = records(&format!("{one}{half}")).unwrap();
        let record = Record {
            run: "a".to_owned(),
            wire: "chat".to_owned(),
            status: 400,
            findings: vec!["x".to_owned()],
            refusal: "no".to_owned(),
        };
        assert_eq!(read, [record]);
        assert!(read[0].is_refused());
        for broken in ["no json\n", "{\"run\":\"a\"}\n", "{\"run\":\"a\",\"findings\":[]}\n"] {
            assert!(records(broken).is_err(), "{broken}");
        }
    }
}
