//! The parts of a conversation: whether they are where they belong and what they say they are, and whether a model takes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{Inference, Message, Part, Role};

use crate::capability::Capability;
use crate::provider::Provider;

/// Parts of one turn, or of one tool's answer.
const PARTS_MAX: usize = 4_096;
/// The longest name of a file and of a format.
const NAME_CHARS_MAX: usize = 255;

/// What is wrong with the parts of a conversation, for any provider.
pub(super) fn check(messages: &[Message]) -> Result<(), String> {
    messages.iter().try_for_each(|message| check_parts(message.role, &message.parts))
}

fn check_parts(role: Role, parts: &[Part]) -> Result<(), String> {
    if parts.len() > PARTS_MAX {
        return Err(format!("a turn has at most {PARTS_MAX} parts"));
    }
    parts.iter().try_for_each(|part| check_part(role, part))
}

fn check_part(role: Role, part: &Part) -> Result<(), String> {
    let (kind, fits) = match part {
        Part::Text { .. } => ("text", true),
        Part::Image { media_type, payload } => {
            check_payload(media_type, payload)?;
            ("image", matches!(role, Role::User | Role::Tool))
        }
        Part::File { media_type, name, payload } => {
            check_payload(media_type, payload)?;
            if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.contains(char::is_control) {
                return Err(format!(
                    "a file's name has 1 to {NAME_CHARS_MAX} letters and no control characters"
                ));
            }
            ("file", matches!(role, Role::User | Role::Tool))
        }
        Part::ToolUse(_) => ("tool_use", role == Role::Assistant),
        Part::ToolResult { parts, .. } => {
            check_parts(role, parts)?;
            ("tool_result", role == Role::Tool)
        }
        Part::Reasoning(_) => ("reasoning", role == Role::Assistant),
    };
    if fits { Ok(()) } else { Err(format!("a part of type `{kind}` is in the turn of another role")) }
}

fn check_payload(media_type: &str, payload: &str) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".+-/".contains(&byte);
    let is_type = media_type.split('/').filter(|half| !half.is_empty()).count() == 2
        && media_type.len() <= NAME_CHARS_MAX
        && media_type.bytes().all(is_letter);
    if !is_type {
        return Err("a `media_type` has the form `image/png`".to_owned());
    }
    if payload.is_empty() || STANDARD.decode(payload).is_err() {
        return Err("a `payload` is base64 with padding, and not empty".to_owned());
    }
    Ok(())
}

/// The first part that a model has no use for, in words.
pub(super) fn refused(
    inference: &Inference,
    provider: &dyn Provider,
    capability: &Capability,
) -> Option<String> {
    let takes = |part: &Part| {
        provider.takes(part)
            && match part {
                Part::Image { .. } => capability.images,
                Part::File { .. } => capability.files,
                Part::Text { .. } | Part::ToolUse(_) | Part::ToolResult { .. } | Part::Reasoning(_) => true,
            }
    };
    inference.messages.iter().flat_map(|message| &message.parts).find_map(|part| refused_in(part, &takes))
}

fn refused_in(part: &Part, takes: &impl Fn(&Part) -> bool) -> Option<String> {
    match part {
        Part::Image { media_type, .. } => (!takes(part)).then(|| format!("image of type `{media_type}`")),
        Part::File { media_type, name, .. } => {
            let name = name.escape_debug();
            (!takes(part)).then(|| format!("file of type `{media_type}` (`{name}`)"))
        }
        Part::ToolResult { parts, .. } => parts.iter().find_map(|part| refused_in(part, takes)),
        Part::Text { .. } | Part::ToolUse(_) | Part::Reasoning(_) => None,
    }
}
