//! Names that change while folders move, and copies that would make a repository.

use super::*;
use crate::turn::Moves;

#[test]
fn what_is_written_beside_a_move_of_its_folder_stays_where_it_was_judged() {
    let place = WorkspaceFixture::new();
    let (workspace, limits) = (&place.workspace, TreeLimits { entries_max: 100, bytes_max: 1 << 30 });
    let content = vec![b'x'; 2 << 20];
    workspace.place("large", &content, Placement::Create).unwrap();
    let (mut written, mut moved) = (0, 0);
    for round in 0..60 {
        let (from, to) = (format!("from{round}"), format!("to{round}"));
        workspace.make_folder(&from, Missing::Refuse).unwrap();
        let (barrier, target) = (std::sync::Barrier::new(2), format!("{from}/config"));
        let (barrier, target, content, to) = (&barrier, &target, &content, &to);
        let (wrote, went) = std::thread::scope(|scope| {
            let writer = scope.spawn(move || {
                barrier.wait();
                // In some rounds the move comes first for certain.
                std::thread::sleep(std::time::Duration::from_millis(if round % 3 == 0 { 5 } else { 0 }));
                if round % 2 == 0 {
                    return workspace.place(target, content, Placement::Create).is_ok();
                }
                let large = workspace.survey("large", limits).unwrap();
                workspace.copy_tree(&large, target, Placement::Create, limits).is_ok()
            });
            let mover = scope.spawn(move || {
                barrier.wait();
                std::thread::sleep(std::time::Duration::from_micros(100 * (round % 10)));
                let entries = workspace.survey(&from, limits).unwrap();
                workspace.rename_to(&entries, to, Placement::Create).is_ok() && entries.len() == 1
            });
            (writer.join().unwrap(), mover.join().unwrap())
        });
        // A move that saw an empty folder moved an empty one.
        let leaked = workspace.root().join(to).join("config").exists();
        assert!(!(went && leaked), "{round}: the file is at a place that nobody judged");
        (written, moved) = (written + usize::from(wrote), moved + usize::from(went));
    }
    assert!(written > 0 && moved > 0, "{written} written, {moved} moved: the two never met");
}

#[test]
fn a_turn_in_a_folder_that_was_moved_is_refused() {
    let place = WorkspaceFixture::new();
    let (workspace, root) = (&place.workspace, place.workspace.root());
    let (folder, _) = workspace.parent("sub/new", Missing::Refuse).unwrap();
    let turn = workspace.turn(&folder, "sub/new", Moves::Name).unwrap();
    fs::rename(root.join("sub"), root.join("elsewhere")).unwrap();
    // A program moved it after the name was given: the name goes.
    fs::write(root.join("elsewhere/new"), "x").unwrap();
    assert_eq!(turn.still_here("new", true), Err(PathError::Changed));
    assert!(!root.join("elsewhere/new").exists());
    drop(turn);
    assert_eq!(workspace.turn(&folder, "sub/new", Moves::Name).err(), Some(PathError::Changed));
    // Another folder is at its place by now.
    fs::create_dir(root.join("sub")).unwrap();
    assert_eq!(workspace.turn(&folder, "sub/new", Moves::Name).err(), Some(PathError::Changed));
    fs::remove_dir(root.join("sub")).unwrap();
    fs::rename(root.join("elsewhere"), root.join("sub")).unwrap();
    assert!(workspace.turn(&folder, "sub/new", Moves::Name).is_ok());
}

#[test]
fn a_folder_with_an_unfinished_write_does_not_move() {
    let place = WorkspaceFixture::new();
    let (workspace, limits) = (&place.workspace, TreeLimits { entries_max: 100, bytes_max: 1 << 20 });
    fs::write(workspace.root().join("sub/.regent-0123456789abcdef.tmp"), "x").unwrap();
    let entries = workspace.survey("sub", limits).unwrap();
    let refused = workspace.rename_to(&entries, "moved", Placement::Create).unwrap_err();
    assert_eq!(refused.why, PathError::Unfinished);
}

#[test]
fn a_copy_makes_no_repository_and_a_move_takes_none_out_of_git() {
    let place = WorkspaceFixture::new();
    let (workspace, root) = (&place.workspace, place.workspace.root());
    let limits = TreeLimits { entries_max: 100, bytes_max: 1 << 20 };
    for folder in [".git", "sub/bare.git"] {
        fs::create_dir_all(root.join(folder).join("refs")).unwrap();
        fs::create_dir_all(root.join(folder).join("objects")).unwrap();
        fs::write(root.join(folder).join("HEAD"), "ref: refs/heads/main").unwrap();
        fs::write(root.join(folder).join("config"), "[core]").unwrap();
    }
    for (from, to) in [(".git", "lib"), ("sub/bare.git", "lib"), ("sub", "lib")] {
        let entries = workspace.survey(from, limits).unwrap();
        let refused = workspace.copy_tree(&entries, to, Placement::Create, limits).unwrap_err();
        assert_eq!(refused.why, PathError::Repository, "{from}");
        assert!(!root.join(to).exists(), "{from}");
    }
    let git = workspace.survey(".git", limits).unwrap();
    assert_eq!(workspace.rename_to(&git, "lib", Placement::Create).unwrap_err().why, PathError::Repository);
    // One that the user made stays one, wherever it goes.
    let bare = workspace.survey("sub/bare.git", limits).unwrap();
    workspace.rename_to(&bare, "bare.git", Placement::Create).unwrap();
}
