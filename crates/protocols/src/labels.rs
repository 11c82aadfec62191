//! Label corrections: overrides of tool labels by the user and by a trusted project, in `labels.toml`.
//!
//! The user's file replaces what a host declared or Regent inferred. A project's file comes with a clone, so it can only make labels
//! stricter. An unreadable file, or an unknown key or value, is an error: a silently ignored correction would leave a tool trusted that its
//! author has stopped trusting.

pub mod known;
pub mod stores;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use regent_kernel::{FieldLabels, LabelEffect, Taint, Whole};
use toml_edit::{Document, Item, TableLike};

/// The entry for one tool in one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Correction {
    effect: Option<LabelEffect>,
    sinks: Option<BTreeSet<String>>,
    taint: Option<Taint>,
    secret: Option<bool>,
    readers: Option<BTreeSet<String>>,
}

/// One file.
#[derive(Debug, Default)]
pub struct LabelFile {
    /// Corrections by tool name, for any server.
    tools: BTreeMap<String, Correction>,
    /// Corrections by server and tool. Server names are in lower case.
    servers: BTreeMap<String, BTreeMap<String, Correction>>,
}

/// The active corrections.
#[derive(Debug, Default)]
pub struct Corrections {
    user: LabelFile,
    project: LabelFile,
}

/// Labels after corrections.
#[derive(Debug, Clone, PartialEq)]
pub struct Corrected {
    /// The active labels.
    pub labels: FieldLabels,
    /// Whether the user's file has an entry for the tool.
    pub by_user: bool,
    /// Whether the project's file made a label stricter.
    pub by_project: bool,
}

/// An invalid labels file.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct LabelFileError {
    /// The position of the error.
    pub span: Option<Range<usize>>,
    /// What is wrong there.
    pub why: String,
    /// Whether the file is valid TOML and only its content is invalid.
    pub is_toml: bool,
}

/// The owner of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The user: the file replaces labels.
    User,
    /// A project: the file makes labels stricter.
    Project,
}

impl Corrections {
    /// The corrections of the user's file and of a trusted project's.
    pub fn new(user: LabelFile, project: LabelFile) -> Self {
        Self { user, project }
    }

    /// The labels of a tool, given its labels `base` without corrections.
    pub fn apply(&self, name: &str, server: &str, base: FieldLabels) -> Result<Corrected, String> {
        let user = self.user.find(name, server);
        let labels = match user {
            Some(user) => user.replace(base),
            None => base,
        };
        let Some(project) = self.project.find(name, server) else {
            return Ok(Corrected { labels, by_user: user.is_some(), by_project: false });
        };
        let narrowed = project
            .narrow(labels.clone())
            .map_err(|why| format!("the project's `labels.toml`, tool `{name}`: {why}"))?;
        let by_project = narrowed != labels;
        Ok(Corrected { labels: narrowed, by_user: user.is_some(), by_project })
    }
}

impl LabelFile {
    fn find(&self, name: &str, server: &str) -> Option<&Correction> {
        let of_server = self.servers.get(&server.to_lowercase()).filter(|_| !server.is_empty());
        of_server.and_then(|tools| tools.get(name)).or_else(|| self.tools.get(name))
    }

    /// Reads the text of a file.
    pub fn parse(text: &str, whose: Whose) -> Result<Self, LabelFileError> {
        let fail = |item: Option<&Item>, why: &str| LabelFileError {
            span: item.and_then(Item::span),
            why: why.to_owned(),
            is_toml: true,
        };
        let document = Document::parse(text).map_err(|error| LabelFileError {
            span: error.span(),
            why: error.message().to_owned(),
            is_toml: false,
        })?;
        let mut file = Self::default();
        for (section, item) in document.iter() {
            let table = item
                .as_table_like()
                .ok_or_else(|| fail(Some(item), &format!("`{section}` is not a section")))?;
            match section {
                "tools" => file.tools = tools(table, whose, &fail)?,
                "servers" => {
                    for (server, item) in table.iter() {
                        let within = item
                            .as_table_like()
                            .filter(|within| within.iter().all(|(key, _)| key == "tools"));
                        let within =
                            within.and_then(|within| within.get("tools")).and_then(Item::as_table_like);
                        let within = within.ok_or_else(|| {
                            fail(Some(item), &format!("`servers.{server}` has one section, `tools`"))
                        })?;
                        if file.servers.insert(server.to_lowercase(), tools(within, whose, &fail)?).is_some()
                        {
                            return Err(fail(Some(item), &format!("`servers.{server}` occurs twice")));
                        }
                    }
                }
                unknown => {
                    return Err(fail(Some(item), &format!("`{unknown}` is neither `tools` nor `servers`")));
                }
            }
        }
        Ok(file)
    }
}

fn tools(
    table: &dyn TableLike,
    whose: Whose,
    fail: &dyn Fn(Option<&Item>, &str) -> LabelFileError,
) -> Result<BTreeMap<String, Correction>, LabelFileError> {
    let one = |(name, item): (&str, &Item)| {
        let entry =
            item.as_table_like().ok_or_else(|| fail(Some(item), &format!("`{name}` is not a section")))?;
        let mut correction = Correction::default();
        for (key, value) in entry.iter() {
            correction.set(key, value).map_err(|why| fail(Some(value), &format!("`{name}`: {why}")))?;
        }
        // A user's entry vouches for the tool, so it must be complete.
        let is_whole =
            correction.effect.is_some() && correction.sinks.is_some() && correction.taint.is_some();
        if whose == Whose::User && !is_whole {
            return Err(fail(Some(item), &format!("`{name}` needs `effect`, `sinks` and `taint`")));
        }
        Ok((name.to_owned(), correction))
    };
    table.iter().map(one).collect()
}

