//! What a model says and thinks, while it does: the stream of its call becomes events.
//!
//! A reader that is behind makes us wait, and us waiting makes the model's connection wait. A reader that has stopped reading doesn't: events
//! are only news, and the outcome has the answer.

use std::time::Duration;

use regent_kernel::{Channel, Chunk, Fault, Kernel, Op, Principal, Reply};

use crate::event::{Event, Events};

/// What stands in a stream where another model, or another try, begins the answer again.
const ANEW: char = '\u{1e}';
/// Events that may wait for the slowest reader before tokens wait for it too: the rest of the queue is for what is rarer and matters more.
const WAITING_MAX: usize = 32;
/// How often a reader that is behind is looked after.
const LOOK: Duration = Duration::from_millis(5);
/// A reader that takes nothing for so many looks has stopped reading.
const LOOKS_MAX: u32 = 200;

/// Asks a model, and tells what it says as it comes. Where nobody listens, only the reply is waited for.
pub(crate) async fn asked(
    kernel: &Kernel,
    who: &Principal,
    op: Op,
    (events, step): (&Events, &str),
) -> Result<Reply, Fault> {
    if !events.has_listeners() {
        return kernel.syscall(who, op).await;
    }
    let mut stream = kernel.stream(who, op);
    let (mut news, mut pace) = (News::default(), Pace::default());
    while let Some(chunk) = stream.next().await {
        // The whole at once, after a review, is no news: the reply follows.
        if chunk.is_whole {
            continue;
        }
        let mut told = news.take(&chunk, step);
        // Whatever has come meanwhile goes with it.
        while let Some(more) = stream.try_next() {
            for next in news.take(&more, step) {
                join(&mut told, next);
            }
        }
        if !pace.is_kept(events).await {
            news = News::default();
            continue;
        }
        told.into_iter().for_each(|event| events.tell(event));
    }
    stream.reply().await
}

/// What has come on each channel and isn't whole yet.
#[derive(Debug, Default)]
struct News {
    said: Text,
    thought: Text,
}

impl News {
    /// What a chunk makes whole, as events.
    fn take(&mut self, chunk: &Chunk, step: &str) -> Vec<Event> {
        let step = || step.to_owned();
        match chunk.channel {
            Channel::Output | Channel::Error => {
                self.said.0.extend_from_slice(chunk.output.bytes());
                let token = |(anew, text)| Event::Token { step: step(), text, anew };
                self.said.parts().into_iter().map(token).collect()
            }
            Channel::Reasoning => {
                self.thought.0.extend_from_slice(chunk.output.bytes());
                let thought = |(_, text)| Event::Thought { step: step(), text };
                self.thought.parts().into_iter().map(thought).collect()
            }
        }
    }
}

/// Adds an event, to the last one if it goes on with that.
fn join(told: &mut Vec<Event>, next: Event) {
    match (told.last_mut(), next) {
        (Some(Event::Token { text, .. }), Event::Token { text: more, anew: false, .. })
        | (Some(Event::Thought { text, .. }), Event::Thought { text: more, .. }) => text.push_str(&more),
        (_, next) => told.push(next),
    }
}

/// Bytes that came, up to the beginning of a character whose end hasn't.
#[derive(Debug, Default)]
struct Text(Vec<u8>);

impl Text {
    /// What is whole, in parts that each begin the answer again, but for the first.
    fn parts(&mut self) -> Vec<(bool, String)> {
        let whole = match std::str::from_utf8(&self.0) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.0.len(),
        };
        let rest = self.0.split_off(whole);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.0, rest)).into_owned();
        let parts = text.split(ANEW).enumerate().map(|(index, part)| (index > 0, part.to_owned()));
        parts.filter(|(anew, part)| *anew || !part.is_empty()).collect()
    }
}

/// Keeps to the pace of the slowest reader.
#[derive(Debug, Default)]
struct Pace {
    /// The reader took nothing for too long: until it does, nothing waits for it.
    has_stopped: bool,
}

impl Pace {
    /// Waits for a reader that is behind; false if it has stopped reading.
    async fn is_kept(&mut self, events: &Events) -> bool {
        let (mut looks, mut waiting) = (0, events.waiting());
        while waiting >= WAITING_MAX {
            if self.has_stopped || looks >= LOOKS_MAX {
                self.has_stopped = true;
                return false;
            }
            tokio::time::sleep(LOOK).await;
            let now = events.waiting();
            looks = if now < waiting { 0 } else { looks.saturating_add(1) };
            waiting = now;
        }
        self.has_stopped = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole_and_a_new_beginning_is_marked() {
        let mut text = Text::default();
        let mut told = Vec::new();
        for bytes in [&b"a\xc3"[..], b"\xa9", b"", b"b\x1ec", b"\x1e", b"\xff"] {
            text.0.extend_from_slice(bytes);
            told.extend(text.parts());
        }
        let told: Vec<(bool, &str)> = told.iter().map(|(anew, text)| (*anew, text.as_str())).collect();
        let expected =
            [(false, "a"), (false, "é"), (false, "b"), (true, "c"), (true, ""), (false, "\u{fffd}")];
        assert_eq!(told, expected);
    }

    #[test]
    fn thoughts_and_words_are_told_apart_and_in_order() {
        let step = || "1".to_owned();
        let token = |text: &str, anew| Event::Token { step: step(), text: text.to_owned(), anew };
        let thought = |text: &str| Event::Thought { step: step(), text: text.to_owned() };
        let mut told = Vec::new();
        let came = [
            thought("it "),
            thought("must"),
            token("Bl", false),
            token("ue", false),
            token("Red", true),
            thought("no"),
        ];
        came.into_iter().for_each(|event| join(&mut told, event));
        assert_eq!(told, [thought("it must"), token("Blue", false), token("Red", true), thought("no")]);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_wait_for_a_slow_reader_and_not_for_one_that_stopped() {
        let events = Events::default();
        let mut reader = events.listen();
        let tell = || events.tell(Event::Turn { step: "1".to_owned() });
        (0..WAITING_MAX).for_each(|_| tell());
        let mut pace = Pace::default();
        assert!(!pace.is_kept(&events).await, "nobody read");
        let began = tokio::time::Instant::now();
        assert!(!pace.is_kept(&events).await && began.elapsed().is_zero(), "it isn't waited for again");
        reader.recv().await.unwrap();
        assert!(pace.is_kept(&events).await, "it reads again");
        tell();
        let slow = async {
            tokio::time::sleep(LOOK * 100).await;
            reader.recv().await.unwrap();
        };
        let (kept, ()) = tokio::join!(pace.is_kept(&events), slow);
        assert!(kept, "it was slow, and was waited for");
    }
}
