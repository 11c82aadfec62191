//! The files beside a policy that it refers to: the Rego of an ACS manifest. They are part of the policy: trusted, watched and signed with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use regent_policy::acs::Manifest;

use crate::codes;
use crate::controls;
use crate::failure::Failure;

/// Files of one policy.
const FILES_MAX: usize = 64;
/// Folders in folders.
const DEPTH_MAX: usize = 8;

/// The texts that a policy file refers to, by the names that it has for them.
pub(crate) fn beside(path: &Path, text: &str) -> Result<BTreeMap<String, String>, Failure> {
    beside_by(path, text, controls::read_file)
}

/// The same, with what gives the text of each file.
pub(crate) fn beside_by(
    path: &Path,
    text: &str,
    read: impl Fn(&Path) -> Result<String, Failure>,
) -> Result<BTreeMap<String, String>, Failure> {
    referred(path, text)?.into_iter().map(|(name, file)| Ok((name, read(&file)?))).collect()
}

/// Where they are. The policy loader reports a file that can't be read here.
pub(crate) fn files(path: &Path) -> Vec<PathBuf> {
    let found = controls::read_file(path).and_then(|text| referred(path, &text));
    found.unwrap_or_default().into_iter().map(|(_, file)| file).collect()
}

/// The files that a manifest refers to, with the names that it has for them.
pub(crate) fn referred(path: &Path, text: &str) -> Result<Vec<(String, PathBuf)>, Failure> {
    // What can't be read as a manifest is refused when it is loaded, and refers to nothing.
    let names = if Manifest::may_be_one(text) {
        Manifest::load(text).map(|one| one.refers_to())
    } else {
        Ok(Vec::new())
    };
    let mut found = Vec::new();
    for name in names.unwrap_or_default() {
        let root = path.parent().unwrap_or(Path::new("."));
        let root = root.canonicalize().map_err(|error| Failure::io("enter", root, &error))?;
        collect(&root, &name, 0, &mut found)?;
    }
    Ok(found)
}

fn collect(root: &Path, name: &str, depth: usize, found: &mut Vec<(String, PathBuf)>) -> Result<(), Failure> {
    let refused = |why: &str| {
        Failure::new(codes::POLICY_INVALID, format!("`{name}`, which the manifest refers to, {why}"))
    };
    let path = root.join(name);
    let path = path.canonicalize().map_err(|error| Failure::io("read", &path, &error))?;
    if !path.starts_with(root) {
        return Err(refused("is a link to outside of the manifest's folder"));
    }
    if depth > DEPTH_MAX || found.len() >= FILES_MAX {
        return Err(refused("is too deep, or there are too many files"));
    }
    if path.is_file() {
        found.push((name.to_owned(), path));
        return Ok(());
    }
    let read = |error: &std::io::Error| Failure::io("read", &path, error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(|error| read(&error))? {
        let entry = entry.map_err(|error| read(&error))?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.path().is_dir()));
    }
    names.sort();
    for (inner, is_folder) in names {
        let whole = format!("{name}/{inner}");
        if is_folder || (inner.ends_with(".rego") && !inner.ends_with("_test.rego")) {
            collect(root, &whole, depth + 1, found)?;
        } else if inner.starts_with("data.") {
            // Rules that look for it would find nothing, and might allow because of that.
            return Err(refused(&format!(
                "contains `{inner}`; data files aren't supported: put the data into the rules"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "agent_control_specification_version: 0.3.1-beta\npolicies: { p: { type: rego, bundle: ./rules, query: data.a.v } }\n\
        intervention_points: { input: { policy_target: $.input, policy: { id: p } } }\n";

    #[test]
    fn only_what_is_inside_and_is_rego() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("m/rules/deep")).unwrap();
        for (name, text) in [
            ("m/acs.yml", MANIFEST),
            ("m/rules/a.rego", "a"),
            ("m/rules/deep/b.rego", "b"),
            ("m/rules/a_test.rego", "t"),
            ("out.rego", "o"),
        ] {
            std::fs::write(at(name), text).unwrap();
        }
        let names =
            |text: &str| beside(&at("m/acs.yml"), text).map(|found| found.into_keys().collect::<Vec<_>>());
        assert_eq!(names(MANIFEST).unwrap(), ["rules/a.rego", "rules/deep/b.rego"]);
        assert_eq!(names("version: 1").unwrap(), Vec::<String>::new());
        assert!(names(&MANIFEST.replace("./rules", "./none")).is_err());
        std::os::unix::fs::symlink(at("out.rego"), at("m/rules/link.rego")).unwrap();
        assert!(names(MANIFEST).unwrap_err().message.contains("outside"));
        std::fs::remove_file(at("m/rules/link.rego")).unwrap();
        std::fs::write(at("m/rules/data.json"), "{}").unwrap();
        assert!(names(MANIFEST).unwrap_err().message.contains("data files"));
    }
}
