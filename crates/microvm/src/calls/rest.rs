//! Who the program is, what time it is, signals, limits: what needs nobody's leave and never waits.

use std::time::Duration;

use rustix::io::Errno;

use super::super::files::TRANSFER_BYTES_MAX;
use super::super::layout::{self, Packed, USER_ID};
use super::{GuestProcess, PROCESS_ID, SIGNALS, SyscallResult};

const ENDLESS: u64 = u64::MAX;

impl GuestProcess {
    pub(super) fn rest_call(&mut self, number: i64, arguments: [u64; 6]) -> Option<SyscallResult> {
        let [first, second, third, fourth, ..] = arguments;
        Some(match number {
            libc::SYS_getpid | libc::SYS_gettid | libc::SYS_getpgrp => Ok(PROCESS_ID),
            libc::SYS_set_tid_address | libc::SYS_getsid | libc::SYS_getpgid => Ok(PROCESS_ID),
            libc::SYS_getppid => Ok(1),
            libc::SYS_getuid | libc::SYS_geteuid | libc::SYS_getgid | libc::SYS_getegid => {
                Ok(u64::from(USER_ID))
            }
            libc::SYS_getresuid | libc::SYS_getresgid => self.three_ids(first, second, third),
            libc::SYS_getgroups => Ok(0),
            libc::SYS_setpgid | libc::SYS_set_robust_list | libc::SYS_sched_yield => Ok(0),
            libc::SYS_umask => Ok(u64::from(std::mem::replace(&mut self.state.umask, first as u32 & 0o777))),
            libc::SYS_uname => self.space.write(first, &layout::utsname()).map(|()| 0),
            libc::SYS_sysinfo => self.sysinfo(first),
            libc::SYS_getrandom => self.getrandom(first, second),
            libc::SYS_clock_gettime => self.clock(first, second),
            libc::SYS_clock_getres => self.fill(second, &Packed::default().u64(0).u64(1).0),
            libc::SYS_gettimeofday => self.time_of_day(first),
            libc::SYS_time => self.time(first),
            libc::SYS_times => Ok(self.began.elapsed().as_millis() as u64 / 10),
            libc::SYS_getrusage => self.fill(second, &[0; 144]),
            libc::SYS_prlimit64 if third != 0 => Err(Errno::PERM),
            libc::SYS_prlimit64 => self.limit(second, fourth),
            libc::SYS_getrlimit => self.limit(first, second),
            libc::SYS_sched_getaffinity => self.affinity(second, third),
            libc::SYS_getcpu => self.fill(first, &[0; 4]).and_then(|_| self.fill(second, &[0; 4])),
            libc::SYS_rt_sigaction => self.sigaction(first, second, third),
            libc::SYS_rt_sigprocmask => self.sigprocmask(first, second, third),
            libc::SYS_rt_sigpending => self.fill(first, &[0; 8]),
            libc::SYS_sigaltstack => self.sigaltstack(first, second),
            libc::SYS_kill | libc::SYS_tkill | libc::SYS_tgkill => self.harmless_signal(number, arguments),
            libc::SYS_alarm => Ok(0),
            libc::SYS_prctl => self.prctl(first, second),
            libc::SYS_personality if first == 0 || first == u64::from(u32::MAX) => Ok(0),
            _ => return None,
        })
    }

    fn three_ids(&mut self, first: u64, second: u64, third: u64) -> SyscallResult {
        for at in [first, second, third] {
            self.space.write(at, &USER_ID.to_le_bytes())?;
        }
        Ok(0)
    }

    fn sysinfo(&mut self, at: u64) -> SyscallResult {
        let (total, used) = (self.space.total_bytes(), self.space.used_bytes());
        let text = layout::sysinfo(self.began.elapsed().as_secs(), total, used);
        self.space.write(at, &text)?;
        Ok(0)
    }

