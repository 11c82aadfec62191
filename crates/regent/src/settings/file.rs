//! A settings file: what it sets, its mistakes, and changes that leave the rest of it as it is.

use std::path::{Path, PathBuf};

use regent_models::{CapabilityTable, SettingsError};
use toml_edit::{Document, DocumentMut, Item};

use super::{InProject, MODEL_SECTIONS, Origin, SettingKey, SettingKind, check, key};
use crate::codes;
use crate::controls::{self, Controls};
use crate::failure::{Excerpt, ExcerptMark, Failure};

/// A value that a file sets.
pub(super) type Read = (&'static SettingKey, String, Origin);

/// A file that can be changed.
#[derive(Debug)]
pub(crate) enum SettingsFile {
    /// The user's own.
    User(PathBuf),
    /// The project's, which may set less.
    Project(PathBuf),
}

impl SettingsFile {
    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        let (Self::User(path) | Self::Project(path)) = self;
        path
    }

    /// The first mistake that is in it.
    fn mistake(&self, text: &str) -> Option<Failure> {
        let mut mistakes = Vec::new();
        match self {
            Self::User(path) => drop(read_values(path, Some(text), &mut mistakes)),
            Self::Project(path) => drop(read_project_text(path, Some(text), &mut mistakes)),
        }
        mistakes.into_iter().next()
    }
}

/// Changes one value in a file and leaves everything else in it as it is, comments too. Gives back a mistake that is still in the file.
pub(crate) fn set(file: &SettingsFile, name: &str, value: &str) -> Result<Option<Failure>, Failure> {
    let key = key(name)?;
    check(key, value).map_err(|why| Failure::new(codes::CONFIG_VALUE, why))?;
    if matches!(file, SettingsFile::Project(_)) && key.in_project == InProject::Refused {
        // What was given in place of a file's path may be a secret.
        let value = if key.kind == SettingKind::SecretFile { "PATH" } else { value };
        return Err(Failure::new(codes::CONFIG_KEY, format!("`{name}` can't be set by a project"))
            .help(format!("set it in your own settings: `regent config set {name} {value}`")));
    }
    let (text, mut document) = parse(file.path())?;
    let (section, field) = name.split_once('.').unwrap_or((name, ""));
    let table = document.entry(section).or_insert_with(toml_edit::table);
    let Some(table) = table.as_table_like_mut() else {
        return Err(invalid(file.path(), &text, None, &format!("`{section}` is not a table"))
            .help(format!("`regent config unset {section}` removes it")));
    };
    table.insert(field, toml_edit::value(value));
    write(file, &document)
}

/// Removes one value from a file, also one that isn't a setting, so that a mistake can be taken out. Says whether it was there, and gives
/// back a mistake that is still in the file.
pub(crate) fn unset(file: &SettingsFile, name: &str) -> Result<(bool, Option<Failure>), Failure> {
    let (_text, mut document) = parse(file.path())?;
    let was_there = match name.split_once('.') {
        Some((section, field)) => {
            let table = document.get_mut(section).and_then(Item::as_table_like_mut);
            let removed = table.and_then(|table| Some((table.remove(field)?, table.is_empty())));
            if removed.as_ref().is_some_and(|(_, is_empty)| *is_empty) {
                document.remove(section);
            }
            removed.is_some()
        }
        // A whole section only if it isn't one.
        None => {
            let is_stray = document.get(name).is_some_and(|item| !item.is_table_like());
            is_stray && document.remove(name).is_some()
        }
    };
    if !was_there {
        key(name)?;
        return Ok((false, None));
    }
    write(file, &document).map(|left| (true, left))
}

fn parse(path: &Path) -> Result<(String, DocumentMut), Failure> {
    let text = controls::read_if_there(path)?.unwrap_or_default();
    let document = text.parse().map_err(|error: toml_edit::TomlError| {
        invalid(path, &text, error.span(), error.message()).help("correct the line in an editor")
    })?;
    Ok((text, document))
}

fn write(file: &SettingsFile, document: &DocumentMut) -> Result<Option<Failure>, Failure> {
    let text = document.to_string();
    crate::paths::write_private(file.path(), text.as_bytes())?;
    Ok(file.mistake(&text))
}

/// Refuses a project whose settings couldn't take effect.
pub(crate) fn check_project(controls: &Controls) -> Result<(), Failure> {
    let mut mistakes = Vec::new();
    read_project(controls, &mut mistakes);
    mistakes.into_iter().next().map_or(Ok(()), Err)
}

pub(super) fn read_project(controls: &Controls, mistakes: &mut Vec<Failure>) -> Vec<Read> {
    read_project_text(&controls.project().settings(), controls.settings(), mistakes)
}

/// A project's file has no say in which models there are, nor in what is the user's own: where conversations and connections go.
fn read_project_text(path: &Path, text: Option<&str>, mistakes: &mut Vec<Failure>) -> Vec<Read> {
    let document = text.and_then(|text| Document::parse(text).ok());
    for (name, item) in document.iter().flat_map(|document| document.iter()) {
        if MODEL_SECTIONS.contains(&name) {
            let why = format!("`{name}` can't be set by a project");
            let mistake = invalid(path, text.unwrap_or_default(), item.span(), &why);
            mistakes.push(mistake.help("set it in your own file"));
        }
    }
    let mut values = read_values(path, text, mistakes);
    values.retain(|(key, _, origin)| {
        let fine = key.in_project != InProject::Refused;
        if !fine {
            let name = key.name;
            let message = format!("`{name}` can't be set by a project ({origin})");
            mistakes.push(Failure::new(codes::CONFIG_INVALID, message).help(format!(
                "remove it: `regent config unset {name} --project`, and set it in your own settings: `regent config set {name} VALUE`"
            )));
        }
        fine
    });
    values
}

