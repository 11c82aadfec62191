//! What Linux puts on a new program's stack: arguments, environment, and the auxiliary vector. There is no vDSO: every question is a
//! system call.

use rustix::io::Errno;

use super::areas::{Protection, USER_END, page_down};
use super::layout::{Packed, USER_ID};
use super::space::Space;
use super::template::Template;

/// Most of what a stack may hold.
pub(super) const STACK_BYTES_MAX: u64 = 8 << 20;
/// Nothing is mapped between the stack and what is below it.
const GUARD_BYTES: u64 = 1 << 20;
/// Arguments and environment together, as Linux has it for a stack of this size.
const WORDS_BYTES_MAX: usize = 2 << 20;
/// How far the stack's place varies.
const SHIFT_BYTES: u64 = 16 << 30;

/// A stack that is ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stack {
    /// What the stack pointer is.
    pub(super) pointer: u64,
    /// Mappings go below.
    pub(super) mappings_top: u64,
    pub(super) bytes: u64,
}

/// Words that a program is started with.
#[derive(Debug, Clone, Default)]
pub(super) struct StartWords {
    pub(super) arguments: Vec<Vec<u8>>,
    pub(super) environment: Vec<Vec<u8>>,
    /// The path that was started.
    pub(super) path: String,
}

/// Maps a stack and fills it.
pub(super) fn lay_stack(space: &mut Space, template: &Template, words: &StartWords) -> Result<Stack, Errno> {
    let mut random = [0_u8; 24];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    let (shift, seed) = random.split_first_chunk::<8>().ok_or(Errno::IO)?;
    let top = page_down(USER_END - u64::from_le_bytes(*shift) % SHIFT_BYTES);
    let bytes = STACK_BYTES_MAX.min(page_down(space.total_bytes() / 4));
    let bottom = top.checked_sub(bytes).ok_or(Errno::NOMEM)?;
    space.map(bottom, top, Protection::READ_WRITE);

    // From the top down: the words themselves, then what points to them.
    let mut below = Below { at: top, words: Vec::new() };
    let path = below.push(words.path.as_bytes());
    let platform = below.push(b"x86_64");
    let seed = below.push(seed);
    let environment: Vec<u64> = words.environment.iter().map(|word| below.push(word)).collect();
    let arguments: Vec<u64> = words.arguments.iter().map(|word| below.push(word)).collect();
    if below.words.iter().map(|(_, word)| word.len()).sum::<usize>() > WORDS_BYTES_MAX.min(bytes as usize / 2)
    {
        return Err(Errno::TOOBIG);
    }
    let id = u64::from(USER_ID);
    let vector = [
        (libc::AT_PHDR, template.headers.0),
        (libc::AT_PHENT, 56),
        (libc::AT_PHNUM, template.headers.1),
        (libc::AT_PAGESZ, 4096),
        (libc::AT_BASE, 0),
        (libc::AT_FLAGS, 0),
        (libc::AT_ENTRY, template.entry),
        (libc::AT_UID, id),
        (libc::AT_EUID, id),
        (libc::AT_GID, id),
        (libc::AT_EGID, id),
        (libc::AT_SECURE, 0),
        (libc::AT_CLKTCK, 100),
        (libc::AT_RANDOM, seed),
        (libc::AT_PLATFORM, platform),
        (libc::AT_EXECFN, path),
        (libc::AT_NULL, 0),
    ];
    let mut table = Packed::default().u64(arguments.len() as u64);
    for pointer in arguments.into_iter().chain([0]).chain(environment).chain([0]) {
        table = table.u64(pointer);
    }
    for (kind, value) in vector {
        table = table.u64(kind).u64(value);
    }
    let pointer = below.at.checked_sub(table.0.len() as u64).ok_or(Errno::TOOBIG)? & !15;
    for (at, word) in &below.words {
        space.write(*at, word)?;
    }
    space.write(pointer, &table.0)?;
    Ok(Stack { pointer, mappings_top: bottom.saturating_sub(GUARD_BYTES), bytes })
}

/// Words one below the other.
struct Below {
    at: u64,
    words: Vec<(u64, Vec<u8>)>,
}

impl Below {
    fn push(&mut self, word: &[u8]) -> u64 {
        let mut word = word.to_vec();
        word.push(0);
        self.at = self.at.saturating_sub(word.len() as u64);
        self.words.push((self.at, word));
        self.at
    }
}
