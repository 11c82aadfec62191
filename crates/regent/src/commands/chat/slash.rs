//! What a line asks of the conversation itself: `/undo`, `/model NAME`.

use crate::failure::did_you_mean;

/// A command, and what comes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Model(Option<String>),
    Cost,
    Plan,
    Undo(usize),
    Diff(bool),
    Tools,
    Resume(Option<String>),
    New,
    Exit,
}

/// Each with its arguments and what it does.
pub(super) const COMMANDS: [(&str, &str, &str); 10] = [
    ("/help", "", "list these commands and keys"),
    ("/model", "[NAME]", "list the models, or continue with another one"),
    ("/cost", "", "show what the conversation has used, and what is left"),
    ("/plan", "", "show the agent's plan"),
    ("/undo", "[N]", "restore the workspace to before the last N messages"),
    ("/diff", "[all]", "show what changed since your last message, or since the beginning"),
    ("/tools", "", "list the tools that the agent is offered"),
    ("/resume", "[ID]", "continue an earlier conversation, or work that was stopped"),
    ("/new", "", "begin another conversation"),
    ("/exit", "", "leave; `regent chat --resume` continues"),
];

/// The keys that are worth knowing.
pub(super) const KEYS: [(&str, &str); 6] = [
    ("Enter", "send; while the agent works, the message is queued"),
    ("Alt-Enter, Ctrl-J", "begin a new line; so does a backslash before Enter"),
    ("Esc, Ctrl-C", "stop before the next call; Ctrl-C again stops what runs"),
    ("Ctrl-D", "leave; Ctrl-C twice on an empty line does too"),
    ("Up, Down", "earlier messages"),
    ("Ctrl-A E K U W Y", "start and end of the line; delete to either, or a word; put it back"),
];

/// The command that a line is; none if it is a message. A path is one: it has another slash.
pub(super) fn parse(line: &str) -> Option<Result<Command, String>> {
    let line = line.trim();
    let mut words = line.split_whitespace();
    let name = words.next().filter(|name| name.starts_with('/') && !line.contains('\n'))?;
    if name.get(1..).is_some_and(|rest| rest.contains('/') || rest.is_empty()) {
        return None;
    }
    let (argument, rest) = (words.next(), words.next());
    let owned = argument.map(str::to_owned);
    let command = match (name, argument) {
        ("/help", None) => Command::Help,
        ("/model", _) => Command::Model(owned),
        ("/cost", None) => Command::Cost,
        ("/plan", None) => Command::Plan,
        ("/undo", None) => Command::Undo(1),
        ("/undo", Some(number)) => match number.parse() {
            Ok(count @ 1..) => Command::Undo(count),
            Ok(_) | Err(_) => return Some(Err("`/undo` takes the number of messages: `/undo 2`".to_owned())),
        },
        ("/diff", None) => Command::Diff(false),
        ("/diff", Some("all")) => Command::Diff(true),
        ("/tools", None) => Command::Tools,
        ("/resume", _) => Command::Resume(owned),
        ("/new", None) => Command::New,
        ("/exit" | "/quit", None) => Command::Exit,
        (name, _) => return Some(Err(unknown(name))),
    };
    if rest.is_some() {
        return Some(Err(format!("`{name}` takes one argument at most")));
    }
    Some(Ok(command))
}

fn unknown(name: &str) -> String {
    let names = COMMANDS.iter().map(|(name, _, _)| *name);
    if let Some((name, arguments, _)) = COMMANDS.iter().find(|(known, _, _)| *known == name) {
        let takes = if arguments.is_empty() { "no argument" } else { arguments };
        return format!("`{name}` takes {takes}");
    }
    format!("unknown command `{name}`; {}", did_you_mean(name, names, "`/help` lists them"))
}

/// The command that begins like this, if there is one alone.
pub(super) fn completed(head: &str) -> Option<String> {
    if head.len() < 2 {
        return None;
    }
    let mut matching = COMMANDS.iter().filter(|(name, _, _)| name.starts_with(head));
    match (matching.next(), matching.next()) {
        (Some((name, arguments, _)), None) => {
            Some(if arguments.is_empty() { (*name).to_owned() } else { format!("{name} ") })
        }
        _none_or_several => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_a_slash_are_commands_and_paths_are_messages() {
        for (line, command) in [
            ("/help", Command::Help),
            ("  /undo 3 ", Command::Undo(3)),
            ("/undo", Command::Undo(1)),
            ("/diff", Command::Diff(false)),
            ("/diff all", Command::Diff(true)),
            ("/model openai/gpt", Command::Model(Some("openai/gpt".to_owned()))),
            ("/model", Command::Model(None)),
            ("/resume t-1", Command::Resume(Some("t-1".to_owned()))),
            ("/quit", Command::Exit),
        ] {
            assert_eq!(parse(line), Some(Ok(command)), "{line}");
        }
        for line in ["hello", "", "/", "/etc/passwd is what?", "/a\nb", "what is /help?"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn an_unknown_command_suggests_the_nearest() {
        for (line, said) in [
            ("/hlep", "did you mean `/help`?"),
            ("/mdel x", "did you mean `/model`?"),
            ("/xyzzy", "unknown command `/xyzzy`; `/help` lists them"),
            ("/help me", "`/help` takes no argument"),
            ("/undo x", "`/undo 2`"),
            ("/diff some", "`/diff` takes [all]"),
            ("/model a b", "one argument at most"),
        ] {
            let Some(Err(error)) = parse(line) else { panic!("{line}") };
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn the_beginning_of_a_command_is_completed() {
        for (head, whole) in [
            ("/h", Some("/help")),
            ("/mo", Some("/model ")),
            ("/", None),
            ("/x", None),
            ("/re", Some("/resume ")),
        ] {
            assert_eq!(completed(head).as_deref(), whole, "{head}");
        }
    }
}
