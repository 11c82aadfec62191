//! Samples the next token: the most likely one, unless a temperature is set.

use super::grammar::Grammar;
use super::net::exp;
use super::vocab::Vocab;

/// Number of candidates to sample from.
const BEST_MAX: usize = 64;
/// Number of likely tokens to test before testing the entire vocabulary.
const LOOKED_AT_MAX: usize = 256;

/// A sampler.
#[derive(Debug, Clone)]
pub(super) struct Draw {
    /// 0 takes the most likely token.
    temperature: f32,
    /// State of the random number generator.
    state: u64,
}

impl Draw {
    /// A sampler with this temperature; the same seed gives the same samples.
    pub(super) fn new(temperature: Option<f64>, seed: Option<u64>) -> Self {
        // Between 0 and 2.
        let temperature =
            temperature.filter(|warmth| warmth.is_finite()).unwrap_or(0.0).clamp(0.0, 2.0) as f32;
        Self { temperature, state: seed.unwrap_or(0) ^ 0x9E37_79B9_7F4A_7C15 }
    }

    /// The next token that the grammar allows; `None` if it allows none.
    pub(super) fn next(&mut self, scores: &[f32], vocab: &Vocab, grammar: Option<&Grammar>) -> Option<u32> {
        let may_come = |token: u32| match grammar {
            // A special token ends the answer or is invalid.
            None => vocab.is_end(token) || !vocab.is_special(token),
            Some(grammar) if vocab.is_end(token) => grammar.may_end(),
            Some(grammar) => !vocab.is_special(token) && grammar.allows(vocab.bytes(token)),
        };
        let wanted = if self.temperature > 0.0 { BEST_MAX } else { 1 };
        let looked_at = best(scores, LOOKED_AT_MAX);
        let mut fit: Vec<(u32, f32)> =
            looked_at.into_iter().filter(|(token, _)| may_come(*token)).take(wanted).collect();
        if fit.is_empty() {
            let all = (0_u32..).zip(scores.iter().copied()).filter(|(token, _)| may_come(*token));
            fit.extend(all.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))));
        }
        let (likeliest, most) = *fit.first()?;
        if self.temperature <= 0.0 {
            return Some(likeliest);
        }
        let weights: Vec<f32> = fit.iter().map(|(_, score)| exp((score - most) / self.temperature)).collect();
        let mut point = self.chance() * weights.iter().sum::<f32>();
        for ((token, _), weight) in fit.iter().zip(weights) {
            point -= weight;
            if point <= 0.0 {
                return Some(*token);
            }
        }
        Some(likeliest)
    }

    /// A random number between 0 and 1 (splitmix64).
    fn chance(&mut self) -> f32 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // 24 bits.
        (z >> 40) as f32 / 16_777_216.0
    }
}

/// The most likely tokens in order; ties go to the earlier token.
fn best(scores: &[f32], count: usize) -> Vec<(u32, f32)> {
    let mut all: Vec<(u32, f32)> = (0_u32..).zip(scores.iter().copied()).collect();
    let order = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    if all.len() > count {
        all.select_nth_unstable_by(count, order);
        all.truncate(count);
    }
    all.sort_unstable_by(order);
    all
}