/// The models that a file sets up.
pub(super) fn models(path: &Path) -> Result<regent_models::Settings, Failure> {
    let Some(text) = controls::read_if_there(path)? else { return Ok(regent_models::Settings::default()) };
    // The main parser reports invalid TOML with a better message.
    if Document::parse(text.as_str()).is_err() {
        return Ok(regent_models::Settings::default());
    }
    regent_models::Settings::parse(&text).map_err(|error| {
        let span = match &error {
            SettingsError::Shape { span, .. } => span.clone(),
            SettingsError::Provider { name, .. } => text.find(&format!("models.{name}")).map(|at| at..at),
        };
        invalid(path, &text, span, &error.to_string())
    })
}

/// The user's own table of what models can do, if there is one.
pub(super) fn capabilities(path: &Path) -> Result<Option<CapabilityTable>, Failure> {
    let Some(text) = controls::read_if_there(path)? else { return Ok(None) };
    let table = CapabilityTable::parse(&text);
    table.map(Some).map_err(|error| invalid(path, &text, error.span, &error.message))
}

pub(super) fn read_file(path: &Path, mistakes: &mut Vec<Failure>) -> Vec<Read> {
    match controls::read_if_there(path) {
        Ok(text) => read_values(path, text.as_deref(), mistakes),
        Err(unreadable) => {
            mistakes.push(unreadable);
            Vec::new()
        }
    }
}

/// The values of a file that are valid.
fn read_values(path: &Path, text: Option<&str>, mistakes: &mut Vec<Failure>) -> Vec<Read> {
    let Some(text) = text else { return Vec::new() };
    let document = match Document::parse(text) {
        Ok(document) => document,
        Err(error) => {
            mistakes.push(invalid(path, text, error.span(), error.message()));
            return Vec::new();
        }
    };
    let mut values = Vec::new();
    for (section, item) in document.iter().filter(|(section, _)| !MODEL_SECTIONS.contains(section)) {
        let Some(table) = item.as_table_like() else {
            let why = format!("`{section}` is not a section of settings");
            mistakes.push(invalid(path, text, item.span(), &why));
            continue;
        };
        for (field, item) in table.iter() {
            match read_value(path, text, &format!("{section}.{field}"), item) {
                Ok(value) => values.push(value),
                Err(mistake) => mistakes.push(mistake),
            }
        }
    }
    values
}

fn read_value(path: &Path, text: &str, name: &str, item: &Item) -> Result<Read, Failure> {
    let removal = format!("`regent config unset {name}` removes it");
    let fail = |why: &str| invalid(path, text, item.span(), why);
    let key = key(name).map_err(|failure| {
        let help = failure.help.unwrap_or_default();
        fail(&failure.message).help(format!("{help}; {removal}"))
    })?;
    let value = scalar(item).ok_or_else(|| fail(&format!("`{name}` must be text")))?;
    let line = item.span().map_or(1, |span| place(text, span.start).0);
    check(key, &value).map_err(|why| match key.kind {
        // The excerpt would show the line, which may have a secret.
        SettingKind::SecretFile | SettingKind::Proxy => {
            Failure::new(codes::CONFIG_INVALID, format!("`{}`, line {line}: {why}", path.display()))
        }
        SettingKind::Word(_)
        | SettingKind::Duration
        | SettingKind::Keeping
        | SettingKind::Endpoints
        | SettingKind::Authorities
        | SettingKind::Words
        | SettingKind::Keys
        | SettingKind::Number(_)
        | SettingKind::Texts
        | SettingKind::Publishers => fail(&why),
    })?;
    Ok((key, value, Origin::File(path.to_owned(), line)))
}

fn scalar(item: &Item) -> Option<String> {
    match item.as_array() {
        Some(array) => {
            let parts: Option<Vec<&str>> = array.iter().map(toml_edit::Value::as_str).collect();
            parts.map(|parts| parts.join(","))
        }
        None => item
            .as_str()
            .map(str::to_owned)
            .or_else(|| item.as_bool().map(|truth| truth.to_string()))
            .or_else(|| item.as_integer().map(|number| number.to_string())),
    }
}

/// What is wrong in a TOML file, and where.
pub(crate) fn invalid(path: &Path, text: &str, span: Option<std::ops::Range<usize>>, why: &str) -> Failure {
    let span = span.unwrap_or(0..0);
    let (line, column) = place(text, span.start);
    let mark = ExcerptMark {
        line,
        column,
        offset: span.start,
        length: span.len(),
        message: why.to_owned(),
        help: None,
    };
    let excerpt = Excerpt { name: path.display().to_string(), text: text.to_owned(), marks: vec![mark] };
    Failure::new(codes::CONFIG_INVALID, format!("`{}`, line {line}: {why}", path.display())).excerpt(excerpt)
}

/// Line and column of a byte, both from 1.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}
