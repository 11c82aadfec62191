//! What a launch costs: medians of `/bin/true` plain, confined, and under bubblewrap where it is installed.
//!
//! `cargo run --release -p regent-sandbox --example launch_cost [ROUNDS]`
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Instant;

use regent_sandbox::{Spec, run};

const WARM_UP_ROUNDS: usize = 20;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(200);
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
    let (mut plain, mut confined, mut peer) = (Vec::new(), Vec::new(), Vec::new());
    // Interleaved, so that whatever else the machine does hits all three alike.
    for round in 0..rounds + WARM_UP_ROUNDS {
        let costs = [
            cost(|| command("/bin/true", &[])),
            cost(|| runtime.block_on(run(Spec::new(["/bin/true"]), std::future::pending())).is_ok()),
            cost(|| command("/usr/bin/bwrap", BWRAP)),
        ];
        if round >= WARM_UP_ROUNDS {
            let [a, b, c] = costs;
            plain.extend(a);
            confined.extend(b);
            peer.extend(c);
        }
    }
    for (name, costs) in
        [("sandbox.plain.true", plain), ("sandbox.process.true", confined), ("sandbox.bwrap.true", peer)]
    {
        match median(costs) {
            Some(us) => println!("{name} {us} us"),
            None => println!("{name} unavailable"),
        }
    }
}

const BWRAP: &[&str] = &[
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "/bin/true",
];

/// Microseconds, if it worked.
fn cost(launch: impl FnOnce() -> bool) -> Option<u128> {
    let began = Instant::now();
    launch().then(|| began.elapsed().as_micros())
}

#[expect(clippy::disallowed_methods, reason = "the unconfined launch is what we compare with")]
fn command(program: &str, arguments: &[&str]) -> bool {
    std::process::Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
}

fn median(mut costs: Vec<u128>) -> Option<u128> {
    costs.sort_unstable();
    costs.get(costs.len() / 2).copied()
}