impl Correction {
    fn set(&mut self, key: &str, value: &Item) -> Result<(), String> {
        let list = || names(value).ok_or_else(|| format!("`{key}` must be a list of names"));
        match key {
            "effect" => {
                self.effect = Some(match value.as_str() {
                    Some("read") => LabelEffect::Read,
                    Some("egress") => LabelEffect::Egress,
                    Some("write") => LabelEffect::Write,
                    Some(_) | None => {
                        return Err("`effect` must be \"read\", \"egress\" or \"write\"".to_owned());
                    }
                });
            }
            "sinks" => self.sinks = Some(list()?),
            "taint" => {
                self.taint = Some(match (value.as_str(), names(value)) {
                    (Some("none"), _) => Taint::Whole(Whole::None),
                    (Some("all"), _) => Taint::Whole(Whole::All),
                    (Some("observed"), _) => Taint::Whole(Whole::Observed),
                    (None, Some(fields)) if !fields.is_empty() => Taint::Fields(fields),
                    (Some(_), _) | (None, _) => {
                        return Err(
                            "`taint` must be \"none\", \"all\", \"observed\" or a list of fields".to_owned()
                        );
                    }
                });
            }
            "secret" => self.secret = Some(value.as_bool().ok_or("`secret` must be true or false")?),
            "readers" => self.readers = Some(list()?),
            unknown => return Err(format!("unknown label `{unknown}`")),
        }
        Ok(())
    }

    /// Applies a user's entry: it replaces labels and vouches for the tool. Missing keys keep the old labels.
    fn replace(&self, base: FieldLabels) -> FieldLabels {
        let Self { effect, sinks, taint, secret, readers } = self.clone();
        FieldLabels {
            effect: effect.unwrap_or(base.effect),
            sinks: sinks.unwrap_or(base.sinks),
            taint: taint.unwrap_or(base.taint),
            secret: secret.unwrap_or(base.secret),
            readers: readers.unwrap_or(base.readers),
            inferred: false,
            ..base
        }
    }

    /// Applies a project's entry: the stricter of both labels.
    fn narrow(&self, mut labels: FieldLabels) -> Result<FieldLabels, String> {
        // The output of a write would count as created by the session. An egress is judged as strictly but creates nothing.
        if self.effect.is_some_and(|effect| effect > labels.effect) {
            labels.effect = LabelEffect::Egress;
        }
        let own = labels.sinks.clone();
        labels.also_sinks.extend(self.sinks.iter().flatten().filter(|sink| !own.contains(*sink)).cloned());
        labels.secret |= self.secret == Some(true);
        match &self.taint {
            Some(Taint::Whole(Whole::None)) | None => {}
            Some(Taint::Whole(Whole::All)) => labels.taint = Taint::Whole(Whole::All),
            Some(Taint::Whole(Whole::Observed)) => {
                match std::mem::replace(&mut labels.taint, Taint::Whole(Whole::Observed)) {
                    Taint::Whole(Whole::All) => labels.taint = Taint::Whole(Whole::All),
                    Taint::Whole(Whole::None | Whole::Observed) => {}
                    Taint::Fields(fields) => labels.remembered.extend(fields),
                }
            }
            Some(Taint::Fields(more)) => match &mut labels.taint {
                Taint::Whole(Whole::All) => {}
                Taint::Whole(Whole::Observed) => labels.remembered.extend(more.iter().cloned()),
                Taint::Whole(Whole::None) => labels.taint = Taint::Fields(more.clone()),
                Taint::Fields(fields) => fields.extend(more.iter().cloned()),
            },
        }
        // A project can't name readers for output that nobody else may read.
        let is_for_nobody = labels.secret && labels.readers.is_empty();
        if let Some(readers) = self.readers.as_ref().filter(|readers| !readers.is_empty() && !is_for_nobody) {
            let both = &labels.readers & readers;
            labels.readers = match (labels.readers.is_empty(), both.is_empty()) {
                (true, _) => readers.clone(),
                (false, false) => both,
                (false, true) => {
                    return Err(
                        "`readers` has nobody in common with the active readers; name one of them".to_owned()
                    );
                }
            };
        }
        Ok(labels)
    }
}

/// Labels as an entry to copy and edit.
pub fn snippet(name: &str, server: &str, labels: &FieldLabels) -> String {
    let quoted = |text: &str| toml_edit::Value::from(text).to_string();
    let list = |names: &BTreeSet<String>| {
        format!("[{}]", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", "))
    };
    let key = |name: &str| toml_edit::Key::new(name).to_string();
    let section = match server.is_empty() {
        true => format!("[tools.{}]", key(name)),
        false => format!("[servers.{}.tools.{}]", key(server), key(name)),
    };
    let taint = match &labels.taint {
        Taint::Fields(fields) => list(fields),
        Taint::Whole(whole) => quoted(taint_word(*whole)),
    };
    let mut text = format!(
        "{section}\neffect = {}\nsinks = {}\ntaint = {taint}\nsecret = {}\n",
        quoted(effect_word(labels.effect)),
        list(&labels.sinks),
        labels.secret
    );
    if !labels.readers.is_empty() {
        text.push_str(&format!("readers = {}\n", list(&labels.readers)));
    }
    text
}

/// The spelling of an effect in files.
pub fn effect_word(effect: LabelEffect) -> &'static str {
    match effect {
        LabelEffect::Read => "read",
        LabelEffect::Egress => "egress",
        LabelEffect::Write => "write",
    }
}

/// The spelling of a taint in files.
pub fn taint_word(taint: Whole) -> &'static str {
    match taint {
        Whole::None => "none",
        Whole::All => "all",
        Whole::Observed => "observed",
    }
}

fn names(value: &Item) -> Option<BTreeSet<String>> {
    value.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
