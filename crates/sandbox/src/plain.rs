//! A program of the operator's own, run as the operator and without a box: for what `regent` does at a person's command and with that person's
//! tools, such as fetching a package. No call of an agent leads here; what an agent runs goes through [`run`](crate::run()).

use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How much of what it says about itself is kept: the end.
const SAID_BYTES_MAX: usize = 4 << 10;
/// How often it is looked whether it is over.
const LOOK_MS: u64 = 20;

/// How a plain program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainEnd {
    /// With success.
    pub is_good: bool,
    /// The end of what it wrote to its standard error.
    pub said: String,
}

/// Runs a program of the operator's own with these arguments, no input, and its output thrown away. It is killed when its time is
/// over or nobody waits for it any more.
pub async fn run_plain(program: &str, args: &[OsString], wall_ms_max: u64) -> io::Result<PlainEnd> {
    let child = start(program, args)?;
    let unwanted = Unwanted(Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&unwanted.0);
    let ended =
        tokio::task::spawn_blocking(move || follow(child, &flag, Duration::from_millis(wall_ms_max))).await;
    drop(unwanted);
    ended.map_err(io::Error::other)?
}

/// Says so when it is dropped.
struct Unwanted(Arc<AtomicBool>);

impl Drop for Unwanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that starts a program without a box")]
fn start(program: &str, args: &[OsString]) -> io::Result<Child> {
    Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
}

fn follow(mut child: Child, unwanted: &AtomicBool, wall_max: Duration) -> io::Result<PlainEnd> {
    let from = child.stderr.take();
    let said = std::thread::spawn(move || from.map(tail).unwrap_or_default());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if unwanted.load(Ordering::Acquire) || began.elapsed() > wall_max {
            child.kill()?;
            child.wait()?;
            return Ok(PlainEnd {
                is_good: false,
                said: "it took too long, or nobody waits for it".to_owned(),
            });
        }
        std::thread::sleep(Duration::from_millis(LOOK_MS));
    };
    Ok(PlainEnd { is_good: status.success(), said: said.join().unwrap_or_default() })
}

fn tail(mut from: impl Read) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 1_024]);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let over = kept.len().saturating_sub(SAID_BYTES_MAX);
        kept.drain(..over);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(args: &[&str]) -> Vec<OsString> {
        args.iter().map(OsString::from).collect()
    }

    #[tokio::test]
    async fn it_ends_well_or_badly_and_is_not_waited_for_for_ever() {
        let good = run_plain("true", &[], 60_000).await.unwrap();
        assert_eq!(good, PlainEnd { is_good: true, said: String::new() });
        let bad = run_plain("sh", &args(&["-c", "echo no >&2; exit 3"]), 60_000).await.unwrap();
        assert_eq!(bad, PlainEnd { is_good: false, said: "no\n".to_owned() });
        assert!(!run_plain("sleep", &args(&["600"]), 50).await.unwrap().is_good);
        assert!(run_plain("/no/such/program", &[], 1).await.is_err());
    }
}
