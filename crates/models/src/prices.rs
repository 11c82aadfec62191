//! What tokens cost.

use regent_kernel::ModelUsage;
use serde::{Deserialize, Serialize};

use crate::event::TokenUsage;

/// Prices are for so many tokens.
const PER: u128 = 1_000_000;
const MICROUSD_PER_USD: u64 = 1_000_000;

/// Prices of a million tokens, in micro-USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Input tokens that were not cached.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the provider's cache; as much as `input` if nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// Thought; as much as `output` if nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Input tokens written to the provider's cache; defaults to `input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// What long prompts cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long: Option<Long>,
}

/// The prices of everything in a call whose prompt is long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Long {
    /// A prompt of more tokens than this.
    pub above: u64,
    /// Input tokens that were not cached.
    pub input: u64,
    /// Written.
    pub output: u64,
    /// Read from the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    /// Put into it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
}

impl Price {
    /// The cost, rounded up.
    pub fn cost(&self, used: &TokenUsage) -> u64 {
        let TokenUsage { tokens, cache_written } = used;
        let price = self.for_prompt(tokens.input.saturating_add(tokens.cached));
        let written = tokens.input.min(*cache_written);
        let thought = tokens.output.min(tokens.reasoning);
        let parts = [
            (tokens.input - written, price.input),
            (written, price.cache_write.unwrap_or(price.input)),
            (tokens.cached, price.cached.unwrap_or(price.input)),
            (tokens.output - thought, price.output),
            (thought, price.reasoning.unwrap_or(price.output)),
        ];
        let all = parts
            .iter()
            .fold(0_u128, |all, (count, price)| all.saturating_add(u128::from(*count) * u128::from(*price)));
        u64::try_from(all.div_ceil(PER)).unwrap_or(u64::MAX)
    }

    /// The maximum cost.
    pub fn most(&self, tokens_in: u64, tokens_max: u64) -> u64 {
        let price = self.for_prompt(tokens_in);
        let dearest = |own: u64, others: [Option<u64>; 2]| others.into_iter().flatten().fold(own, u64::max);
        let price = Self {
            input: dearest(price.input, [price.cached, price.cache_write]),
            output: dearest(price.output, [price.reasoning, None]),
            cached: None,
            reasoning: None,
            cache_write: None,
            long: None,
        };
        let tokens = ModelUsage { input: tokens_in, output: tokens_max, ..ModelUsage::default() };
        price.cost(&TokenUsage { tokens, cache_written: 0 })
    }

    /// The prices for a prompt of this length.
    fn for_prompt(&self, tokens_in: u64) -> Self {
        match self.long {
            Some(long) if tokens_in > long.above => Self {
                input: long.input,
                output: long.output,
                cached: long.cached.or(self.cached),
                cache_write: long.cache_write.or(self.cache_write),
                ..*self
            },
            Some(_) | None => *self,
        }
    }
}

/// `0.0123 USD`: at least two digits after the point, and as many more as there are.
pub fn usd(microusd: u64) -> String {
    let digits = format!("{:06}", microusd % MICROUSD_PER_USD);
    let shown = digits.trim_end_matches('0').len().max(2);
    format!("{}.{} USD", microusd / MICROUSD_PER_USD, digits.get(..shown).unwrap_or(&digits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_kind_of_token_has_its_own_price() {
        let text = "input = 1000000\noutput = 8000000\ncached = 100000\n";
        let price: Price = toml::from_str(text).unwrap();
        let tokens = ModelUsage { input: 3, cached: 10, output: 5, reasoning: 2 };
        let used = TokenUsage { tokens, cache_written: 0 };
        assert_eq!(price.cost(&used), 3 + 1 + 40);
        let dearer = Price { reasoning: Some(9_000_000), cache_write: Some(2_000_000), ..price };
        assert_eq!(dearer.cost(&TokenUsage { cache_written: 2, ..used }), 1 + 4 + 1 + 24 + 18);
        let long = Long { above: 12, input: 2_000_000, output: 9_000_000, cached: None, cache_write: None };
        let long = Price { long: Some(long), ..price };
        assert_eq!(long.cost(&used), 6 + 1 + 45, "thirteen tokens are long");
        let one = ModelUsage { cached: 1, ..ModelUsage::default() };
        assert_eq!(price.cost(&TokenUsage { tokens: one, cache_written: 0 }), 1, "rounded up");
    }

    proptest! {
        #[test]
        fn nothing_costs_more_than_the_most(
            input in 0_u64..1 << 40, cached in 0_u64..1 << 40, output in 0_u64..1 << 40, share in 0_u64..=100,
            prices in proptest::array::uniform8(0_u64..1 << 40),
        ) {
            let [input_price, output_price, cached_price, reasoning, write, above, long_input, long_output] = prices;
            let long = Long { above, input: long_input, output: long_output, cached: None, cache_write: None };
            let price = Price {
                input: input_price, output: output_price, cached: Some(cached_price), reasoning: Some(reasoning),
                cache_write: Some(write), long: Some(long),
            };
            let tokens = ModelUsage { input, cached, output, reasoning: output / 100 * share };
            let used = TokenUsage { tokens, cache_written: input / 100 * share };
            prop_assert!(price.cost(&used) <= price.most(input + cached, output));
        }
    }
}
