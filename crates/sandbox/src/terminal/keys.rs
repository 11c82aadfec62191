//! The user's terminal while this process reads its keys itself, one by one and without echo. It is put back however the process ends:
//! by the destructor, also in a panic, and by the watchdog if the process is killed.

use std::sync::Arc;

use super::{RawModes, SUSPENDED_WITHIN, Terminal};
use crate::sys::terminal::Modes;

/// Keys arrive as they are pressed: Ctrl-C and Ctrl-Z are keys like any other. Dropping this puts the terminal back.
#[derive(Debug)]
pub struct KeyMode {
    terminal: Terminal,
    raw: RawModes,
}

impl KeyMode {
    /// Changes the terminal.
    pub fn begin(terminal: &Terminal) -> Self {
        let mode = Self { terminal: terminal.clone(), raw: RawModes::default() };
        mode.raw.begin_as(&mode.terminal, Modes::keys);
        mode
    }

    /// Puts the terminal back and stops this process, with the job of the shell's that it is in. Returns when the job goes on, or at once
    /// if nobody could let it go on.
    pub fn suspend(&self) {
        self.raw.put_back();
        rustix::process::kill_current_process_group(rustix::process::Signal::TSTP).ok();
        std::thread::sleep(SUSPENDED_WITHIN);
        self.raw.begin_as(&self.terminal, Modes::keys);
    }
}

impl Drop for KeyMode {
    fn drop(&mut self) {
        self.raw.end();
    }
}

/// Where keys come from: a descriptor of the terminal that can be waited for.
impl Terminal {
    /// The source of input.
    pub fn input(&self) -> Arc<std::os::fd::OwnedFd> {
        Arc::clone(&self.input)
    }
}
