//! The checks that packages of every source must pass.

use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

fn package(paths: &[&str]) -> Result<Package, SkillError> {
    let mut package = Package::default();
    for path in paths {
        package.add(path.as_bytes(), path.as_bytes().to_vec(), false)?;
    }
    Ok(package)
}

#[test]
fn adv_012_paths_stay_inside() {
    for path in [
        "../a",
        "a/../../b",
        "/etc/passwd",
        "a//b",
        "a/./b",
        "",
        ".",
        "..",
        "a\\..\\b",
        "C:\\a",
        "c:/a",
        "a/",
        "a\0b",
        "a\nb",
        "a\u{202e}b",
        ".git/hooks/pre-commit",
        "a/.GIT/config",
        "trailing.",
        "trailing ",
        "\u{200b}",
    ] {
        assert!(package(&[path]).is_err(), "{path:?}");
    }
    assert!(Package::default().add(b"a\xff", Vec::new(), false).is_err());
    assert!(package(&[&"a/".repeat(40), "b"]).is_err());
    assert!(package(&[&"a".repeat(300)]).is_err());
    assert_eq!(checked_path(b"./a/b").unwrap(), "a/b");
}

#[test]
fn adv_012_names_do_not_collide() {
    for paths in [
        &["a", "a"][..],
        &["SKILL.md", "skill.md"],
        &["scripts/a", "Scripts/b"],
        &["a", "a/b"],
        &["a/b", "a"],
        &["STRASSE/a", "strasse/b"],
        &["É", "é"],
    ] {
        assert!(matches!(package(paths), Err(SkillError::Package(_))), "{paths:?}");
    }
    assert!(package(&["a-b", "a/b", "a.b", "ab"]).is_ok());
}

#[test]
fn rejects_packages_beyond_limits() {
    let mut package = Package::default();
    for index in 0..FILES_MAX {
        package.add(format!("f{index}").as_bytes(), Vec::new(), false).unwrap();
    }
    assert!(package.add(b"one-more", Vec::new(), false).is_err());
    let large = usize::try_from(FILE_BYTES_MAX).unwrap() + 1;
    assert!(Package::default().add(b"large", vec![0; large], false).is_err());
}

#[test]
fn adv_012_rejects_folders_with_links_and_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("skill");
    let make = || {
        drop(std::fs::remove_dir_all(&root));
        std::fs::create_dir_all(root.join("sub/.git")).unwrap();
        std::fs::remove_dir(root.join("sub/.git")).unwrap();
        std::fs::create_dir_all(root.join(".git/hooks")).unwrap();
        std::fs::write(root.join(".git/hooks/x"), "left out").unwrap();
        std::fs::write(root.join("SKILL.md"), "text").unwrap();
    };
    make();
    assert_eq!(Package::read(&root).unwrap().paths().collect::<Vec<_>>(), ["SKILL.md"]);
    symlink("/etc/passwd", root.join("sub/link")).unwrap();
    assert!(matches!(Package::read(&root), Err(SkillError::Package(why)) if why.contains("sub/link")));
    make();
    symlink("/etc", root.join("sub/folder")).unwrap();
    assert!(Package::read(&root).is_err());
    make();
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    assert!(matches!(Package::read(&root), Err(SkillError::Package(why)) if why.contains("pipe")));
    make();
    symlink(&root, folder.path().join("elsewhere")).unwrap();
    assert!(Package::read(&folder.path().join("elsewhere")).is_err());
}

proptest! {
    #[test]
    fn accepted_paths_stay_inside(path in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(path) = checked_path(&path) {
            let path = Path::new(&path);
            prop_assert!(path.is_relative());
            prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
        }
    }

}

proptest! {
    // Each case writes files and syncs them.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn written_packages_read_back_unchanged(names in proptest::collection::btree_set("[a-z]{1,8}(/[a-z]{1,8}){0,3}", 1..12)) {
        let mut package = Package::default();
        for name in &names {
            // `add` rejects paths that are both file and folder.
            drop(package.add(name.as_bytes(), name.clone().into_bytes(), name.len() % 2 == 0));
        }
        let folder = tempfile::tempdir().unwrap();
        package.write_to(folder.path()).unwrap();
        prop_assert_eq!(&Package::from_folder(folder.path()).unwrap().files, &package.files);
    }
}
