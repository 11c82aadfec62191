//! First light.
use regent_sandbox::*;
async fn sh(script: &str) -> Ended {
    let spec = Spec::new(["/bin/sh", "-c", script]);
    run(spec, std::future::pending()).await.unwrap()
}
#[tokio::test]
async fn it_runs() {
    for s in ["ps aux; cat /proc/1/cmdline"] {
        let e = sh(s).await;
        println!(
            "{:?}\n{}\n{}",
            e.status,
            String::from_utf8_lossy(&e.stdout),
            String::from_utf8_lossy(&e.stderr)
        );
        println!("{:?} {:?} {} ms", e.obtained, e.why, e.wall_ms);
    }
}
