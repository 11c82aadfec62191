//! Indexes every sequence of words with its sources: a suffix automaton over words. Adding a word takes amortized constant time, and a
//! lookup takes time proportional to its own words, not to the indexed text.

use std::collections::HashMap;

use crate::hash::Keyed;

/// Maximum indexed words. Further words have no origin.
const WORDS_MAX: usize = 400_000;
/// Maximum indexed untrusted words, so that untrusted text leaves room for trusted outputs.
const UNTRUSTED_WORDS_MAX: usize = WORDS_MAX / 2;
/// A state with more transitions uses a map instead of a linked list: each step of a list walk may miss the CPU cache.
const WAYS_WALKED_MAX: u16 = 4;
/// Approximate bytes per word of the vocabulary, with its letters and first transition.
const WORD_BYTES: usize = 64;
const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// A set of sources: bit `n` is source `n`.
pub(crate) type Sources = u128;

/// The occurrences of a sequence of words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SpanHits {
    /// Its sources.
    pub(crate) sources: Sources,
    /// The first leaf of a trusted source that contains it.
    pub(crate) trusted: Option<u32>,
    /// The first leaf of an untrusted source that contains it.
    pub(crate) untrusted: Option<u32>,
}

/// The source of an added sequence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// The number of the source.
    pub(crate) source: u32,
    /// The number of the leaf.
    pub(crate) leaf: u32,
    /// Whether the source is trusted.
    pub(crate) trusted: bool,
}

#[derive(Debug)]
pub(crate) struct Spans {
    vocabulary: HashMap<Box<str>, u32, Keyed>,
    states: Vec<SpanState>,
    ways: Vec<Way>,
    /// The state after each first word.
    first: Vec<u32>,
    /// Transitions of states with many.
    wide: HashMap<(u32, u32), u32, Keyed>,
    words: usize,
}

#[derive(Debug, Clone, Copy)]
struct SpanState {
    length: u32,
    link: u32,
    /// Its latest transition except the first; each links to the previous one.
    latest: u32,
    ways: u16,
    seen: Sources,
    trusted: u32,
    untrusted: u32,
    /// Its first transition. Most states have only one, so most steps read one state and nothing else.
    word: u32,
    to: u32,
}

impl SpanState {
    /// A state for sequences of this length, without transitions.
    fn new(length: u32, link: u32) -> Self {
        let (latest, word, to) = (NONE, NONE, NONE);
        Self { length, link, latest, ways: 0, seen: 0, trusted: NONE, untrusted: NONE, word, to }
    }
}

#[derive(Debug, Clone, Copy)]
struct Way {
    word: u32,
    to: u32,
    before: u32,
}

impl Default for Spans {
    fn default() -> Self {
        Self {
            vocabulary: HashMap::default(),
            states: vec![SpanState::new(0, NONE)],
            ways: Vec::new(),
            first: Vec::new(),
            wide: HashMap::default(),
            words: 0,
        }
    }
}

impl Spans {
    /// Adds a sequence of words. Returns whether all of it fit.
    pub(crate) fn add(&mut self, words: &[String], mark: Mark) -> bool {
        let mut at = ROOT;
        let words_max = if mark.trusted { WORDS_MAX } else { UNTRUSTED_WORDS_MAX };
        for word in words {
            if self.words >= words_max {
                return false;
            }
            self.words = self.words.saturating_add(1);
            let word = self.number_of(word);
            at = self.extend(at, word);
            self.mark(at, mark);
        }
        true
    }

