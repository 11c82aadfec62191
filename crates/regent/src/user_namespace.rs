//! Whether user numbers mean what they say. Anyone can create a user namespace in which they are root, or any other user.

use std::fs::File;
use std::io::{ErrorKind, Read as _};

/// Whether user numbers are those of the machine: the first namespace maps all of them to themselves, and no ordinary user can make another
/// that does.
pub(crate) fn is_first() -> bool {
    const ALL: &str = "         0          0 4294967295\n";
    let map = match File::open("/proc/self/uid_map") {
        Ok(map) => map,
        // A kernel without user namespaces.
        Err(error) => return error.kind() == ErrorKind::NotFound && is_proc("/proc/self/status"),
    };
    let mut text = String::new();
    is_on_proc(&map) && map.take(256).read_to_string(&mut text).is_ok() && text == ALL
}

fn is_proc(path: &str) -> bool {
    File::open(path).is_ok_and(|file| is_on_proc(&file))
}

/// A namespace of mounts can have any file at any path.
fn is_on_proc(file: &File) -> bool {
    const PROC_SUPER_MAGIC: u64 = 0x9fa0;
    rustix::fs::fstatfs(file).is_ok_and(|found| u64::try_from(found.f_type) == Ok(PROC_SUPER_MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_another_file_system_is_no_map() {
        assert!(is_proc("/proc/self/uid_map"));
        assert!(!is_proc("/etc/passwd"));
    }
}
