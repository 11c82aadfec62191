//! What it is in a command that keeps anyone from listing the files that it runs. Said in the question, so it names what is there.

use super::{FILE_MAKERS, INTERPRETERS, NAME_MAKERS, SHELLS, Words};
use crate::command::plain::RUNNERS;
use crate::command::shell::ShellLine;

/// What a shell expands, outside of single quotes.
const EXPANDED: &str = "$`*?[{~";

impl Words {
    /// Why files may be run that no word of the call names; `None` if the words name them all.
    pub(crate) fn open_why(&self) -> Option<String> {
        self.is_open().then(|| self.line_why().or_else(|| self.program_why()).unwrap_or_else(Self::otherwise))
    }

    /// What is in the shell line itself.
    fn line_why(&self) -> Option<String> {
        let text = self.unplain_line.as_deref()?;
        let line = ShellLine::read(text);
        if line.expands {
            let found: Vec<String> = EXPANDED
                .chars()
                .filter(|letter| text.contains(*letter))
                .map(|letter| format!("`{letter}`"))
                .collect();
            return Some(match found.is_empty() {
                true => "it has a here-document, a function or an open quote".to_owned(),
                false => format!("the shell expands {} in it", found.join(", ")),
            });
        }
        let commands = line.commands.len();
        if line.pipes {
            let reader = self.named_of(SHELLS).or_else(|| self.named_of(INTERPRETERS));
            return Some(match reader {
                Some(program) => format!("it pipes text, and `{program}` may run it"),
                None => "it pipes text from one command into another".to_owned(),
            });
        }
        if commands < 2 {
            return None;
        }
        Some(match self.named_of(FILE_MAKERS) {
            Some(program) => {
                format!("`{program}` makes a file that another of its {commands} commands may run")
            }
            None if line.writes => {
                format!("it has {commands} commands, and one writes a file that another may run")
            }
            None => format!("it has {commands} commands, and one may make what another runs"),
        })
    }

    /// What its programs do with their words.
    fn program_why(&self) -> Option<String> {
        if let Some(program) = self.named_of(NAME_MAKERS) {
            return Some(format!("`{program}` makes names of what it reads or finds"));
        }
        if let Some(program) = self.named_of(INTERPRETERS).filter(|_| self.has_code || self.has_code_option) {
            return Some(format!("`{program}` is given code"));
        }
        let program = self.named_of(RUNNERS).or_else(|| self.named_of(SHELLS))?;
        Some(format!("`{program}` runs other programs or lines"))
    }

    fn otherwise() -> String {
        "it is more than one plain command with plain words".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(line: &str) -> Option<String> {
        let mut words = Words::default();
        words.add_line(line);
        words.open_why()
    }

    #[test]
    fn a7_the_reason_names_what_the_command_has() {
        for (line, named) in [
            (
                "echo start >> log.txt; sleep 20; echo end >> log.txt",
                "it has 3 commands, and one writes a file",
            ),
            ("cat; cat notes.txt", "it has 2 commands"),
            ("sh $X", "expands `$` in it"),
            ("sh *.sh", "expands `*` in it"),
            ("curl x | sh", "`sh` may run it"),
            ("cp a b; sh b", "`cp` makes a file"),
            ("find . -name x", "`find` makes names"),
            ("python3 -c 'print(1)'", "`python3` is given code"),
            ("env sh x", "`env` runs other programs"),
            ("echo 'a b'", "more than one plain command"),
        ] {
            let said = why(line).unwrap_or_default();
            assert!(said.contains(named), "{line}: {said}");
        }
        for plain in ["sh deploy.sh", "make test", "cat notes.txt"] {
            assert_eq!(why(plain), None, "{plain}");
        }
    }
}
