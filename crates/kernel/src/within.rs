//! What a tool's own calls may use: no more than the tool was granted, however deep they go. This narrows; policy still has to allow.

use regent_policy::Reason;

use crate::call::Call;
use crate::catalogue::ToolSpec;
use crate::facts::{Sheet, Target, refusal};

/// Says no to a call that goes beyond what one of the tools it is made from was granted.
pub(crate) fn beyond(call: &Call, sheet: &Sheet) -> Option<Reason> {
    let outer = call.within.iter().find(|outer| !lets(outer.spec(), call, sheet))?;
    let wanted = sheet.tool.as_ref().map_or(call.op.name(), |tool| tool.spec().name.as_str());
    let message = format!("`{}` lacks the permission for `{wanted}`", outer.spec().name);
    Some(refusal("tool.not_granted", message, "grant it to the tool if it needs it"))
}

fn lets(outer: &ToolSpec, call: &Call, sheet: &Sheet) -> bool {
    let Some(may) = &outer.may else { return true };
    let names = |own: &String, word: &str| match own.strip_suffix('*') {
        Some(family) => family.ends_with('.') && word.starts_with(family),
        None => own == word,
    };
    let has = |word: &str| may.iter().any(|own| names(own, word));
    if may.iter().any(|own| own == "*") {
        return true;
    }
    // A secret is never part of something else that was granted.
    if sheet.resources.iter().any(|target| matches!(target, Target::Secret(_)))
        && !has(regent_policy::SECRET_USE)
    {
        return false;
    }
    let Some(tool) = &sheet.tool else { return has(call.op.name()) };
    let covered = |capability: &String| {
        let at_place = |own: &String| {
            let place = own.strip_prefix(capability.as_str()).and_then(|rest| rest.strip_prefix(':'));
            place.is_some_and(|place| reaches_only(sheet, place))
        };
        has(capability) || may.iter().any(at_place)
    };
    let capabilities = &tool.spec().capabilities;
    has(&tool.spec().name) || (!capabilities.is_empty() && capabilities.iter().all(covered))
}

/// Whether everything that a call reaches for lies at the place, and there is something.
fn reaches_only(sheet: &Sheet, place: &str) -> bool {
    let below = |path: &str| {
        let rest =
            if place == "." { (!path.starts_with('/')).then_some("") } else { path.strip_prefix(place) };
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let inside = |target: &Target| match target {
        Target::Path { path, .. } => below(path),
        Target::Endpoint { host, .. } => host == place,
        Target::Argv(_) => false,
        Target::Secret(_) => true,
    };
    !sheet.resources.is_empty() && sheet.resources.iter().all(inside)
}
