//! How fast are texts looked through? For what looks like a credential or a person's details, and for values that were revealed.

use anyhow::{Result, ensure};
use regent_kernel::Secret;
use regent_vault::{Scrubber, redact};

use crate::measure::nanos;
use crate::report::Report;

const TEXT_BYTES: usize = 4 << 20;

/// `redact.*` and `scrub.throughput`: ordinary text with something to find now and then, and text made of candidates alone.
pub fn measure(report: &mut Report) -> Result<()> {
    let text = ordinary();
    let found = redact::find(text.as_bytes()).len();
    ensure!(found >= text.len() / (64 << 10), "only {found} findings");
    report.figure("redact.throughput", speed(&text, |text| redact::redact(text).findings.len()), "MB/s");
    let hostile = "password=x sk-a@b. 4111 token: 12-34 ://u:p +1 ".repeat(TEXT_BYTES / 47);
    report.figure(
        "redact.hostile.throughput",
        speed(&hostile, |text| redact::redact(text).findings.len()),
        "MB/s",
    );
    let values: Vec<(String, Secret)> = (0..16)
        .map(|number| {
            (
                format!("n{number}"),
                Secret::new(format!("value-{number}-0123456789abcdef0123456789").into_bytes()),
            )
        })
        .collect();
    let scrubber = Scrubber::new(&values)?;
    let scrub = |text: &[u8]| usize::from(scrubber.scrub(&mut text.to_vec()));
    report.figure("scrub.throughput", speed(&text, scrub), "MB/s");
    Ok(())
}

fn speed(text: &str, mut work: impl FnMut(&[u8]) -> usize) -> f64 {
    let nanos = nanos(9, 1, || work(text.as_bytes()));
    text.len() as f64 / nanos * 1e9 / 1e6
}

/// Prose, code, logs and JSON, as tools give them.
fn ordinary() -> String {
    let page = "The quick brown fox jumps over the lazy dog; the task-force looks at risk-based checks.\n\
        fn main() -> Result<(), Error> { let token = next_token(&mut input)?; println!(\"{token:?}\"); }\n\
        2026-11-15T12:35:00.123Z INFO request id=550e8400-e29b-41d4-a716-446655440000 status=200 bytes=12345 took_ms=17\n\
        {\"name\": \"regent\", \"version\": \"0.1.0\", \"sha256\": \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}\n\
        see https://example.com/docs/reference?page=2 and src/components/Button.tsx:42\n";
    let mut text = String::with_capacity(TEXT_BYTES + 4096);
    while text.len() < TEXT_BYTES {
        (0..8).for_each(|_| text.push_str(page));
        text.push_str("mail ada@example.com about card 4111 1111 1111 1111, password=hunter22\n");
    }
    text
}
