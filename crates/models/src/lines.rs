//! Streams cut into their messages, whatever the borders of the pieces they come in: server-sent events, and JSON Lines.

use crate::ProviderError;

/// One message of a stream. Some providers send all arguments of a tool in one.
const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// How a stream is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `data: …` lines, ended by an empty one.
    Events,
    /// One JSON value a line.
    JsonLines,
}

/// Takes pieces in and gives messages out.
#[derive(Debug)]
pub struct Lines {
    framing: Framing,
    /// A line that hasn't ended yet.
    line: Vec<u8>,
    /// The `data` of an event that hasn't ended yet.
    event: Option<String>,
    /// The last byte was a carriage return, so a line feed that follows belongs to it.
    after_return: bool,
    /// The event's own number, where it has one, and that of the event before.
    id: Option<String>,
    id_before: Option<String>,
}

impl Lines {
    /// An empty one.
    pub fn new(framing: Framing) -> Self {
        Self { framing, line: Vec::new(), event: None, after_return: false, id: None, id_before: None }
    }

    /// Adds a chunk; `each` gets every message that is complete by then.
    pub fn push(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(&str) -> Result<(), ProviderError>,
    ) -> Result<(), ProviderError> {
        // A piece may be empty, and then the line feed is yet to come.
        let Some(first) = piece.first() else { return Ok(()) };
        let belongs = std::mem::take(&mut self.after_return) && *first == b'\n';
        let mut rest = if belongs { piece.get(1..).unwrap_or_default() } else { piece };
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, from_end) = rest.split_at(end);
            self.extend(line)?;
            let line = std::mem::take(&mut self.line);
            self.line_ended(&line, &mut each)?;
            let returned = from_end.first() == Some(&b'\r');
            rest = match from_end.get(1..) {
                Some([b'\n', after @ ..]) if returned => after,
                Some(after) => {
                    self.after_return = returned && after.is_empty();
                    after
                }
                None => &[],
            };
        }
        self.extend(rest)
    }

    /// Ends the stream. A last line without a newline still counts; an event without its empty line was truncated.
    pub fn finish(
        mut self,
        mut each: impl FnMut(&str) -> Result<(), ProviderError>,
    ) -> Result<(), ProviderError> {
        if self.framing == Framing::JsonLines && !self.line.is_empty() {
            let line = std::mem::take(&mut self.line);
            return self.line_ended(&line, &mut each);
        }
        Ok(())
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), ProviderError> {
        let held = self.event.as_ref().map_or(0, String::len);
        if self.line.len().saturating_add(held).saturating_add(bytes.len()) > MESSAGE_BYTES_MAX {
            return Err(ProviderError::TooLarge("one message of the stream"));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line_ended(
        &mut self,
        line: &[u8],
        each: &mut impl FnMut(&str) -> Result<(), ProviderError>,
    ) -> Result<(), ProviderError> {
        let line = std::str::from_utf8(line)
            .map_err(|_| ProviderError::Malformed("the stream is not UTF-8".to_owned()))?;
        match self.framing {
            Framing::JsonLines if line.trim().is_empty() => Ok(()),
            Framing::JsonLines => each(line),
            Framing::Events => self.event_line(line, each),
        }
    }

    fn event_line(
        &mut self,
        line: &str,
        each: &mut impl FnMut(&str) -> Result<(), ProviderError>,
    ) -> Result<(), ProviderError> {
        if line.is_empty() {
            let Some(event) = self.event.take() else { return Ok(()) };
            // An event that comes again under its number was sent again, and isn't new text.
            let id = self.id.take();
            if id.is_some() && id == self.id_before {
                return Ok(());
            }
            self.id_before = id;
            return each(&event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field.trim_start_matches('\u{feff}') {
            "data" => match &mut self.event {
                Some(event) => {
                    event.push('\n');
                    event.push_str(value);
                }
                None => self.event = Some(value.to_owned()),
            },
            "id" => self.id = Some(value.to_owned()),
            // Comments keep a connection awake; an event's name is in its JSON as well.
            _comment_or_name => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(framing: Framing, stream: &[u8], borders: &[usize]) -> Result<Vec<String>, ProviderError> {
        let mut lines = Lines::new(framing);
        let mut found = Vec::new();
        let mut from = 0;
        for border in borders.iter().copied().chain([stream.len()]) {
            lines.push(&stream[from..border], |message| {
                found.push(message.to_owned());
                Ok(())
            })?;
            from = border;
        }
        lines.finish(|message| {
            found.push(message.to_owned());
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn streams_are_cut_into_messages() {
        let cases: &[(Framing, &str, &[&str])] = &[
            (Framing::Events, "data: a\n\ndata:b\r\n\r\n", &["a", "b"]),
            (Framing::Events, "event: x\rdata: a\r\rdata: b\n\n", &["a", "b"]),
            (Framing::Events, "data: a\ndata: b\n\n", &["a\nb"]),
            (Framing::Events, ": ping\n\n\n\ndata: a\n\n: ping\n", &["a"]),
            (Framing::Events, "data: cut", &[]),
            (Framing::Events, "data: cut\n", &[]),
            (Framing::Events, "id: 1\ndata: a\n\nid: 1\ndata: a\n\nid: 2\ndata: a\n\n", &["a", "a"]),
            (Framing::JsonLines, "{}\n\n[1]\n", &["{}", "[1]"]),
            (Framing::JsonLines, "{}\r\n{\"a\":1}", &["{}", "{\"a\":1}"]),
        ];
        for (framing, stream, expected) in cases {
            assert_eq!(cut(*framing, stream.as_bytes(), &[]).unwrap(), *expected, "{stream:?}");
        }
    }

    #[test]
    fn a_message_without_end_is_refused() {
        let mut lines = Lines::new(Framing::Events);
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..9).find_map(|_| lines.push(&piece, |_| Ok(())).err());
        assert!(matches!(refused, Some(ProviderError::TooLarge(_))), "{refused:?}");
    }

    proptest! {
        #[test]
        fn borders_of_pieces_change_nothing(
            stream in proptest::collection::vec(prop_oneof![
                Just("data: x"), Just("data:é"), Just("\n"), Just("\r\n"), Just("\r"), Just("id: 1"), Just(": c"), Just("{}"),
            ], 0..24),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
            lines in any::<bool>(),
        ) {
            let stream = stream.concat();
            let framing = if lines { Framing::JsonLines } else { Framing::Events };
            let mut borders: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            borders.sort_unstable();
            prop_assert_eq!(cut(framing, stream.as_bytes(), &borders).unwrap(), cut(framing, stream.as_bytes(), &[]).unwrap());
        }
    }
}