    /// Approximate memory use.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.vocabulary.capacity().saturating_mul(WORD_BYTES);
        let wide = self.wide.capacity().saturating_mul(size_of::<(u32, u32, u32)>());
        let states = self.states.capacity().saturating_mul(size_of::<SpanState>());
        let ways = self.ways.capacity().saturating_mul(size_of::<Way>());
        [words, wide, states, ways].into_iter().sum()
    }

    /// The occurrences of a sequence; none for an empty one.
    pub(crate) fn seen(&self, words: &[String]) -> SpanHits {
        let mut at = ROOT;
        for word in words {
            let next = self.vocabulary.get(word.as_str()).and_then(|word| self.way(at, *word));
            match next {
                Some(next) => at = next,
                None => return SpanHits::default(),
            }
        }
        if at == ROOT {
            return SpanHits::default();
        }
        self.states.get(at as usize).map_or_else(SpanHits::default, |state| SpanHits {
            sources: state.seen,
            trusted: (state.trusted != NONE).then_some(state.trusted),
            untrusted: (state.untrusted != NONE).then_some(state.untrusted),
        })
    }

    fn number_of(&mut self, word: &str) -> u32 {
        if let Some(number) = self.vocabulary.get(word) {
            return *number;
        }
        let number = u32::try_from(self.vocabulary.len()).unwrap_or(NONE);
        self.vocabulary.insert(word.into(), number);
        self.first.push(NONE);
        number
    }

    fn way(&self, from: u32, word: u32) -> Option<u32> {
        if from == ROOT {
            return self.first.get(word as usize).copied().filter(|to| *to != NONE);
        }
        let state = self.states.get(from as usize)?;
        if state.word == word {
            return Some(state.to);
        }
        if state.ways > WAYS_WALKED_MAX {
            return self.wide.get(&(from, word)).copied();
        }
        self.ways_of(from).find(|way| way.word == word).map(|way| way.to)
    }

    /// The transitions of a state except its first.
    fn ways_of(&self, from: u32) -> impl Iterator<Item = Way> + '_ {
        let latest = self.states.get(from as usize).map_or(NONE, |state| state.latest);
        let step = |at: u32| self.ways.get(at as usize).copied();
        std::iter::successors(step(latest), move |way| step(way.before))
    }

    /// Adds or redirects a transition.
    fn lead(&mut self, from: u32, word: u32, to: u32) {
        if from == ROOT {
            if let Some(slot) = self.first.get_mut(word as usize) {
                *slot = to;
            }
            return;
        }
        let Some(state) = self.states.get_mut(from as usize) else { return };
        if state.ways == 0 || state.word == word {
            (state.word, state.to, state.ways) = (word, to, state.ways.max(1));
            return;
        }
        let state = *state;
        let mut at = state.latest;
        // A state with many transitions has a map. Its list is only read when the state is copied, and the map takes precedence.
        while state.ways <= WAYS_WALKED_MAX
            && let Some(way) = self.ways.get_mut(at as usize)
        {
            if way.word == word {
                way.to = to;
                return;
            }
            at = way.before;
        }
        if state.ways > WAYS_WALKED_MAX && self.wide.insert((from, word), to).is_some() {
            return;
        }
        let number = u32::try_from(self.ways.len()).unwrap_or(NONE);
        self.ways.push(Way { word, to, before: state.latest });
        let ways = state.ways.saturating_add(1);
        if let Some(state) = self.states.get_mut(from as usize) {
            (state.latest, state.ways) = (number, ways);
        }
        if ways == WAYS_WALKED_MAX.saturating_add(1) {
            let all: Vec<Way> = self.ways_of(from).collect();
            self.wide.extend(all.into_iter().map(|way| ((from, way.word), way.to)));
        }
    }

    fn length(&self, state: u32) -> u32 {
        self.states.get(state as usize).map_or(0, |state| state.length)
    }

    fn link(&self, state: u32) -> u32 {
        self.states.get(state as usize).map_or(NONE, |state| state.link)
    }

    fn push(&mut self, state: SpanState) -> u32 {
        self.states.push(state);
        u32::try_from(self.states.len()).map_or(NONE, |length| length.saturating_sub(1))
    }

    /// Adds a word after the sequence that ends at `last`; returns the new state.
    fn extend(&mut self, last: u32, word: u32) -> u32 {
        let longer = self.length(last).saturating_add(1);
        if let Some(next) = self.way(last, word) {
            return if self.length(next) == longer { next } else { self.split(last, word, next) };
        }
        let new = self.push(SpanState::new(longer, ROOT));
        let mut at = last;
        while at != NONE {
            if let Some(next) = self.way(at, word) {
                let link = if self.length(next) == self.length(at).saturating_add(1) {
                    next
                } else {
                    self.split(at, word, next)
                };
                if let Some(state) = self.states.get_mut(new as usize) {
                    state.link = link;
                }
                return new;
            }
            self.lead(at, word, new);
            at = self.link(at);
        }
        new
    }

    /// Splits the shorter sequences of a state off into a new state.
    fn split(&mut self, from: u32, word: u32, whole: u32) -> u32 {
        let Some(state) = self.states.get(whole as usize).copied() else { return whole };
        let length = self.length(from).saturating_add(1);
        let SpanState { link, seen, trusted, untrusted, .. } = state;
        let part = self.push(SpanState { seen, trusted, untrusted, ..SpanState::new(length, link) });
        let mut ways: Vec<u32> = self.ways_of(whole).map(|way| way.word).collect();
        ways.reverse();
        for way in (state.ways > 0).then_some(state.word).into_iter().chain(ways) {
            if let Some(to) = self.way(whole, way) {
                self.lead(part, way, to);
            }
        }
        if let Some(state) = self.states.get_mut(whole as usize) {
            state.link = part;
        }
        let mut at = from;
        while at != NONE && self.way(at, word) == Some(whole) {
            self.lead(at, word, part);
            at = self.link(at);
        }
        part
    }

    /// Marks a sequence and all its suffixes with a source. Stops at a marked state, whose suffixes are marked too.
    fn mark(&mut self, at: u32, mark: Mark) {
        let bit: Sources = 1_u128.checked_shl(mark.source).unwrap_or(0);
        let mut at = at;
        while at != ROOT
            && let Some(state) = self.states.get_mut(at as usize)
            && state.seen & bit == 0
        {
            state.seen |= bit;
            let first = if mark.trusted { &mut state.trusted } else { &mut state.untrusted };
            if *first == NONE {
                *first = mark.leaf;
            }
            at = state.link;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares the automaton with a naive search, over few words so that sequences repeat.
        #[test]
        fn finds_a_sequence_exactly_where_it_occurs(
            texts in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..24), 1..12),
            run in proptest::collection::vec(0_u8..4, 1..5),
        ) {
            let spelt = |words: &[u8]| words.iter().map(|word| format!("w{word}")).collect::<Vec<_>>();
            let mut spans = Spans::default();
            for (number, text) in texts.iter().enumerate() {
                let source = u32::try_from(number % 5).unwrap();
                spans.add(&spelt(text), Mark { source, leaf: u32::try_from(number).unwrap(), trusted: source < 2 });
            }
            let has = |text: &Vec<u8>| text.windows(run.len()).any(|window| window == run);
            let expected = texts.iter().enumerate().filter(|(_, text)| has(text)).fold(0, |set, (number, _)| set | 1_u128 << (number % 5));
            let seen = spans.seen(&spelt(&run));
            prop_assert_eq!(seen.sources, expected);
            prop_assert_eq!(seen.trusted.is_some(), expected & 3 != 0);
            prop_assert_eq!(seen.untrusted.is_some(), expected & !3 != 0);
        }
    }

    #[test]
    fn a_state_keeps_all_of_many_transitions() {
        let mut spans = Spans::default();
        let mark = Mark { source: 3, leaf: 0, trusted: false };
        for number in 0..100 {
            spans.add(&["the".to_owned(), format!("w{number}"), "of".to_owned(), "the".to_owned()], mark);
        }
        for number in 0..100 {
            assert_ne!(spans.seen(&["the".to_owned(), format!("w{number}"), "of".to_owned()]).sources, 0);
        }
        assert_eq!(spans.seen(&["of".to_owned(), "w1".to_owned()]), SpanHits::default());
    }
}
