//! What guests cost, measured on the smallest ones. For `xtask bench`: nothing else needs it.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::calls::GuestEnding;
use super::guest::{Finished, GuestThread, NotStarted};
use super::link::Link;
use super::self_test::code_job;
use super::tier::MicrovmTier;

const MEMORY_BYTES: u64 = 256 << 20;

/// `write(1, "hello\n", 6)`, `exit(0)`.
const HELLO: &[u8] = &[
    0x48, 0x8d, 0x35, 0x17, 0x00, 0x00, 0x00, // lea rsi, [rip + 23]
    0xbf, 0x01, 0x00, 0x00, 0x00, // mov edi, 1
    0xba, 0x06, 0x00, 0x00, 0x00, // mov edx, 6
    0x89, 0xf8, // mov eax, edi
    0x0f, 0x05, // syscall
    0x31, 0xff, // xor edi, edi
    0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, SYS_exit_group
    0x0f, 0x05, // syscall
    b'h', b'e', b'l', b'l', b'o', b'\n',
];
/// For ever.
const SPIN: &[u8] = &[0xeb, 0xfe];

impl MicrovmTier {
    /// Runs a guest that prints a greeting, from compilation to its result; without policy and ledger.
    ///
    /// # Errors
    /// Why it could not be run.
    pub fn hello(&self) -> Result<Duration, String> {
        let started = Instant::now();
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        let link = Arc::new(Link::new().map_err(|error| error.to_string())?);
        let running = GuestThread::start(code_job(HELLO, MEMORY_BYTES), spare, &self.templates, &link)
            .map_err(|error| error.to_string())?;
        let finished = ended(running.join())?;
        let took = started.elapsed();
        if finished.end != GuestEnding::Exit(0) || finished.output.stdout != b"hello\n" {
            return Err(format!("it ended with {:?}", finished.end));
        }
        self.clear_away(finished, MEMORY_BYTES);
        Ok(took)
    }

    /// How long a guest that never ends takes to be dead.
    ///
    /// # Errors
    /// Why it could not be run.
    pub fn kill(&self) -> Result<Duration, String> {
        let link = Arc::new(Link::new().map_err(|error| error.to_string())?);
        let running = GuestThread::start(code_job(SPIN, MEMORY_BYTES), None, &self.templates, &link)
            .map_err(|error| error.to_string())?;
        // Until it has surely begun.
        while running.cpu() < Duration::from_millis(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let started = Instant::now();
        running.kill();
        let finished = ended(running.join())?;
        let took = started.elapsed();
        if finished.end == GuestEnding::Killed {
            Ok(took)
        } else {
            Err(format!("it ended with {:?}", finished.end))
        }
    }

    /// The cost of one guest system call that needs no permission.
    ///
    /// # Errors
    /// Why it could not be run.
    pub fn exit(&self, count: u32) -> Result<Duration, String> {
        // mov ebx, count; again: mov eax, SYS_getpid; syscall; dec ebx; jnz again; xor edi, edi; mov eax, SYS_exit_group; syscall
        let mut code = vec![0xbb];
        code.extend(count.max(1).to_le_bytes());
        code.extend([0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xff, 0xcb, 0x75, 0xf5]);
        code.extend([0x31, 0xff, 0xb8, 0xe7, 0, 0, 0, 0x0f, 0x05]);
        let link = Arc::new(Link::new().map_err(|error| error.to_string())?);
        let running = GuestThread::start(code_job(&code, MEMORY_BYTES), None, &self.templates, &link)
            .map_err(|error| error.to_string())?;
        let finished = ended(running.join())?;
        if finished.end != GuestEnding::Exit(0) {
            return Err(format!("it ended with {:?}", finished.end));
        }
        Ok(finished.ran / count.max(1))
    }
}

fn ended(result: Result<Finished, NotStarted>) -> Result<Finished, String> {
    result.map_err(|not| match not {
        NotStarted::Program(not) => not.message,
        NotStarted::Broke(why) => why,
    })
}
