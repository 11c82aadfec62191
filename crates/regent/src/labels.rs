//! Where corrections of tools' labels are read from: the user's `labels.toml`, and a trusted project's.

use std::path::Path;

use regent_protocols::labels::{Corrections, LabelFile, LabelFileError, Whose};

use crate::controls::{self, Controls};
use crate::failure::Failure;
use crate::paths::Paths;
use crate::settings::invalid;

/// Reads the user's file, and the project's if the project is trusted. Only "does not exist" means that there are none.
pub(crate) fn load(paths: &Paths, project: Option<&Controls>) -> Result<Corrections, Failure> {
    let path = paths.labels();
    let user = match controls::read_if_there(&path)? {
        Some(text) => parse(&path, &text, Whose::User)?,
        None => LabelFile::default(),
    };
    let project = match project.and_then(|controls| Some((controls, controls.labels()?))) {
        Some((controls, text)) => parse(&controls.project().labels(), text, Whose::Project)?,
        None => LabelFile::default(),
    };
    Ok(Corrections::new(user, project))
}

fn parse(path: &Path, text: &str, whose: Whose) -> Result<LabelFile, Failure> {
    LabelFile::parse(text, whose).map_err(|LabelFileError { span, why, is_toml }| {
        let failure = invalid(path, text, span, &why);
        if !is_toml {
            return failure;
        }
        failure.help(
            "use sections [tools.NAME] and [servers.SERVER.tools.NAME] with the keys effect, sinks, taint, secret and readers; `regent tool show NAME` prints one to copy",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_name_the_line_and_the_fix() {
        let failure =
            parse(Path::new("labels.toml"), "\n[tools.a]\nsecret = true\n", Whose::User).unwrap_err();
        assert_eq!(failure.code, "config.invalid");
        assert!(failure.message.contains("`labels.toml`, line 2: `a` needs `effect`"), "{}", failure.message);
        let failure = parse(Path::new("labels.toml"), "[tools.a\n", Whose::User).unwrap_err();
        assert!(failure.message.contains("line 1"), "{}", failure.message);
    }
}
