//! What the models that are set up can do, and what they cost.

use regent_kernel::Part;

use super::{Hub, ProviderEntry, is_auto};
use crate::capability::{Caching, Capability, CapabilitySource, CapabilitySpec, CapabilityTable, Usual};
use crate::prices::Price;

/// A server with weights keeps a conversation in memory, which grows with the window: no more, unless the settings say so.
const OLLAMA_WINDOW_TOKENS: u64 = 32_768;

impl Hub {
    /// What a model can do: `provider/name`, or `provider` for its first one. For `auto` and `auto:CLASS` it is what every model that
    /// may be chosen can do. An unknown model has cautious limits.
    pub fn capability(&self, model: &str) -> Capability {
        if is_auto(model) {
            let ready = self.models().filter(|(entry, model)| entry.provider.is_ready(model));
            let all = ready.map(|(entry, model)| self.capable(entry, model));
            return all.reduce(|least, one| least.least(&one)).unwrap_or_default();
        }
        self.find(model).map_or_else(|_| Capability::default(), |(entry, model)| self.capable(entry, model))
    }

    /// The table of capabilities, with its date.
    pub fn table(&self) -> &CapabilityTable {
        &self.table
    }

    pub(super) fn capable(&self, entry: &ProviderEntry, model: &str) -> Capability {
        let image = Part::Image { media_type: "image/png".to_owned(), payload: String::new() };
        let file = Part::File {
            media_type: "application/pdf".to_owned(),
            name: String::new(),
            payload: String::new(),
        };
        let usual = Usual {
            images: entry.provider.takes(&image),
            files: entry.provider.takes(&file),
            caching: match entry.kind {
                "anthropic" => Caching::Breakpoints,
                "scripted" => Caching::None,
                _ => Caching::Automatic,
            },
        };
        let own = entry.own_capabilities.get(model);
        let known = self.table.find(entry.kind, model).map(|mut known| {
            if entry.kind == "ollama" {
                known.window_tokens = known.window_tokens.map(|tokens| tokens.min(OLLAMA_WINDOW_TOKENS));
            }
            known
        });
        // Weights in this process know best, and so does their owner.
        let window_tokens = entry.provider.window_tokens(model);
        let source = match (own, &known, window_tokens) {
            (Some(_), _, _) => CapabilitySource::Settings,
            (None, _, Some(_)) => CapabilitySource::Weights,
            (None, Some(_), None) => CapabilitySource::Table,
            (None, None, None) => CapabilitySource::Default,
        };
        let weights = CapabilitySpec { window_tokens, ..CapabilitySpec::default() };
        let spec = own.cloned().unwrap_or_default().or(&weights).or(&known.unwrap_or_default());
        spec.resolved(usual, source)
    }

    pub(super) fn price(&self, entry: &ProviderEntry, model: &str) -> Option<Price> {
        self.capable(entry, model).price
    }

    /// What a call costs at most. What stays on this machine costs nothing, unless somebody says so.
    pub(super) fn money(
        &self,
        entry: &ProviderEntry,
        model: &str,
        tokens_in: u64,
        tokens_max: u64,
    ) -> Option<u64> {
        match self.price(entry, model) {
            Some(price) => Some(price.most(tokens_in, tokens_max)),
            None => entry.provider.endpoint(model).is_none().then_some(0),
        }
    }
}
