//! Tools under names that every provider takes: most refuse the dot in `fs.read`.

use std::collections::{BTreeMap, BTreeSet};

use regent_kernel::{Inference, Message};

/// The longest name that all providers take.
const NAME_CHARS_MAX: usize = 64;

/// Our names and the provider's, both ways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    wire_of: BTreeMap<String, String>,
    ours_of: BTreeMap<String, String>,
    turns: usize,
}

impl Names {
    /// All names that a conversation uses. The same conversation gives the same names.
    pub fn from_inference(inference: &Inference) -> Self {
        let offered = inference.tools.iter().map(|offer| offer.name.as_str());
        let asked = inference.messages.iter().flat_map(Message::calls).map(|call| call.tool.as_str());
        // Offered names first and in order, so that a longer history doesn't rename them.
        let mut names = Self { turns: inference.messages.len(), ..Self::default() };
        for name in offered.collect::<BTreeSet<_>>().into_iter().chain(asked) {
            names.add(name);
        }
        names
    }

    fn add(&mut self, name: &str) {
        if self.wire_of.contains_key(name) {
            return;
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let stem: String =
            name.chars().map(|c| if fits(c) { c } else { '_' }).take(NAME_CHARS_MAX - 5).collect();
        let mut wire = stem.clone();
        let mut number = 2_u32;
        while self.ours_of.contains_key(&wire) {
            wire = format!("{stem}_{number}");
            number = number.saturating_add(1);
        }
        self.ours_of.insert(wire.clone(), name.to_owned());
        self.wire_of.insert(name.to_owned(), wire);
    }

    /// A name for the answer's n-th request for a tool, where the provider gives none: one that no earlier turn has used.
    pub fn id(&self, at: usize) -> String {
        format!("call_{}_{at}", self.turns)
    }

    /// The provider's name of a tool.
    pub fn wire<'n>(&'n self, ours: &'n str) -> &'n str {
        self.wire_of.get(ours).map_or(ours, String::as_str)
    }

    /// Our name of a tool that the provider names. An invented name stays unchanged: the kernel rejects it.
    pub fn ours<'n>(&'n self, wire: &'n str) -> &'n str {
        self.ours_of.get(wire).map_or(wire, String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use regent_kernel::{Offer, Sampling};
    use serde_json::json;

    use super::*;

    #[test]
    fn names_go_there_and_back_and_never_collide() {
        let offer =
            |name: &str| Offer { name: name.to_owned(), description: String::new(), input: json!({}) };
        let long = "x".repeat(90);
        let tools = ["fs.read", "fs_read", "fs-read", "été", &long, &format!("{long}.y")].map(offer).to_vec();
        let inference = Inference {
            model: "any".to_owned(),
            messages: Vec::new(),
            tools: tools.clone(),
            tokens_max: 1,
            sampling: Sampling::default(),
        };
        let names = Names::from_inference(&inference);
        let mut seen = BTreeSet::new();
        for tool in &tools {
            let wire = names.wire(&tool.name).to_owned();
            assert!(wire.len() <= NAME_CHARS_MAX, "{wire}");
            assert_eq!(names.ours(&wire), tool.name);
            assert!(seen.insert(wire));
        }
        assert_eq!(names.ours("__proto__"), "__proto__");
    }
}
