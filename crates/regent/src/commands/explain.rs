//! `regent explain`: more about an error code than fits into a message.

use clap::Args;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use serde_json::json;

use crate::codes;
use crate::context::Context;
use crate::failure::{Failure, did_you_mean};
use crate::output::{CommandResult, Done};

/// Explain an error code; without one, list all codes
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The code in an error message, e.g. folder.untrusted
    #[arg(add = ArgValueCandidates::new(candidates))]
    code: Option<String>,
}

pub(crate) fn run(context: &Context, args: &ExplainArgs) -> CommandResult {
    let screen = &context.screen;
    let Some(wanted) = &args.code else {
        let all = codes::all();
        let rows = all
            .iter()
            .map(|code| format!("{:<28} exit {:<3} {}\n", code.id, code.exit, first_sentence(code.text)));
        let list: Vec<_> =
            all.iter().map(|code| json!({"code": code.id, "exit": code.exit, "text": code.text})).collect();
        return Ok(Done::new(json!({"codes": list}), rows.collect::<String>()));
    };
    let Some(code) = codes::find(wanted) else {
        return Err(Failure::new(codes::UNKNOWN_CODE, format!("unknown error code `{wanted}`")).help(
            did_you_mean(wanted, codes::all().iter().map(|code| code.id), "`regent explain` lists all codes"),
        ));
    };
    let text = format!(
        "{} {}\n\n{}\n",
        screen.strong(code.id),
        screen.faint(&format!("(exit code {})", code.exit)),
        wrap(code.text, screen.width)
    );
    Ok(Done::new(json!({"code": code.id, "exit": code.exit, "text": code.text}), text))
}

fn first_sentence(text: &str) -> &str {
    text.split_once(". ").map_or(text, |(first, _)| first)
}

/// Breaks lines between words.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > width {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

fn candidates() -> Vec<CompletionCandidate> {
    codes::all().into_iter().map(|code| CompletionCandidate::new(code.id)).collect()
}
