//! What a model or a tool writes while it runs: the stream of its call becomes events.
//!
//! A reader that is behind makes us wait, and us waiting makes the model's connection wait. A reader that has stopped reading doesn't: events
//! are only news, and the outcome has the answer.

use std::time::Duration;

use regent_kernel::{Channel, Chunk, Fault, Kernel, Op, Principal, Reply, Stream};

use crate::event::{Event, Events};

/// What stands in a stream where another model, or another try, begins the answer again.
const ANEW: char = '\u{1e}';
/// Events that may wait for the slowest reader before tokens wait for it too: the rest of the queue is for what is rarer and matters more.
const WAITING_MAX: usize = 32;
/// How often a reader that is behind is looked after.
const LOOK: Duration = Duration::from_millis(5);
/// A reader that takes nothing for so many looks has stopped reading.
const LOOKS_MAX: u32 = 200;
/// So much of a tool's output is streamed; the outcome has the rest.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// One event has about so much of it.
const EVENT_BYTES_MAX: usize = 8 << 10;

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
    let mut told = Vec::new();
    while gather(&mut stream, |chunk| {
        news.take(chunk, step).into_iter().for_each(|next| join(&mut told, next));
        true
    })
    .await
    {
        if !pace.is_kept(events).await {
            news = News::default();
            told.clear();
            continue;
        }
        told.drain(..).for_each(|event| events.send(event));
    }
    stream.reply().await
}

/// Waits for a chunk and takes it, with those that have come meanwhile while there is room for more. False when no more will come.
async fn gather(stream: &mut Stream, mut take: impl FnMut(&Chunk) -> bool) -> bool {
    while let Some(chunk) = stream.next().await {
        // The whole at once, after a review, is no news: the reply follows.
        if chunk.is_whole {
            continue;
        }
        let mut has_room = take(&chunk);
        while let Some(more) = has_room.then(|| stream.try_next()).flatten() {
            has_room = take(&more);
        }
        return true;
    }
    false
}

/// What has come on each channel and isn't whole yet.
#[derive(Debug, Default)]
struct News {
    said: PartialText,
    thought: PartialText,
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

/// Calls a tool, and tells what it says as it comes. Where nobody listens, only the reply is waited for.
pub(crate) async fn called(
    kernel: &Kernel,
    who: &Principal,
    op: Op,
    (events, step): (&Events, &str),
) -> Result<Reply, Fault> {
    if !events.has_listeners() {
        return kernel.syscall(who, op).await;
    }
    let mut stream = kernel.stream(who, op);
    let mut output = Output::default();
    while gather(&mut stream, |chunk| {
        output.take(chunk.channel, chunk.output.bytes());
        output.has_room()
    })
    .await
    {
        for (channel, text) in output.parts() {
            if output.pace.is_kept(events).await {
                events.send(Event::Output { step: step.to_owned(), channel, text });
            }
        }
    }
    stream.reply().await
}

/// Output of a tool that hasn't been streamed yet.
#[derive(Debug, Default)]
struct Output {
    channels: [PartialText; 2],
    bytes: usize,
    pace: Pace,
}

impl Output {
    fn take(&mut self, channel: Channel, bytes: &[u8]) {
        let room = OUTPUT_BYTES_MAX.saturating_sub(self.bytes);
        let told = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.bytes = self.bytes.saturating_add(told.len());
        let [output, error] = &mut self.channels;
        match channel {
            Channel::Output => output.0.extend_from_slice(told),
            Channel::Error => error.0.extend_from_slice(told),
            // No tool thinks.
            Channel::Reasoning => {}
        }
    }

    fn has_room(&self) -> bool {
        self.channels.iter().all(|text| text.0.len() < EVENT_BYTES_MAX)
    }

    fn parts(&mut self) -> Vec<(Channel, String)> {
        let whole = [Channel::Output, Channel::Error]
            .into_iter()
            .zip(&mut self.channels)
            .map(|(channel, text)| (channel, text.whole()));
        whole.filter(|(_, text)| !text.is_empty()).collect()
    }
}

/// Bytes that came, up to the beginning of a character whose end hasn't.
#[derive(Debug, Default)]
struct PartialText(Vec<u8>);

impl PartialText {
    /// What is whole.
    fn whole(&mut self) -> String {
        let whole = match std::str::from_utf8(&self.0) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.0.len(),
        };
        let rest = self.0.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.0, rest)).into_owned()
    }

    /// The same in parts that each begin the answer again, but for the first.
    fn parts(&mut self) -> Vec<(bool, String)> {
        let text = self.whole();
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
        let mut text = PartialText::default();
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
    fn separates_reasoning_from_text_in_order() {
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

    #[test]
    fn streams_a_tools_output_per_channel_up_to_a_limit() {
        let mut output = Output::default();
        output.take(Channel::Error, b"oh\xc3");
        output.take(Channel::Output, b"yes");
        assert_eq!(output.parts(), [(Channel::Output, "yes".to_owned()), (Channel::Error, "oh".to_owned())]);
        output.take(Channel::Error, b"\xb6");
        assert_eq!(output.parts(), [(Channel::Error, "ö".to_owned())]);
        for _ in 0..2 * OUTPUT_BYTES_MAX / EVENT_BYTES_MAX {
            assert!(output.has_room());
            output.take(Channel::Output, &[b'x'; EVENT_BYTES_MAX]);
            output.parts();
        }
        assert_eq!(output.bytes, OUTPUT_BYTES_MAX);
        assert!(output.parts().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_wait_for_a_slow_reader_and_not_for_one_that_stopped() {
        let events = Events::default();
        let mut reader = events.listen();
        let tell = || events.send(Event::Turn { step: "1".to_owned() });
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
