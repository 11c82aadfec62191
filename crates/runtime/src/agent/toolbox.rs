//! The tools that a model is offered: at most twenty at first. The others are found with a search over their names and descriptions, and
//! can be called from the next turn on.

use regent_kernel::Offer;
use serde_json::{Value, json};

/// The tool with which an agent finds others. The loop handles it; it never reaches the kernel.
pub(crate) const SEARCH: &str = "tool.search";
/// How many tools are offered before a search.
pub(crate) const OFFERED_MAX: usize = 20;
/// How many a search finds.
const FOUND_MAX: usize = 5;

/// The tools of one agent.
#[derive(Debug, Clone)]
pub(super) struct Toolbox {
    offered: Vec<Offer>,
    reserve: Vec<Offer>,
    /// Found in this turn.
    found: Vec<String>,
}

impl Toolbox {
    pub(super) fn new(offered: &[Offer], reserve: &[Offer]) -> Self {
        let mut offered = offered.to_vec();
        if !reserve.is_empty() {
            offered.push(search_offer(reserve.len()));
        }
        Self { offered, reserve: reserve.to_vec(), found: Vec::new() }
    }

    pub(super) fn offered(&self) -> &[Offer] {
        &self.offered
    }

    /// Answers a search. What it finds is offered from the next turn on.
    pub(super) fn search(&mut self, args: &Value) -> String {
        let query = args.get("query").and_then(Value::as_str).unwrap_or_default().to_lowercase();
        let words: Vec<&str> =
            query.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 1).collect();
        let mut hits: Vec<(usize, &Offer)> = self
            .reserve
            .iter()
            .map(|offer| (score(offer, &words), offer))
            .filter(|(score, _)| *score > 0)
            .collect();
        hits.sort_by(|(one, left), (other, right)| other.cmp(one).then_with(|| left.name.cmp(&right.name)));
        let hits: Vec<&Offer> = hits.into_iter().take(FOUND_MAX).map(|(_, offer)| offer).collect();
        if hits.is_empty() {
            return "[no other tool has these words in its name or description]".to_owned();
        }
        let lines = hits.iter().map(|offer| format!("\n{}: {}", offer.name, first_line(&offer.description)));
        // A description may come from others, so it can't look like a marker.
        let text = format!("[found; you can call these from the next turn on:{}]", lines.collect::<String>());
        self.found.extend(hits.iter().map(|offer| offer.name.clone()));
        text.replace("<<", "< <")
    }

    /// Begins the next turn: what was found is offered now. Gives back what is new.
    pub(super) fn next_turn(&mut self) -> &[Offer] {
        let before = self.offered.len();
        for name in std::mem::take(&mut self.found) {
            if let Some(at) = self.reserve.iter().position(|offer| offer.name == name) {
                self.offered.push(self.reserve.remove(at));
            }
        }
        self.offered.get(before..).unwrap_or_default()
    }
}

fn score(offer: &Offer, words: &[&str]) -> usize {
    let (name, description) = (offer.name.to_lowercase(), offer.description.to_lowercase());
    let of_word =
        |word: &&str| 3 * usize::from(name.contains(*word)) + usize::from(description.contains(*word));
    words.iter().map(of_word).sum()
}

fn first_line(text: &str) -> String {
    const CHARS_MAX: usize = 200;
    text.lines().next().unwrap_or_default().chars().take(CHARS_MAX).collect()
}

fn search_offer(others: usize) -> Offer {
    Offer {
        name: SEARCH.to_owned(),
        description: format!(
            "Find one of {others} more tools by words of its name or purpose. What is found can be called from the next turn on."
        ),
        input: json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": "a few words"}},
            "required": ["query"],
            "additionalProperties": false,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(name: &str, description: &str) -> Offer {
        Offer { name: name.to_owned(), description: description.to_owned(), input: json!({"type": "object"}) }
    }

    #[test]
    fn what_a_search_finds_is_offered_from_the_next_turn_on() {
        let reserve = [
            offer("skill.install", "Install a skill package"),
            offer("tool.generate", "Write a new tool <<end x>>"),
            offer("db.query", "Ask the database a question"),
        ];
        let mut tools = Toolbox::new(&[offer("fs.read", "Read a file")], &reserve);
        let names =
            |tools: &Toolbox| tools.offered().iter().map(|offer| offer.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&tools), ["fs.read", SEARCH]);
        assert!(tools.search(&json!({"query": "zebra"})).starts_with("[no other tool"));
        let found = tools.search(&json!({"query": "generate tool"}));
        assert!(
            found.contains("tool.generate: Write a new tool < <end x>>") && !found.contains("db.query"),
            "{found}"
        );
        assert_eq!(names(&tools), ["fs.read", SEARCH]);
        assert_eq!(tools.next_turn().len(), 1);
        assert_eq!(names(&tools), ["fs.read", SEARCH, "tool.generate"]);
        assert!(
            tools.search(&json!({"query": "generate"})).starts_with("[no other"),
            "it is offered already"
        );
    }
}
