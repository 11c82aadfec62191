//! Every run of words that has been seen, and in which sources: a suffix automaton over words. Adding a word costs about the same however
//! much is there already, and so does asking: a question walks its own words, never the texts.

use std::collections::HashMap;

use crate::hash::Keyed;

/// Words that are kept at most. What comes after is not indexed, so it is found nowhere.
const WORDS_MAX: usize = 400_000;
/// Words of what others can write are kept up to here: however much they write, there is room for what is trusted.
const UNTRUSTED_WORDS_MAX: usize = WORDS_MAX / 2;
/// With more ways than this, a state's ways are looked up rather than walked: each step of a walk may miss the processor's caches.
const WAYS_WALKED_MAX: u16 = 4;
/// What a word of the vocabulary takes, with its letters and where the first one leads.
const WORD_BYTES: usize = 64;
const ROOT: u32 = 0;
const NONE: u32 = u32::MAX;

/// Sources as a set: bit `n` is source `n`.
pub(crate) type Sources = u128;

/// What is known of a run of words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SpanHits {
    /// Where it occurs.
    pub(crate) sources: Sources,
    /// The first leaf of a trusted source that has it.
    pub(crate) trusted: Option<u32>,
    /// The first leaf of an untrusted source that has it.
    pub(crate) untrusted: Option<u32>,
}

/// Where a run of words is added.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    /// The number of the source.
    pub(crate) source: u32,
    /// Which leaf it is.
    pub(crate) leaf: u32,
    /// Whether the source is trusted.
    pub(crate) trusted: bool,
}

#[derive(Debug)]
pub(crate) struct Spans {
    vocabulary: HashMap<Box<str>, u32, Keyed>,
    states: Vec<State>,
    ways: Vec<Way>,
    /// Where the first word leads, by word.
    first: Vec<u32>,
    /// The ways of states that have many.
    wide: HashMap<(u32, u32), u32, Keyed>,
    words: usize,
}

#[derive(Debug, Clone, Copy)]
struct State {
    length: u32,
    link: u32,
    /// The latest of its ways, other than the first; each knows the one before.
    latest: u32,
    ways: u16,
    seen: Sources,
    trusted: u32,
    untrusted: u32,
    /// Its first way. Most states have no other, so that most steps read one state and nothing else.
    word: u32,
    to: u32,
}

impl State {
    /// A state of a run of this many words, without ways.
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
            states: vec![State::new(0, NONE)],
            ways: Vec::new(),
            first: Vec::new(),
            wide: HashMap::default(),
            words: 0,
        }
    }
}

impl Spans {
    /// Adds a run of words. Says whether there was room for all of it.
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

    /// How much memory it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        let words = self.vocabulary.capacity().saturating_mul(WORD_BYTES);
        let wide = self.wide.capacity().saturating_mul(size_of::<(u32, u32, u32)>());
        let states = self.states.capacity().saturating_mul(size_of::<State>());
        let ways = self.ways.capacity().saturating_mul(size_of::<Way>());
        [words, wide, states, ways].into_iter().sum()
    }

    /// What is known of a run of words; nothing of an empty one.
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

    /// The ways of a state other than its first.
    fn ways_of(&self, from: u32) -> impl Iterator<Item = Way> + '_ {
        let latest = self.states.get(from as usize).map_or(NONE, |state| state.latest);
        let step = |at: u32| self.ways.get(at as usize).copied();
        std::iter::successors(step(latest), move |way| step(way.before))
    }

    /// Adds a way, or leads an existing one elsewhere.
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
        // A state with many ways has them in a map; its list is only read when it is copied, and then the map decides.
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

    fn push(&mut self, state: State) -> u32 {
        self.states.push(state);
        u32::try_from(self.states.len()).map_or(NONE, |length| length.saturating_sub(1))
    }

    /// One more word after the run that ends at `last`; gives the state of the longer run.
    fn extend(&mut self, last: u32, word: u32) -> u32 {
        let longer = self.length(last).saturating_add(1);
        if let Some(next) = self.way(last, word) {
            return if self.length(next) == longer { next } else { self.split(last, word, next) };
        }
        let new = self.push(State::new(longer, ROOT));
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

    /// Gives the shorter runs of a state a state of their own.
    fn split(&mut self, from: u32, word: u32, whole: u32) -> u32 {
        let Some(state) = self.states.get(whole as usize).copied() else { return whole };
        let length = self.length(from).saturating_add(1);
        let State { link, seen, trusted, untrusted, .. } = state;
        let part = self.push(State { seen, trusted, untrusted, ..State::new(length, link) });
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

    /// Notes a source for a run and all runs that it ends with. Stops where it is noted already: then it is for the shorter ones too.
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
        /// The automaton against a plain search, over few words so that runs repeat.
        #[test]
        fn a_run_is_seen_exactly_where_it_is(
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
    fn a_state_with_many_ways_keeps_them_all() {
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
