//! The dispatcher against hostile arguments, without a machine; and the machine itself, as far as it is tried before use.

use std::cell::Cell;
use std::time::Instant;

use proptest::prelude::*;
use rustix::io::Errno;

use super::areas::{Protection, USER_END, USER_START};
use super::calls::{GuestEnding, GuestProcess, GuestProgramStart, Next};
use super::files::{FileLimits, GuestFiles};
use super::link::{About, GuestFileKind, GuestReply, GuestRequest, Outside};
use super::memory::GuestRam;
use super::space::Space;
use super::tree::FixedTree;
use super::*;

#[path = "../../testkit/src/skip.rs"]
mod skip;

#[test]
fn guests_can_be_run_here() {
    if !is_offered() {
        skip::skipped("kvm", "there is no usable /dev/kvm");
        return;
    }
    assert_eq!(probe(), Ok(()));
}

const MEMORY_BYTES: u64 = 4 << 20;
const TEXT: u64 = 0x40_0000;
const ROOM: u64 = 0x50_0000;
const CONSTANT: u64 = 0x60_0000;

/// A workspace with one file and one folder, which refuses every third thing.
#[derive(Default)]
struct Fake {
    asked: Cell<u32>,
}

impl Outside for Fake {
    fn ask(&self, ask: GuestRequest) -> Result<GuestReply, Errno> {
        self.asked.set(self.asked.get() + 1);
        if self.asked.get().is_multiple_of(3) {
            return Err(Errno::ACCESS);
        }
        match ask {
            GuestRequest::Read(path) if path == "file" => Ok(GuestReply::Content(b"content".to_vec())),
            GuestRequest::Read(_) | GuestRequest::Stat(_) if self.asked.get().is_multiple_of(2) => {
                Err(Errno::NOENT)
            }
            GuestRequest::Read(_) => Err(Errno::ISDIR),
            GuestRequest::Stat(_) => Ok(GuestReply::About(About {
                kind: GuestFileKind::File,
                bytes: 7,
                mode: 0o644,
                modified_ms: 1,
            })),
            GuestRequest::List(_) => Ok(GuestReply::Names(vec![("file".to_owned(), GuestFileKind::File)])),
            GuestRequest::Write(save) => {
                assert!(!save.path.starts_with('/') && !save.path.contains(".."), "{save:?}");
                Ok(GuestReply::Saved)
            }
        }
    }

    fn rest(&self, _until: Option<Instant>) {}

    fn is_stopped(&self) -> bool {
        false
    }
}

/// A program with a page to read, pages to write, and names to use.
fn program() -> GuestProcess {
    let mut space = Space::new(GuestRam::reserve(MEMORY_BYTES).unwrap());
    space.map(TEXT, TEXT + 4096, Protection::from_bits(5));
    space.map(ROOM, ROOM + 8 * 4096, Protection::READ_WRITE);
    space.map(CONSTANT, CONSTANT + 4096, Protection::from_bits(1));
    for (index, name) in
        ["file", "/tmp/x", "/tmp", "/", "d/new", "/dev/null", "../..", "/dev", "/tmp/y"].iter().enumerate()
    {
        space.copy(CONSTANT + index as u64 * 32, name.as_bytes()).unwrap();
    }
    let limits = FileLimits {
        open_max: 64,
        file_bytes_max: 1 << 20,
        held_bytes_max: 1 << 20,
        output_bytes_max: 1 << 16,
    };
    GuestProcess::new(GuestProgramStart {
        space,
        files: GuestFiles::new(FixedTree::new("/w/work"), b"input".to_vec(), limits),
        cwd: "/w/work".to_owned(),
        path: "/bin/program".to_owned(),
        heap_start: 0x70_0000,
        mappings_top: 0x7000_0000_0000,
        stack_bytes: 1 << 16,
        open_max: 64,
        began_ms: 1_700_000_000_000,
    })
}

fn argument() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0_u64..16,
        3 => (0_u64..9).prop_map(|index| CONSTANT + index * 32),
        4 => (0_u64..8 * 4096).prop_map(|offset| ROOM + offset),
        1 => (0_u64..8).prop_map(|page| ROOM + page * 4096),
        1 => proptest::sample::select(vec![4096, 8192, 0x22, 0x32, 0x241, 0x242, 0xc1, 0x441, 0x1_0000, 1 << 20, 1 << 40, u64::MAX,
            u64::MAX - 4095, USER_END, USER_END - 4096, USER_START, 0x7fff_ffff_0000, 0xffff_8000_0000_0000, 0xffff_ff9c]),
        1 => any::<u64>(),
    ]
}

