//! The microVM tier takes the exam that every tier takes, with busybox for a program.

use regent_kernel::{Op, Tier};
use regent_testkit::contract::HOG_BYTES;
use regent_testkit::test_kernel::{Builder, SetupError};
use regent_testkit::{Exam, Task, executor_contract, run};
use serde_json::json;

use crate::kit::{BUSYBOX, equipped, has_busybox};

struct Guests;

impl Exam for Guests {
    fn tier(&self) -> Tier {
        Tier::Microvm
    }

    fn equip(&self, kernel: Builder) -> Result<Builder, SetupError> {
        Ok(equipped(kernel))
    }

    fn call(&self, task: &Task<'_>) -> Option<Op> {
        let sh = |line: String| vec!["sh".to_owned(), "-c".to_owned(), line];
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let applet: Vec<String> = match task {
            Task::Hello => words(&["echo", "hello"]),
            Task::Fail => sh("exit 3".to_owned()),
            Task::Connect(port) => words(&["nc", "127.0.0.1", &port.to_string()]),
            Task::Touch(file) => {
                let file = file.display();
                sh(format!(
                    "read x < '{file}'; echo $x; echo planted > '{file}'; read x < /proc/1/environ; echo $x"
                ))
            }
            Task::Inherited => words(&["env"]),
            Task::Flood => words(&["head", "-c", "1000000", "/dev/zero"]),
            Task::Hang => words(&["sleep", "60"]),
            Task::Hog => words(&[
                "awk",
                &format!("BEGIN {{ s = \"x\"; while (length(s) < {HOG_BYTES}) s = s s; print \"taken\" }}"),
            ]),
            Task::Linger(workspace) => {
                sh(format!("cd '{}'; (while :; do echo x >> beat; done) & sleep 1", workspace.display()))
            }
        };
        let mut argv = vec![BUSYBOX.to_owned()];
        argv.extend(applet);
        Some(run("process.exec", json!({"argv": argv})))
    }
}

#[tokio::test]
async fn the_microvm_tier_passes_the_executors_exam() {
    if !has_busybox() {
        return;
    }
    let failed = executor_contract(&Guests).await.unwrap();
    assert_eq!(failed, Vec::<String>::new());
}
