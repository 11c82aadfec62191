//! Words of our own for things that have a name. Readers should not have to learn them.

/// Each coinage, and the word to write instead. The list only grows. It is spelt apart, so that this file passes.
const COINAGES: &[(&str, &str)] = &[
    (concat!("price", "less"), "unpriced"),
    (concat!("re", "told"), "replayed"),
    (concat!("un", "meant"), "unintended"),
    (concat!("way", "_out"), "egress_proxy"),
    (concat!("ways", " out"), "egress proxies"),
    (concat!("come to some", "thing"), "succeed"),
    (concat!("text that speaks to ", "models"), "prompt injection"),
    (concat!("a b", "ox"), "a sandbox"),
    (concat!("the b", "ox"), "the sandbox"),
    (concat!("bo", "xes"), "sandboxes"),
    (concat!("re", "tell"), "replay"),
    (concat!("re", "tells"), "replays"),
    (concat!("men", "ds"), "fixes"),
    (concat!("look", "-up"), "lookup"),
    (concat!("look", "-ups"), "lookups"),
    (concat!("a y", "es"), "an approval"),
    (concat!("a n", "o"), "a denial"),
    (concat!("what came", " of"), "the result of"),
    (concat!("hardly", " meant"), "a likely mistake"),
    (concat!("a person has", " to agree"), "needs an approval"),
    (concat!("as often as", " wanted"), "any number of times"),
    (concat!("came to some", "thing"), "succeeded"),
    (concat!("stands", " behind"), "ranks lower"),
    (concat!("out", "let"), "egress proxy"),
    (concat!("out", "lets"), "egress proxies"),
];

/// The coinages in a line, each with the word to write instead.
pub(super) fn coinages(line: &str) -> Vec<(&'static str, &'static str)> {
    let line = line.to_lowercase();
    COINAGES.iter().filter(|(coinage, _)| has_words(&line, coinage)).copied().collect()
}

/// Whether a line has these words: whole ones, so that `mend` is not found in `recommend`.
fn has_words(line: &str, words: &str) -> bool {
    // A hyphen or a slash makes another word of it, as in `no-op`.
    let is_inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '/'));
    line.match_indices(words).any(|(at, found)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        let after = line.get(at + found.len()..).and_then(|after| after.chars().next());
        !is_inside(before) && !is_inside(after)
    })
}

#[cfg(test)]
mod tests {
    //! A coinage is found wherever it stands as a word, and nowhere else.

    use super::*;

    #[test]
    fn finds_every_coinage_as_a_whole_word() {
        for (coinage, word) in COINAGES {
            let found = coinages(&format!("/// It is {}, so.", coinage.to_uppercase()));
            assert!(found.contains(&(*coinage, *word)), "{coinage}");
            assert!(coinages(&format!("x{coinage}")).iter().all(|(found, _)| found != coinage), "{coinage}");
            assert!(coinages(&format!("{coinage}x")).iter().all(|(found, _)| found != coinage), "{coinage}");
        }
    }
}
