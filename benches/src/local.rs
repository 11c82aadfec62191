//! How fast a model in this process reads and speaks, beside llama.cpp with the same file and as many threads.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use regent_models::pull;
use regent_inference::trial::Trial;

use crate::report::Report;

const MODEL: &str = "qwen2.5-coder-0.5b";
const PROMPT_TOKENS: usize = 256;
const ANSWER_TOKENS: usize = 64;
const ROUNDS: usize = 3;

/// `local.*`, where the weights have been pulled; the ratios where llama.cpp is installed for Python.
pub fn measure(report: &mut Report) -> Result<()> {
    let folder = weights()?;
    if !pull::is_pulled(&folder, MODEL) {
        report.skip("local.decode", format!("`regent model pull {MODEL}` has not been run here"));
        return Ok(());
    }
    let file = pull::file(&folder, MODEL);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).saturating_sub(1).max(1);
    let trial = Trial::load(&file, threads).map_err(|why| anyhow!(why))?;
    let (mut prompt, mut decode) = (0_f64, 0_f64);
    let mut peer = (0_f64, 0_f64);
    let mut is_there = true;
    // In turns, and the best of each: what disturbs one round shouldn't decide.
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let mut talk = trial.read(PROMPT_TOKENS);
        prompt = prompt.max(PROMPT_TOKENS as f64 / began.elapsed().as_secs_f64());
        let began = Instant::now();
        trial.say(&mut talk, ANSWER_TOKENS);
        decode = decode.max(ANSWER_TOKENS as f64 / began.elapsed().as_secs_f64());
        match llama_cpp(&file, threads) {
            Ok(Some((read, said))) => peer = (peer.0.max(read), peer.1.max(said)),
            Ok(None) => is_there = false,
            Err(error) => return Err(error),
        }
    }
    report.figure("local.prompt", prompt, "tokens/s");
    report.figure("local.decode", decode, "tokens/s");
    if !is_there {
        report.skip("local.decode.llamacpp.ratio", "llama.cpp is not installed for Python");
        return Ok(());
    }
    report.figure("local.llamacpp.prompt", peer.0, "tokens/s");
    report.figure("local.llamacpp.decode", peer.1, "tokens/s");
    report.figure("local.prompt.llamacpp.ratio", prompt / peer.0, "x");
    report.figure("local.decode.llamacpp.ratio", decode / peer.1, "x");
    Ok(())
}

fn weights() -> Result<PathBuf> {
    let home = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".local/share")));
    Ok(home.context("neither XDG_DATA_HOME nor HOME is set")?.join("regent/models"))
}

/// What llama.cpp makes of it: tokens a second of the prompt and of the answer. `None` if it isn't installed.
fn llama_cpp(file: &Path, threads: usize) -> Result<Option<(f64, f64)>> {
    let python = std::env::var_os("REGENT_BENCH_PYTHON").unwrap_or_else(|| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/llama_cpp_decode.py");
    let Ok(there) = Command::new(&python).args(["-c", "import llama_cpp"]).output() else { return Ok(None) };
    if !there.status.success() {
        return Ok(None);
    }
    let counts = [threads, PROMPT_TOKENS, ANSWER_TOKENS].map(|count| count.to_string());
    let output = Command::new(python).arg(script).arg(file).args(counts).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "llama.cpp: {}", String::from_utf8_lossy(&output.stderr));
    let mut words = text.split_whitespace().map(str::parse::<f64>);
    match (words.next(), words.next()) {
        (Some(Ok(read)), Some(Ok(said))) => Ok(Some((read, said))),
        _ => Err(anyhow!("llama.cpp said `{text}`")),
    }
}
