//! The policies in force: the user's own, a signed bundle, tenants', and the project's below them.

use std::collections::BTreeMap;
use std::path::Path;

use regent_kernel::{Host, Policy};
use regent_policy::{Layer, LoadError, Source, Tallied};
use regent_store::{self as store, Partition, State};

use crate::bundles;
use crate::codes;
use crate::context::Context;
use crate::controls::{self, Controls};
use crate::failure::{Excerpt, ExcerptMark, Failure};
use crate::manifests;
use crate::paths::{self, Paths};

/// The user's policy with the project's below it.
pub(crate) fn policy(paths: &Paths, project: Option<&Controls>) -> Result<Policy, Failure> {
    let below = |user: Policy| -> Result<Policy, Failure> {
        Ok(match project {
            Some(project) => Policy::layered(user, project_policies(project)?),
            None => user,
        })
    };
    let active = below(own_policies(paths)?)?;
    let candidate = paths.candidate();
    if !paths::may_exist(&candidate) {
        return Ok(active);
    }
    // A candidate that doesn't load is no reason not to work; `policy shadow` says what is wrong with it.
    let Ok(candidate) = load_policy(&candidate, &candidate.display().to_string(), Layer::User) else {
        return Ok(active);
    };
    let digest = candidate.digest();
    Ok(active.shadowed(below(candidate)?, digest))
}

/// Counts that nobody has asked for in so long are swept.
const TALLY_KEPT_MS: i64 = 90 * 24 * 60 * 60 * 1000;

/// Where a candidate's counts are kept.
pub(crate) fn tally_key(candidate: &[u8; 32]) -> String {
    let digest: String = candidate.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("policy/shadow/{digest}")
}

/// Adds what a kernel has counted to what was counted before.
pub(super) async fn keep_tallies(context: &Context, host: &Host, state: &dyn State) {
    let until_ms = context.clock.now_ms().saturating_add(TALLY_KEPT_MS);
    for (candidate, counted) in host.take_tallies() {
        let key = tally_key(&candidate);
        let keys = [key.clone()];
        let kept = store::change(state, &Partition::containing(&key), &keys, |records| {
            let before: Tallied = records.load(&key)?.unwrap_or_default();
            records.save(&key, &before.plus(counted), until_ms)
        })
        .await;
        if let Err(error) = kept {
            context
                .screen
                .say(&format!("regent: the candidate policy's decisions aren't counted: {error}\n"));
        }
    }
}

/// All that is the user's: the policy, a manifest, the bundle in force, and those of tenants, each of which binds its own agents. Each
/// decides, and the strictest answer holds.
pub(crate) fn own_policies(paths: &Paths) -> Result<Policy, Failure> {
    let mut all: Vec<Policy> = Vec::new();
    let own = [paths.policy(), paths.manifest()].into_iter().filter(|path| paths::may_exist(path));
    for path in own.chain(paths.tenants()?) {
        all.push(load_policy(&path, &path.display().to_string(), Layer::User)?);
    }
    if let Some(bundle) = bundles::in_force(paths)? {
        all.extend(bundle.policies()?);
    }
    // What binds a tenant's agents alone is no policy for the rest.
    if !has_own(paths) {
        return Err(no_policy());
    }
    let mut all = all.into_iter();
    let first = all.next().ok_or_else(no_policy)?;
    Ok(all.fold(first, |so_far, one| Policy::layered(so_far, Some(one))))
}

/// The same, or the default policy where the user has none. What can't be looked at is there.
pub(super) fn own_or_default(paths: &Paths) -> Result<Policy, Failure> {
    if has_own(paths) {
        return own_policies(paths);
    }
    let source = Source::new("the default policy", Layer::User);
    regent_policy::load(regent_policy::DEFAULT_POLICY, &source)
        .map_err(|error| Failure::new(codes::INTERNAL, format!("the default policy is invalid: {error}")))
}

fn has_own(paths: &Paths) -> bool {
    [paths.policy(), paths.manifest(), paths.bundle()].iter().any(|path| paths::may_exist(path))
}

fn no_policy() -> Failure {
    Failure::new(codes::POLICY_NONE, "you have no policy yet, so everything is denied")
        .help("run `regent init`")
}

/// The project's policies, put together; none if it has none.
pub(crate) fn project_policies(controls: &Controls) -> Result<Option<Policy>, Failure> {
    let mut all: Option<Policy> = None;
    for path in controls.policies() {
        let (name, text) = (controls.project().short(path), controls.text(path)?);
        let beside = manifests::beside_by(path, &text, |file| controls.text(file))?;
        let one = loaded(&name, text, Layer::Project, beside)?;
        all = Some(match all {
            Some(others) => Policy::layered(others, Some(one)),
            None => one,
        });
    }
    Ok(all)
}

/// Loads one policy file; its mistakes come with line and column.
pub(crate) fn load_policy(path: &Path, name: &str, layer: Layer) -> Result<Policy, Failure> {
    let text = controls::read_file(path)?;
    let beside = manifests::beside(path, &text)?;
    loaded(name, text, layer, beside)
}

fn loaded(
    name: &str,
    text: String,
    layer: Layer,
    beside: BTreeMap<String, String>,
) -> Result<Policy, Failure> {
    let source = Source::new(name, layer).beside(beside);
    regent_policy::load(&text, &source).map_err(|error| invalid_policy(name, text, &error))
}

/// A policy's mistakes, with the lines they are in.
pub(crate) fn invalid_policy(name: &str, text: String, error: &LoadError) -> Failure {
    let marks = error.findings.iter().map(|finding| ExcerptMark {
        line: usize::try_from(finding.line).unwrap_or(usize::MAX),
        column: usize::try_from(finding.column).unwrap_or(usize::MAX),
        offset: finding.span.start,
        length: finding.span.end.saturating_sub(finding.span.start),
        message: finding.message.clone(),
        help: finding.help.clone(),
    });
    let marks: Vec<ExcerptMark> = marks.collect();
    let message = match marks.as_slice() {
        [one] => format!(
            "the policy `{name}` is invalid: line {}, column {}: {}",
            one.line, one.column, one.message
        ),
        many => format!("the policy `{name}` has {} errors", many.len()),
    };
    Failure::new(codes::POLICY_INVALID, message).excerpt(Excerpt { name: name.to_owned(), text, marks })
}
