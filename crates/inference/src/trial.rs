//! A model without conversations, to benchmark prompt evaluation and generation.

use std::fs::File;
use std::path::Path;

use rayon::ThreadPool;

use super::gguf::Gguf;
use super::net::{Feed, KvMemory, Net, NetScratch};

/// Tokens per step.
const STEP: usize = 64;

/// Weights and threads.
#[derive(Debug)]
pub struct Trial {
    net: Net,
    pool: ThreadPool,
}

/// A conversation: evaluated tokens, and tokens to evaluate.
#[derive(Debug)]
pub struct Talk {
    memory: KvMemory,
    room: NetScratch,
    next: u32,
}

impl Trial {
    /// Loads weights.
    pub fn load(file: &Path, threads: usize) -> Result<Self, String> {
        let gguf = Gguf::open(File::open(file).map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())?;
        let net = Net::read(&gguf).map_err(|error| error.to_string())?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { net, pool })
    }

    /// Evaluates this many arbitrary tokens.
    pub fn read(&self, tokens: usize) -> Talk {
        let words = u32::try_from(self.net.shape.words).unwrap_or(1);
        let prompt: Vec<u32> = (0_u32..).take(tokens).map(|at| at.wrapping_mul(37) % words).collect();
        let mut talk = Talk { memory: KvMemory::default(), room: NetScratch::default(), next: 0 };
        prompt.chunks(STEP).for_each(|some| self.step(&mut talk, some));
        talk
    }

    /// Generates this many tokens.
    pub fn say(&self, talk: &mut Talk, tokens: usize) {
        for _ in 0..tokens {
            let next = [talk.next];
            self.step(talk, &next);
        }
    }

    fn step(&self, talk: &mut Talk, tokens: &[u32]) {
        let Talk { memory, room, next } = talk;
        let scores =
            self.pool.install(|| self.net.step(room, &mut [Feed { memory, tokens, wants_next: true }]));
        let likeliest =
            scores.first().and_then(|scores| (0_u32..).zip(scores).max_by(|a, b| a.1.total_cmp(b.1)));
        *next = likeliest.map_or(0, |(token, _)| token);
    }
}