/// Mostly calls that there are.
fn number() -> impl Strategy<Value = u64> {
    let known = vec![
        0_u64, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 25, 28, 32, 33,
        35, 39, 63, 72, 74, 77, 79, 80, 82, 83, 84, 85, 87, 89, 90, 95, 96, 97, 99, 131, 157, 201, 202, 204,
        217, 228, 230, 257, 258, 262, 263, 264, 267, 269, 270, 271, 280, 292, 293, 302, 316, 318, 332, 334,
        436, 439,
    ];
    prop_oneof![8 => proptest::sample::select(known), 1 => 0_u64..460, 1 => any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever is asked, it is answered or ends the program: nothing panics, no memory but the guest's own is reached (every access
    /// is bounded by `GuestRam`), what may only be read stays as it is, and nothing is mapped outside the guest's space.
    #[test]
    fn any_calls_are_answered(calls in proptest::collection::vec((number(), proptest::array::uniform6(argument())), 1..60)) {
        let (mut program, outside) = (program(), Fake::default());
        let mut before = [0; 4096];
        program.space.read(CONSTANT, &mut before).unwrap();
        let mut remapped = false;
        for (number, arguments) in calls {
            remapped |= [9, 10, 11, 25, 28].contains(&number);
            match program.call(number, arguments, &outside) {
                Next::Answer(Ok(_)) => {}
                Next::Answer(Err(errno)) => prop_assert!((1..=133).contains(&errno.raw_os_error())),
                Next::End(GuestEnding::Exit(_) | GuestEnding::Signal(_) | GuestEnding::Stuck | GuestEnding::Output) => break,
                Next::End(end @ (GuestEnding::Memory | GuestEnding::Killed | GuestEnding::Dead(_))) => prop_assert!(false, "{end:?}"),
            }
            prop_assert!(!program.space.areas().any(0, USER_START));
            prop_assert!(!program.space.areas().any(USER_END, u64::MAX));
            prop_assert!(program.space.used_bytes() <= MEMORY_BYTES);
        }
        if !remapped {
            let mut after = [0; 4096];
            program.space.read(CONSTANT, &mut after).unwrap();
            prop_assert!(before == after, "what can't be written was");
        }
        program.files.save_all(&outside);
    }
}

/// Memory against the simplest thing that could be right: after any mapping, moving and protecting, a byte is what was last put there.
#[test]
fn moved_and_remapped_memory_holds_what_was_put_there() {
    let (mut program, outside) = (program(), Fake::default());
    let mut call =
        |number: i64, arguments: [u64; 6]| match program.call(number.cast_unsigned(), arguments, &outside) {
            Next::Answer(answer) => answer,
            Next::End(end) => panic!("{end:?}"),
        };
    let at = call(libc::SYS_mmap, [0, 3 * 4096, 3, 0x22, u64::MAX, 0]).unwrap();
    let fixed = call(libc::SYS_mmap, [0x1000_0000, 8192, 3, 0x32, u64::MAX, 0]).unwrap();
    assert_eq!(fixed, 0x1000_0000);
    assert_eq!(call(libc::SYS_getrandom, [at, 3 * 4096, 0, 0, 0, 0]), Ok(3 * 4096));
    let moved = call(libc::SYS_mremap, [at, 3 * 4096, 64 * 4096, 1, 0, 0]).unwrap();
    assert_eq!(call(libc::SYS_mprotect, [moved, 4096, 1, 0, 0, 0]), Ok(0));
    assert_eq!(call(libc::SYS_getrandom, [moved, 16, 0, 0, 0, 0]), Err(Errno::FAULT));
    assert_eq!(call(libc::SYS_mprotect, [moved, 4096, 0, 0, 0, 0]), Ok(0));
    assert_eq!(call(libc::SYS_write, [1, moved, 16, 0, 0, 0]), Err(Errno::FAULT));
    assert_eq!(call(libc::SYS_mprotect, [moved, 4096, 3, 0, 0, 0]), Ok(0));
    assert_eq!(call(libc::SYS_write, [1, moved, 2 * 4096, 0, 0, 0]), Ok(2 * 4096));
    assert_eq!(call(libc::SYS_munmap, [moved, 4096, 0, 0, 0, 0]), Ok(0));
    assert_eq!(call(libc::SYS_write, [1, moved, 16, 0, 0, 0]), Err(Errno::FAULT));
    assert_eq!(call(libc::SYS_mmap, [moved, 4096, 3, 0x32, u64::MAX, 0]), Ok(moved));
    assert_eq!(call(libc::SYS_write, [1, moved, 4096, 0, 0, 0]), Ok(4096));
    let said = &program.files.output.stdout;
    assert!(said[..8192].iter().any(|byte| *byte != 0), "moving kept what was there");
    assert!(said[8192..].iter().all(|byte| *byte == 0), "a page that comes back is empty");
}
