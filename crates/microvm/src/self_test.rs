//! Whether guests can be run here at all, found by running two: one that works, and one that reaches for what isn't its own.

use std::sync::{Arc, OnceLock};

use regent_sandbox::{Closed, Finding};

use super::calls::GuestEnding;
use super::elf;
use super::files::FileLimits;
use super::guest::{Finished, GuestJob, GuestThread, Load, NotStarted};
use super::link::Link;
use super::start::StartWords;

/// Memory of a trial guest.
const MEMORY_BYTES: u64 = 8 << 20;

/// `write(1, stack, 2)` with `ok` pushed onto a page of stack that isn't there yet, then `exit(7)`.
const WORKS: &[u8] = &[
    0x48, 0x81, 0xec, 0x00, 0x00, 0x10, 0x00, // sub rsp, 0x100000
    0x68, 0x6f, 0x6b, 0x00, 0x00, // push "ok"
    0x48, 0x89, 0xe6, // mov rsi, rsp
    0xbf, 0x01, 0x00, 0x00, 0x00, // mov edi, 1
    0xba, 0x02, 0x00, 0x00, 0x00, // mov edx, 2
    0xb8, 0x01, 0x00, 0x00, 0x00, // mov eax, SYS_write
    0x0f, 0x05, // syscall
    0xbf, 0x07, 0x00, 0x00, 0x00, // mov edi, 7
    0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, SYS_exit_group
    0x0f, 0x05, // syscall
];
/// Reads the machine's own descriptor table, then `exit(0)`.
const REACHES: &[u8] = &[
    0x48, 0xa1, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0xff, 0xff, // mov rax, [0xffff800000000000]
    0x31, 0xff, // xor edi, edi
    0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, SYS_exit_group
    0x0f, 0x05, // syscall
];

/// Whether the hypervisor exists and is accessible. Cheap; [`probe`] checks whether it works.
pub fn is_offered() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok()
}

/// Runs the trial guests, once per process.
///
/// # Errors
/// Why no guest can run here, and how to fix it.
pub fn probe() -> Result<(), &'static Closed> {
    static FOUND: OnceLock<Result<(), Closed>> = OnceLock::new();
    FOUND.get_or_init(try_both).as_ref().copied()
}

/// The finding as text.
pub fn finding() -> Finding {
    let name = "microvm";
    match probe() {
        Ok(()) => Finding { name, ok: true, says: "the microVM tier works (tested)".to_owned(), fix: None },
        Err(closed) => {
            let says = format!("the microVM tier does not work: {}", closed.reason);
            Finding { name, ok: false, says, fix: closed.fix.clone() }
        }
    }
}

fn try_both() -> Result<(), Closed> {
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        let fix = if error.kind() == std::io::ErrorKind::NotFound {
            "load the module `kvm_intel` or `kvm_amd`, or enable virtualisation in the firmware"
        } else {
            "add this user to the group `kvm`, and log in again"
        };
        return Err(closed(&format!("`/dev/kvm` can't be used: {error}"), Some(fix)));
    }
    let works = trial(WORKS)?;
    if works.end != GuestEnding::Exit(7) || works.output.stdout != b"ok" {
        return Err(closed(&format!("a trial guest ended with {:?}", works.end), None));
    }
    let reaches = trial(REACHES)?;
    if reaches.end != GuestEnding::Signal(libc::SIGSEGV) {
        return Err(closed(
            &format!("a trial guest reached the machine's own tables: {:?}", reaches.end),
            None,
        ));
    }
    Ok(())
}

fn closed(reason: &str, fix: Option<&str>) -> Closed {
    Closed { reason: reason.to_owned(), fix: fix.map(str::to_owned) }
}

/// Some code as a program that needs no workspace.
pub(super) fn code_job(code: &[u8], memory_bytes: u64) -> GuestJob {
    GuestJob {
        load: Load::Content(elf::program(code)),
        words: StartWords::default(),
        workspace: "/nowhere".to_owned(),
        cwd: "/tmp".to_owned(),
        input: Vec::new(),
        memory_bytes,
        files: FileLimits { open_max: 8, file_bytes_max: 0, held_bytes_max: 0, output_bytes_max: 64 },
        now_ms: 0,
    }
}

fn trial(code: &[u8]) -> Result<Finished, Closed> {
    let broke = |why: &str| closed(&format!("a trial guest can't run: {why}"), None);
    let link = Arc::new(Link::new().map_err(|error| broke(&error.to_string()))?);
    let running = GuestThread::start(code_job(code, MEMORY_BYTES), None, &Arc::default(), &link)
        .map_err(|error| broke(&error.to_string()))?;
    running.join().map_err(|not| match not {
        NotStarted::Program(not) => broke(&not.message),
        NotStarted::Broke(why) => broke(&why),
    })
}
