//! A program at a terminal of ours, with another pseudo-terminal in the place of the user's.

use std::future::pending;

use super::*;
use crate::ended::{EndedBy, Exit, FinishedRun};
use crate::error::SandboxError;
use crate::sink::{self, QueuedOutput};
use crate::spec::Spec;
use crate::sys::terminal::open_pair;

/// The person: sees the screen, and types.
struct Person {
    keyboard: OwnedFd,
    terminal: Terminal,
    seen: Vec<u8>,
}

impl Person {
    fn new() -> Self {
        let (keyboard, screen) = open_pair().unwrap();
        let screen = Arc::new(screen);
        TerminalSize([30, 100, 0, 0]).set(keyboard.as_fd()).unwrap();
        let terminal = Terminal { input: Arc::clone(&screen), output: screen };
        Self { keyboard, terminal, seen: Vec::new() }
    }

    fn modes(&self) -> Modes {
        Modes::read(self.terminal.input.as_fd()).unwrap()
    }

    fn press(&self, keys: &[u8]) {
        rustix::io::write(&self.keyboard, keys).unwrap();
    }

    fn look(&mut self) -> String {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = rustix::io::read(&self.keyboard, &mut buffer) {
            self.seen.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    async fn see(&mut self, text: &str) {
        while !self.look().contains(text) {
            tokio::task::yield_now().await;
        }
    }
}

fn spec(person: &Person, script: &str) -> Spec {
    Spec { terminal: Some(person.terminal.clone()), ..Spec::new(["/bin/sh", "-c", script]) }
}

/// Runs a program and writes its output to the user's screen, as the reader of a call does.
async fn run(spec: Spec, cancel: impl Future<Output = ()>) -> Result<FinishedRun, SandboxError> {
    let screen = Arc::clone(&spec.terminal.as_ref().unwrap().output);
    let (sink, mut source) = sink::channel();
    let spec = Spec { sink: Some(sink), ..spec };
    let showing = async {
        while let Some(written) = source.chunks.recv().await {
            match written {
                QueuedOutput::Chunk(_, bytes) => {
                    let screen = Arc::clone(&screen);
                    let write = move || show(&screen, &bytes);
                    tokio::task::spawn_blocking(write).await.unwrap();
                }
                QueuedOutput::Settle(done) => done.send(()).unwrap(),
            }
        }
        pending::<()>().await;
    };
    tokio::select! {
        ended = crate::run::run(spec, cancel) => ended,
        () = showing => unreachable!(),
    }
}

fn show(screen: &OwnedFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = rustix::io::write(screen, bytes).unwrap();
        bytes = &bytes[count..];
    }
}

async fn ran(person: &mut Person, script: &str) -> FinishedRun {
    let ended = run(spec(person, script), pending()).await.unwrap();
    person.look();
    ended
}

#[tokio::test]
async fn l9_a_program_has_a_terminal_of_its_own_and_leaves_the_persons_as_it_was() {
    let mut person = Person::new();
    assert!(person.modes().is_cooked());
    let ended =
        ran(&mut person, "test -t 0 && test -t 1 && test -t 2 && stty size && stty -echo raw && exit 3")
            .await;
    assert_eq!(ended.status, Exit::Code(3));
    assert!(person.look().contains("30 100"), "{}", person.look());
    assert!(person.modes().is_cooked(), "restored");
}

#[tokio::test]
async fn l9_the_clipboard_does_not_pass() {
    let mut person = Person::new();
    let ended = ran(
        &mut person,
        "printf 'one\\033]52;c;aGVsbG8=\\007two\\033]0;title\\033\\\\three\\033P$qm\\033\\\\four'",
    )
    .await;
    assert_eq!(ended.status, Exit::Code(0));
    let seen = person.look();
    assert!(seen.contains("onetwothreefour"), "{seen:?}");
    assert!(!seen.contains("52;") && !seen.contains("title"), "{seen:?}");
}

#[tokio::test]
async fn l9_ctrl_c_reaches_the_program() {
    let mut person = Person::new();
    let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 1; done";
    let running = tokio::spawn(run(spec(&person, script), pending()));
    person.see("ready").await;
    assert!(!person.modes().is_cooked(), "raw while it runs");
    person.press(&[CTRL_C]);
    let ended = running.await.unwrap().unwrap();
    assert_eq!((ended.status, ended.why), (Exit::Code(9), EndedBy::Itself));
    assert!(person.modes().is_cooked() && person.look().contains("caught"));
}

#[tokio::test]
async fn l9_a_program_that_ignores_ctrl_c_is_killed_at_the_third() {
    let mut person = Person::new();
    let script = "trap '' INT HUP; echo ready; while :; do sleep 1; done";
    let running = tokio::spawn(run(spec(&person, script), pending()));
    person.see("ready").await;
    person.press(&[CTRL_C, CTRL_C, CTRL_C]);
    let ended = running.await.unwrap().unwrap();
    assert_eq!(ended.why, EndedBy::Killed);
    assert!(person.modes().is_cooked());
}

#[tokio::test]
async fn ctrl_c_is_only_a_key_where_the_program_has_made_it_one() {
    // Raw mode, and Emacs, which has its signal on another key.
    for modes in ["-isig", "intr ^G"] {
        let mut person = Person::new();
        let script = format!(
            "stty {modes} -icanon -echo; echo ready; keys=$(head -c 3 | od -An -tx1 | tr -d ' \\n'); test $keys = 030303 && exit 4"
        );
        let running = tokio::spawn(run(spec(&person, &script), pending()));
        person.see("ready").await;
        person.press(&[CTRL_C, CTRL_C, CTRL_C]);
        let ended = running.await.unwrap().unwrap();
        assert_eq!((ended.status, ended.why), (Exit::Code(4), EndedBy::Itself), "{modes}");
    }
}

#[tokio::test]
async fn what_was_planted_is_moved_aside_while_the_terminal_is_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().canonicalize().unwrap();
    let person = Person::new();
    let (sink, source) = sink::channel();
    let mount = crate::spec::WorkspaceMount::new(&host, true);
    let script = "echo said; echo up > up; while [ ! -e go ]; do sleep 0.05; done";
    let spec = Spec { workspace: Some(mount), cwd: host.clone(), sink: Some(sink), ..spec(&person, script) };
    let running = tokio::spawn(crate::run::run(spec, pending()));
    let there = async |path: std::path::PathBuf, is_there: bool| {
        while path.exists() != is_there {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    there(host.join("up"), true).await;
    std::fs::write(host.join(".mcp.json"), "evil").unwrap();
    std::fs::write(host.join("go"), "").unwrap();
    // Nobody takes what the program wrote: the run can't end before the terminal's time is up.
    there(host.join(".mcp.json"), false).await;
    assert!(!running.is_finished(), "it waits for the terminal");
    drop(source);
    let ended = running.await.unwrap().unwrap();
    assert_eq!(ended.planted.len(), 1, "{:?}", ended.planted);
    assert!(person.modes().is_cooked());
}

#[tokio::test]
async fn l9_a_new_size_reaches_the_program() {
    let mut person = Person::new();
    let script = "trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; done";
    let running = tokio::spawn(run(spec(&person, script), pending()));
    person.see("ready").await;
    TerminalSize([40, 120, 0, 0]).set(person.keyboard.as_fd()).unwrap();
    person.see("40 120").await;
    assert_eq!(running.await.unwrap().unwrap().status, Exit::Code(5));
}

#[tokio::test]
async fn l9_the_terminal_is_put_back_when_the_run_is_cancelled_or_dropped() {
    for dropped in [false, true] {
        let mut person = Person::new();
        let (cancel, cancelled) = tokio::sync::oneshot::channel::<()>();
        let spec = spec(&person, "stty -echo raw; echo ready; exec sleep 600");
        let running = tokio::spawn(run(spec, async { drop(cancelled.await) }));
        person.see("ready").await;
        assert!(!person.modes().is_cooked());
        if dropped {
            running.abort();
            running.await.unwrap_err();
        } else {
            cancel.send(()).unwrap();
            assert_eq!(running.await.unwrap().unwrap().why, EndedBy::Killed);
        }
        assert!(person.modes().is_cooked(), "dropped: {dropped}");
    }
}

#[test]
fn l9_the_terminal_is_put_back_by_a_panic() {
    let person = Person::new();
    let terminal = person.terminal.clone();
    // Shared with a relay, which lives on.
    let raw = RawModes::default();
    let shared = raw.clone();
    let worked = std::thread::spawn(move || {
        let (pair, input) = (terminal.pair().unwrap(), Arc::clone(&terminal.input));
        let relay = TerminalRelay::new(terminal.clone(), pair, Default::default(), shared);
        relay.raw.begin(&terminal);
        assert!(Modes::read(input.as_fd()).unwrap().is_cooked(), "it is raw, so that this panics");
    });
    worked.join().unwrap_err();
    assert!(person.modes().is_cooked());
}

#[tokio::test]
async fn l9_input_reaches_the_program_and_the_end_of_output_is_not_lost() {
    let mut person = Person::new();
    let script = "stty -echo; echo ready; read line; echo \"got $line\"; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo end";
    let running = tokio::spawn(run(spec(&person, script), pending()));
    person.see("ready").await;
    person.press(b"hello\r");
    person.see("end\r\n").await;
    assert_eq!(running.await.unwrap().unwrap().status, Exit::Code(0));
    let seen = person.look();
    assert!(seen.contains("got hello") && seen.contains("line 1999"), "{seen}");
}

#[tokio::test]
async fn a_lent_terminal_can_be_opened_by_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().canonicalize().unwrap();
    let script = "tty; echo to-out > /dev/stdout; echo to-err >> /dev/stderr; echo to-tty > /dev/tty; stty size < /dev/tty; \
                  echo by-name > \"$(tty)\" && test -t 1";
    // With a supervisor, which opens what is opened for writing, and without one.
    let mount = crate::spec::WorkspaceMount::new(&host, true);
    for workspace in [Some(mount), None] {
        let mut person = Person::new();
        let cwd = if workspace.is_some() { host.clone() } else { "/tmp".into() };
        let ended = run(Spec { workspace, cwd, ..spec(&person, script) }, pending()).await.unwrap();
        let seen = person.look();
        assert_eq!(ended.status, Exit::Code(0), "{seen}");
        for part in ["/dev/pts/", "to-out", "to-err", "to-tty", "30 100", "by-name"] {
            assert!(seen.contains(part), "{part}: {seen}");
        }
    }
}

#[tokio::test]
async fn a_limit_that_kills_a_program_leaves_the_terminal_and_the_screen_as_they_were() {
    let mut person = Person::new();
    let mut spec = spec(&person, "printf '\\033[?1049h'; stty raw -echo; echo ready; sleep 60");
    spec.limits.wall_ms_max = 1_000;
    let running = tokio::spawn(run(spec, pending()));
    person.see("ready").await;
    assert_eq!(running.await.unwrap().unwrap().why, EndedBy::WallClock);
    assert!(person.modes().is_cooked(), "restored");
    let seen = person.look();
    assert!(seen.contains("\x1b[?1049l"), "the screen that was there before is back: {seen:?}");
}

#[test]
fn a_terminal_that_takes_nothing_gets_its_modes_back_and_holds_up_nobody() {
    let Person { keyboard, terminal, .. } = Person::new();
    let modes = || Modes::read(terminal.input.as_fd()).unwrap();
    let (ours, _theirs) = terminal.pair().unwrap();
    let relay = Relay::start(terminal.clone(), ours, JobControl::default()).unwrap();
    relay.screen().feed(b"\x1b[?1049h", &mut Vec::new());
    while modes().is_cooked() {
        std::thread::yield_now();
    }
    // The reader of the call is in the middle of a write, and nobody reads what it writes.
    let screen = Arc::clone(&terminal.output);
    let reader = std::thread::spawn(move || while rustix::io::write(&*screen, &[b'x'; 65_536]).is_ok() {});
    let has_room = || {
        let mut ready = [PollFd::new(&*terminal.output, PollFlags::OUT)];
        rustix::event::poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    };
    while has_room() {
        std::thread::yield_now();
    }
    drop(relay);
    assert!(modes().is_cooked());
    drop(keyboard);
    reader.join().unwrap();
}

#[test]
fn a_relay_puts_the_modes_back_although_its_thread_hangs() {
    let person = Person::new();
    // As the thread has left them that hangs in a read: another reader took the bytes that `poll` reported.
    let raw = RawModes::default();
    raw.begin(&person.terminal);
    assert!(!person.modes().is_cooked());
    let (_hangs, ended) = oneshot::channel();
    let screen = FilteredScreen(Arc::new(Mutex::new(Filter::new())));
    drop(Relay { stop: None, ended, raw: raw.clone(), notices: Arc::default(), screen });
    assert!(person.modes().is_cooked());
    raw.begin(&person.terminal);
    assert!(person.modes().is_cooked(), "the thread doesn't change them again when it goes on");
}

#[test]
fn a_kill_of_the_whole_process_leaves_the_terminal_as_it_was() {
    let mut person = Person::new();
    let terminal = person.terminal.clone();
    let before = Modes::read(terminal.input.as_fd()).unwrap();
    let watchdog = Watchdog::start(&terminal, &before).unwrap();
    watchdog.raw();
    before.raw().set(terminal.input.as_fd(), false).unwrap();
    assert!(!person.modes().is_cooked());
    // What the end of a process does to its descriptors, without a word before.
    drop(watchdog);
    assert!(person.modes().is_cooked(), "put back by the time that the copy has ended");
    assert!(person.look().contains("\x1b[?1049l"), "and the screen is reset");
    // One that was put back belongs to somebody else by now.
    let watchdog = Watchdog::start(&terminal, &before).unwrap();
    watchdog.raw();
    watchdog.put_back();
    before.raw().set(terminal.input.as_fd(), false).unwrap();
    drop(watchdog);
    assert!(!person.modes().is_cooked());
}

#[test]
fn keys_are_read_one_by_one_and_the_terminal_is_put_back() {
    let person = Person::new();
    let mode = KeyMode::begin(&person.terminal);
    assert!(!person.modes().is_cooked() && person.modes().interrupt_key().is_none());
    person.press(b"a\x03");
    let mut typed = [0; 4];
    assert_eq!(rustix::io::read(&*person.terminal.input(), &mut typed), Ok(2));
    assert_eq!(typed[..2], *b"a\x03");
    drop(mode);
    assert!(person.modes().is_cooked(), "restored");
    let panicked = std::panic::catch_unwind(|| {
        let _mode = KeyMode::begin(&person.terminal);
        panic!("as a bug would");
    });
    assert!(panicked.is_err() && person.modes().is_cooked(), "restored by a panic, too");
}
