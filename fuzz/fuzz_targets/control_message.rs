//! One request on the control socket, over the real socket to a real kernel that allows nothing but starting agents.
#![no_main]

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

use libfuzzer_sys::fuzz_target;
use regent_control as control;
use regent_testkit::TestKernel;

const POLICY: &str = "version: 1\nrules:\n  - { id: start, effect: allow, match: { op: agent.spawn } }\n";

struct Line {
    /// Where the kernel listens; it lives in threads of its own for as long as this does.
    path: std::path::PathBuf,
    stream: Option<BufReader<UnixStream>>,
}

thread_local! {
    static LINE: RefCell<Line> = RefCell::new(Line { path: start(), stream: None });
}

fn start() -> std::path::PathBuf {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder").keep();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).expect("for us alone");
    let (kernel, listening) = runtime.block_on(async {
        let kernel = TestKernel::builder().policy(POLICY).boot().await.expect("a kernel");
        let served = control::Served {
            kernel: kernel.kernel.kernel(),
            authenticator: kernel.kernel.authenticator(),
            workspace: kernel.kernel.workspace().root().to_owned(),
        };
        let listening = control::listen(served, &folder).await.expect("a socket");
        (kernel, listening)
    });
    let path = listening.path().to_path_buf();
    // They end with the process.
    std::mem::forget((runtime, kernel, listening));
    path
}

impl Line {
    /// Says one line and hears one, or hears that the other side has hung up.
    fn ask(&mut self, request: &[u8]) -> Option<String> {
        let path = &self.path;
        let stream = self.stream.get_or_insert_with(|| BufReader::new(UnixStream::connect(path).expect("it listens")));
        let said = stream.get_mut().write_all(request).and_then(|()| stream.get_mut().write_all(b"\n"));
        let mut answer = String::new();
        let heard = said.is_ok() && stream.read_line(&mut answer).is_ok_and(|bytes| bytes > 0);
        if !heard {
            self.stream = None;
        }
        heard.then_some(answer)
    }
}

fuzz_target!(|bytes: &[u8]| {
    if bytes.contains(&b'\n') || bytes.is_empty() {
        return;
    }
    LINE.with_borrow_mut(|line| {
        if let Some(answer) = line.ask(bytes) {
            let answer: serde_json::Value = serde_json::from_str(&answer).expect("an answer is JSON");
            assert_eq!(answer.get("v"), Some(&serde_json::json!(1)));
            return;
        }
        let hello = line.ask(br#"{"v":1,"id":1,"hello":{}}"#).expect("the kernel still listens");
        assert!(hello.contains("\"pid\""), "and answers: {hello}");
    });
});
