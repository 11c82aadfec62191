//! Doc comments: the description of the tool, and of its arguments.

use std::collections::BTreeMap;

use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// What a function's doc comment says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Prose {
    /// About the tool, in one line.
    pub(crate) description: String,
    /// About its arguments: `- name: text`.
    pub(crate) arguments: BTreeMap<String, String>,
}

impl Prose {
    /// Reads the lines of a doc comment. A list item that names one of `names` is about that argument; everything else is about the
    /// tool.
    pub(crate) fn read(text: &str, names: &[String]) -> Self {
        let mut prose = Self::default();
        let mut about: Option<String> = None;
        for line in text.lines() {
            let line = line.trim();
            if line.is_empty() {
                about = None;
                continue;
            }
            let item = line.strip_prefix("- ").and_then(|item| item.split_once(':'));
            match item.map(|(name, rest)| (name.trim().trim_matches('`'), rest)) {
                Some((name, rest)) if names.iter().any(|known| known == name) => {
                    prose.arguments.insert(name.to_owned(), rest.trim().to_owned());
                    about = Some(name.to_owned());
                }
                Some(_) | None => match about.as_ref().and_then(|name| prose.arguments.get_mut(name)) {
                    Some(argument) => push(argument, line),
                    None => push(&mut prose.description, line),
                },
            }
        }
        prose
    }
}

fn push(text: &mut String, line: &str) {
    if !text.is_empty() {
        text.push(' ');
    }
    text.push_str(line);
}

/// The text of the doc comments among some attributes.
pub(crate) fn doc_text(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let Meta::NameValue(pair) = &attribute.meta
            && let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &pair.value
        {
            text.push_str(&line.value());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_items_are_about_arguments_and_the_rest_about_the_tool() {
        let text = " Counts words.\n More about it: yes.\n\n - text: what to\n   count in\n - `words`: count words\n - other: stays\n\n The end.";
        let prose = Prose::read(text, &["text".to_owned(), "words".to_owned()]);
        assert_eq!(prose.arguments["text"], "what to count in");
        assert_eq!(prose.arguments["words"], "count words - other: stays");
        assert_eq!(prose.description, "Counts words. More about it: yes. The end.");
    }
}