    fn getrandom(&mut self, at: u64, len: u64) -> SyscallResult {
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX);
        self.space.check(at, len, |protection| protection.write)?;
        let mut bytes = vec![0; len];
        getrandom::fill(&mut bytes).map_err(|_| Errno::IO)?;
        self.space.write(at, &bytes)?;
        Ok(len as u64)
    }

    /// Seconds and nanoseconds of one of the clocks. The program's own time is the time since it began.
    pub(super) fn now(&self, clock: u64) -> Result<(u64, u64), Errno> {
        let since = self.began.elapsed();
        let split = |time: Duration| (time.as_secs(), u64::from(time.subsec_nanos()));
        match i32::try_from(clock).unwrap_or(-1) {
            libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE | libc::CLOCK_TAI => {
                Ok(split(Duration::from_millis(self.began_ms).saturating_add(since)))
            }
            libc::CLOCK_MONOTONIC
            | libc::CLOCK_MONOTONIC_COARSE
            | libc::CLOCK_MONOTONIC_RAW
            | libc::CLOCK_BOOTTIME
            | libc::CLOCK_PROCESS_CPUTIME_ID
            | libc::CLOCK_THREAD_CPUTIME_ID => Ok(split(since)),
            _ => Err(Errno::INVAL),
        }
    }

    fn clock(&mut self, clock: u64, at: u64) -> SyscallResult {
        let (seconds, nanoseconds) = self.now(clock)?;
        self.space.write(at, &Packed::default().u64(seconds).u64(nanoseconds).0)?;
        Ok(0)
    }

    fn time_of_day(&mut self, at: u64) -> SyscallResult {
        let (seconds, nanoseconds) = self.now(libc::CLOCK_REALTIME as u64)?;
        self.fill(at, &Packed::default().u64(seconds).u64(nanoseconds / 1000).0)
    }

    fn time(&mut self, at: u64) -> SyscallResult {
        let (seconds, _) = self.now(libc::CLOCK_REALTIME as u64)?;
        self.fill(at, &seconds.to_le_bytes())?;
        Ok(seconds)
    }

    fn limit(&mut self, resource: u64, at: u64) -> SyscallResult {
        let limit = match u32::try_from(resource).unwrap_or(u32::MAX) {
            libc::RLIMIT_STACK => self.stack_bytes,
            libc::RLIMIT_NOFILE => self.open_max,
            libc::RLIMIT_AS | libc::RLIMIT_DATA => self.space.total_bytes(),
            libc::RLIMIT_CORE | libc::RLIMIT_NPROC => 0,
            0..16 => ENDLESS,
            _ => return Err(Errno::INVAL),
        };
        self.fill(at, &Packed::default().u64(limit).u64(limit).0)
    }

    /// One processor.
    fn affinity(&mut self, len: u64, at: u64) -> SyscallResult {
        if len < 8 {
            return Err(Errno::INVAL);
        }
        self.space.write(at, &1_u64.to_le_bytes())?;
        Ok(8)
    }

    /// Kept and given back; handlers are never run.
    fn sigaction(&mut self, signal: u64, new: u64, old: u64) -> SyscallResult {
        let index =
            usize::try_from(signal).ok().and_then(|signal| signal.checked_sub(1)).filter(|at| *at < SIGNALS);
        let index = index.ok_or(Errno::INVAL)?;
        let fixed =
            [libc::SIGKILL, libc::SIGSTOP].iter().any(|fixed| signal == u64::from(fixed.unsigned_abs()));
        let before = *self.state.actions.get(index).ok_or(Errno::INVAL)?;
        let mut after = before;
        if new != 0 {
            if fixed {
                return Err(Errno::INVAL);
            }
            self.space.read(new, &mut after)?;
        }
        self.fill(old, &before)?;
        if let Some(slot) = self.state.actions.get_mut(index) {
            *slot = after;
        }
        Ok(0)
    }

    fn sigprocmask(&mut self, how: u64, new: u64, old: u64) -> SyscallResult {
        let before = self.state.signal_mask;
        let mut after = before;
        if new != 0 {
            let set = self.word(new)?;
            after = match i32::try_from(how).unwrap_or(-1) {
                libc::SIG_BLOCK => before | set,
                libc::SIG_UNBLOCK => before & !set,
                libc::SIG_SETMASK => set,
                _ => return Err(Errno::INVAL),
            };
        }
        self.fill(old, &before.to_le_bytes())?;
        self.state.signal_mask = after;
        Ok(0)
    }

    fn sigaltstack(&mut self, new: u64, old: u64) -> SyscallResult {
        let (before, mut after) = (self.state.alternate_stack, self.state.alternate_stack);
        if new != 0 {
            self.space.read(new, &mut after)?;
        }
        self.fill(old, &before)?;
        self.state.alternate_stack = after;
        Ok(0)
    }

    /// A signal that didn't end the program: to itself and ignored, or the question whether it is there.
    fn harmless_signal(&self, number: i64, [first, second, third, ..]: [u64; 6]) -> SyscallResult {
        let (own, signal) = match number {
            libc::SYS_kill => (first == PROCESS_ID || first == 0, second),
            libc::SYS_tkill => (first == PROCESS_ID, second),
            _ => (first == PROCESS_ID && second == PROCESS_ID, third),
        };
        match (own, signal) {
            (false, _) => Err(Errno::SRCH),
            (true, 0..=64) => Ok(0),
            (true, _) => Err(Errno::INVAL),
        }
    }

    fn prctl(&mut self, what: u64, at: u64) -> SyscallResult {
        match i32::try_from(what).unwrap_or(-1) {
            libc::PR_SET_NAME => self.space.check(at, 1, |protection| protection.read).map(|()| 0),
            libc::PR_GET_NAME => self.fill(at, b"program\0\0\0\0\0\0\0\0\0"),
            libc::PR_SET_NO_NEW_PRIVS | libc::PR_SET_DUMPABLE => Ok(0),
            libc::PR_GET_NO_NEW_PRIVS => Ok(1),
            _ => Err(Errno::INVAL),
        }
    }
}
