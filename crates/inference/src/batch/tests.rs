//! Concurrent conversations on a network with random weights: each gets the same answer as alone, whatever joins, leaves or pauses.

use std::fs::File;

use proptest::prelude::*;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::gguf::Gguf;
use crate::tests::made_up;

fn batch(seed: u64) -> (BatchThread, Arc<Vocab>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    made_up::write(&path, seed);
    let gguf = Gguf::open(File::open(path).unwrap()).unwrap();
    let net = Net::read(&gguf).unwrap();
    let vocab = Arc::new(Vocab::read(&gguf, net.shape.words).unwrap());
    (BatchThread::start(net, Arc::clone(&vocab), 1).unwrap(), vocab)
}

struct TestRequest {
    heard: UnboundedReceiver<BatchEvent>,
    hold: Arc<AtomicBool>,
}

fn ask(batch: &BatchThread, prompt: &[u32], tokens_max: usize) -> TestRequest {
    let (said, heard) = unbounded_channel();
    let hold = Arc::new(AtomicBool::new(false));
    let draw = Draw::new(Some(0.9), Some(5));
    batch.ask(BatchJob {
        prompt: prompt.to_vec(),
        grammar: None,
        draw,
        tokens_max,
        stop: Vec::new(),
        said,
        hold: Arc::clone(&hold),
    });
    TestRequest { heard, hold }
}

/// All bytes, and the number of prompt tokens from the cache.
fn collect_answer(mut asked: TestRequest) -> (Vec<u8>, usize) {
    let (mut bytes, mut remembered) = (Vec::new(), 0);
    while let Some(said) = asked.heard.blocking_recv() {
        match said {
            BatchEvent::Remembered(tokens) => remembered = tokens,
            BatchEvent::Bytes(more, _) => bytes.extend(more),
            BatchEvent::Step => {}
            BatchEvent::Finished { .. } => break,
        }
    }
    (bytes, remembered)
}

fn prompt(length: usize, seed: u32) -> Vec<u32> {
    (0..length).map(|at| (at as u32).wrapping_mul(31).wrapping_add(seed * 7) % 250).collect()
}

#[test]
fn a_continued_conversation_uses_its_cache_and_others_share_its_prefix() {
    let (batch, _) = batch(5);
    let first = prompt(100, 1);
    let (said, remembered) = collect_answer(ask(&batch, &first, 10));
    assert_eq!(remembered, 0);
    // The same prompt again, and another one that differs after 60 tokens.
    let (again, remembered) = collect_answer(ask(&batch, &first, 10));
    assert_eq!((again, remembered), (said.clone(), 99));
    let mut other = first.clone();
    other.truncate(60);
    other.extend(prompt(30, 9));
    let (_, remembered) = collect_answer(ask(&batch, &other, 10));
    assert_eq!(remembered, 60);
    // The first conversation is still cached.
    assert_eq!(collect_answer(ask(&batch, &first, 10)), (said, 99));
}

#[test]
fn a_paused_conversation_stops_between_two_tokens_and_continues() {
    let (batch, _) = batch(6);
    // A prompt with a long answer.
    let long = |seed: &u32| collect_answer(ask(&batch, &prompt(20, *seed), 60)).0.len() > 40;
    let seed = (0..100).find(long).unwrap();
    let alone = collect_answer(ask(&batch, &prompt(20, seed), 60)).0;
    // On a busy machine a conversation can finish before this thread pauses it, so the test tries several times.
    let was_held = (0..50).any(|_| is_held_and_continues(&batch, seed, &alone));
    assert!(was_held, "no conversation waited");
}

/// Pauses after some tokens. Events in flight may still arrive; then none do while another conversation is served.
fn is_held_and_continues(batch: &BatchThread, seed: u32, alone: &[u8]) -> bool {
    let mut asked = ask(batch, &prompt(20, seed), 60);
    let mut bytes = Vec::new();
    while bytes.len() < 10 {
        if let BatchEvent::Bytes(more, _) = asked.heard.blocking_recv().unwrap() {
            bytes.extend(more);
        }
    }
    asked.hold.store(true, Ordering::Release);
    collect_answer(ask(batch, &prompt(5, 8), 20));
    while let Ok(said) = asked.heard.try_recv() {
        match said {
            BatchEvent::Finished { .. } => return false,
            BatchEvent::Bytes(more, _) => bytes.extend(more),
            BatchEvent::Remembered(_) | BatchEvent::Step => {}
        }
    }
    let so_far = bytes.len();
    collect_answer(ask(batch, &prompt(5, 8), 20));
    assert!(asked.heard.try_recv().is_err() && so_far < alone.len());
    asked.hold.store(false, Ordering::Release);
    batch.look();
    bytes.extend(collect_answer(asked).0);
    assert_eq!(bytes, alone);
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn each_says_what_it_would_say_alone(
        lengths in proptest::collection::vec((1_usize..150, 1_usize..25, 0_u32..3), 2..7),
        dropped in 0_usize..7,
    ) {
        let prompts: Vec<(Vec<u32>, usize)> = lengths.iter().map(|(length, most, seed)| (prompt(*length, *seed), *most)).collect();
        let alone: Vec<Vec<u8>> = prompts.iter().map(|(prompt, most)| collect_answer(ask(&batch(4).0, prompt, *most)).0).collect();
        let (batch, _) = batch(4);
        let asked: Vec<Option<TestRequest>> = prompts
            .iter()
            .enumerate()
            .map(|(at, (prompt, most))| Some(ask(&batch, prompt, *most)).filter(|_| at != dropped))
            .collect();
        for (asked, alone) in asked.into_iter().zip(alone) {
            if let Some(asked) = asked {
                prop_assert_eq!(collect_answer(asked).0, alone);
            }
        }
    }
}
