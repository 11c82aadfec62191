//! Trees, mappings and open files on their own. Who may reach what is tried in the kernel.

use regent_policy::{Confidentiality, Integrity};

use super::*;

const OWN: Label = Label { integrity: Integrity::OwnModel, confidentiality: Confidentiality::Internal };

fn grown(names: &[&str]) -> Vfs {
    let vfs = Vfs::default();
    for name in names {
        vfs.grow(AgentId::from(*name), BTreeMap::new());
    }
    vfs
}

/// A path as `a` spells it.
fn path(text: &str) -> VfsPath {
    VfsPath::parse(text, &AgentId::from("a")).unwrap()
}

fn place(vfs: &Vfs, text: &str) -> MountedPath {
    vfs.find(&path(text)).unwrap().place(&path(text)).unwrap()
}

#[test]
fn a_tree_is_grown_once() {
    let vfs = grown(&["a"]);
    place(&vfs, "/self/mem/working/x").put(b"kept", OWN).unwrap();
    vfs.grow(AgentId::from("a"), BTreeMap::new());
    assert_eq!(place(&vfs, "/self/mem/working/x").read(0, 9).unwrap().bytes, b"kept");
    vfs.fell(&AgentId::from("a"));
    assert_eq!(vfs.find(&path("/self/mem")).unwrap_err().code(), "vfs.not_found");
    assert_eq!(
        vfs.open(&AgentId::from("a"), path("/self/mem/working/x"), OpenMode::Read).unwrap_err().code(),
        "vfs.not_found"
    );
}

#[test]
fn a_mapping_leads_to_the_mount_and_outlives_the_tree_it_came_from() {
    let vfs = grown(&["a", "b"]);
    place(&vfs, "/self/mem/working/plan").put(b"1", OWN).unwrap();
    let source = place(&vfs, "/self/mem/working").narrowed(false).unwrap();
    vfs.map(source, &path("/agent/b/mnt/plans")).unwrap();
    // Mapped once more, it can still only be read.
    assert!(place(&vfs, "/agent/b/mnt/plans").narrowed(true).is_err());
    let again = place(&vfs, "/agent/b/mnt/plans").narrowed(false).unwrap();
    vfs.map(again, &path("/agent/b/mnt/again")).unwrap();
    vfs.unmap(&path("/agent/b/mnt/plans")).unwrap();
    vfs.fell(&AgentId::from("a"));
    let plan = place(&vfs, "/agent/b/mnt/again/plan");
    assert_eq!(plan.read(0, 9).unwrap(), Content { bytes: b"1".to_vec(), label: OWN });
    assert_eq!(plan.put(b"2", OWN).unwrap_err().code(), "vfs.read_only");
    assert_eq!(vfs.unmap(&path("/agent/b/mem")).unwrap_err().code(), "vfs.not_found");
}

#[test]
fn a_number_means_one_file_of_one_agent() {
    let vfs = grown(&["a", "b"]);
    let (a, b) = (AgentId::from("a"), AgentId::from("b"));
    let fd = vfs.open(&a, path("/self/mem/working/x"), OpenMode::Write).unwrap();
    assert_eq!(vfs.opened(&a, fd).unwrap(), (path("/self/mem/working/x"), OpenMode::Write));
    assert_eq!(vfs.opened(&b, fd).unwrap_err().code(), "vfs.not_open");
    vfs.close(&a, fd).unwrap();
    assert_eq!(vfs.close(&a, fd).unwrap_err().code(), "vfs.not_open");
    assert_ne!(vfs.open(&a, path("/self/mem/working/x"), OpenMode::Write).unwrap(), fd);
    vfs.close_all(&a);
    assert_eq!(vfs.opened(&a, Fd(1)).unwrap_err().code(), "vfs.not_open");
}

#[test]
fn the_newest_of_the_state_are_kept() {
    let vfs = grown(&["a"]);
    let a = AgentId::from("a");
    for number in 0..STATE_FILES_KEPT_MAX + 3 {
        assert!(vfs.keep_state(&a, &format!("checkpoints/{number}"), b"{}", OWN));
    }
    let names = place(&vfs, "/self/state/checkpoints").list().unwrap().names;
    assert_eq!(names.len(), STATE_FILES_KEPT_MAX);
    assert!(!names.contains(&"2".to_owned()) && names.contains(&"3".to_owned()));
    assert_eq!(
        place(&vfs, "/self/state/checkpoints/9").put(b"forged", OWN).unwrap_err().code(),
        "vfs.read_only"
    );
}
