//! The path of a file that was pasted, or dropped on the terminal, becomes a reference: `@path`.

use std::path::{Path, PathBuf};

/// Longer texts are no path.
const PATH_BYTES_MAX: usize = 4_096;

/// The reference to put in place of a pasted text; none if it isn't the path of a file that is there. Several are several references.
pub(super) fn reference(pasted: &str, root: &Path, home: Option<&Path>) -> Option<String> {
    let text = pasted.trim();
    if text.is_empty() || text.len() > PATH_BYTES_MAX || text.contains('\n') {
        return None;
    }
    let paths = words(text)?;
    let mut references = String::new();
    for word in paths {
        let path = place(&word, home)?;
        if !path.is_file() {
            return None;
        }
        let shown = path.strip_prefix(root).unwrap_or(&path).to_str()?.to_owned();
        let quoted =
            if shown.contains(char::is_whitespace) { format!("@\"{shown}\" ") } else { format!("@{shown} ") };
        references.push_str(&quoted);
    }
    Some(references)
}

/// Where a word leads, if it begins like a path that is whole.
fn place(word: &str, home: Option<&Path>) -> Option<PathBuf> {
    if let Some(rest) = word.strip_prefix("file://") {
        return rest.starts_with('/').then(|| PathBuf::from(decoded(rest)));
    }
    match word.strip_prefix("~/") {
        Some(rest) => home.map(|home| home.join(rest)),
        None => word.starts_with('/').then(|| PathBuf::from(word)),
    }
}

/// `%20` and the like.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.filter(|_| *byte == b'%').and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The words of a text as a shell has them: terminals quote the paths that are dropped on them. None if a quote has no end.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None | Some('"'), '\\') => word.push(chars.next()?),
            (None, ' ') => words.push(std::mem::take(&mut word)),
            (_, c) => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_file_becomes_a_reference_and_other_texts_stay() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("project");
        std::fs::create_dir(&root).unwrap();
        for name in ["a.png", "with space.txt"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::fs::write(folder.path().join("out.txt"), "").unwrap();
        let (inside, home) = (root.display().to_string(), folder.path());
        let outside = format!("@{}/out.txt ", home.display());
        for (pasted, reference_shown) in [
            (format!("{inside}/a.png"), Some("@a.png ".to_owned())),
            (format!("'{inside}/with space.txt' "), Some("@\"with space.txt\" ".to_owned())),
            (format!("{inside}/with\\ space.txt"), Some("@\"with space.txt\" ".to_owned())),
            (format!("file://{inside}/with%20space.txt"), Some("@\"with space.txt\" ".to_owned())),
            (format!("{inside}/a.png {inside}/a.png"), Some("@a.png @a.png ".to_owned())),
            ("~/out.txt".to_owned(), Some(outside)),
            (format!("{inside}/none.png"), None),
            (format!("look at {inside}/a.png"), None),
            (format!("{inside}/a.png\nand"), None),
            (inside.clone(), None),
            ("it's".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(reference(&pasted, &root, Some(home)), reference_shown, "{pasted}");
        }
    }
}
