//! Calls that may wait: sleeping, futexes, polling. There is nobody else in the guest, so that waiting without a time for what only
//! the program itself could cause is waiting for ever: that ends it.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::super::link::Outside;
use super::{GuestProcess, SyscallResult};

/// Descriptors of one `poll` or `select`.
const POLLED_MAX: u64 = 1024;
/// It waits for ever.
const STUCK: Errno = Errno::DEADLK;

impl GuestProcess {
    pub(super) fn wait_call(
        &mut self,
        number: i64,
        arguments: [u64; 6],
        outside: &dyn Outside,
    ) -> Option<SyscallResult> {
        let [first, second, third, fourth, fifth, _] = arguments;
        Some(match number {
            libc::SYS_nanosleep => self.sleep(first, None, outside),
            libc::SYS_clock_nanosleep if second & 1 != 0 => self.sleep(third, Some(first), outside),
            libc::SYS_clock_nanosleep => self.sleep(third, None, outside),
            libc::SYS_pause | libc::SYS_rt_sigsuspend => Err(STUCK),
            libc::SYS_futex => self.futex(first, second, third, fourth, outside),
            libc::SYS_poll => {
                let timeout = i32::try_from(third.cast_signed()).unwrap_or(third as u32 as i32);
                let wait = u64::try_from(timeout).ok().map(Duration::from_millis);
                self.poll(first, second, wait, outside)
            }
            libc::SYS_ppoll => match self.optional_time(third) {
                Ok(wait) => self.poll(first, second, wait, outside),
                Err(errno) => Err(errno),
            },
            libc::SYS_select => match self.optional_micros(fifth) {
                Ok(wait) => self.select(first, [second, third, fourth], wait, outside),
                Err(errno) => Err(errno),
            },
            libc::SYS_pselect6 => match self.optional_time(fifth) {
                Ok(wait) => self.select(first, [second, third, fourth], wait, outside),
                Err(errno) => Err(errno),
            },
            _ => return None,
        })
    }

    /// A `timespec` of the guest's.
    fn time_at(&mut self, at: u64) -> Result<Duration, Errno> {
        let (seconds, nanoseconds) = (self.word(at)?, self.word(at.checked_add(8).ok_or(Errno::FAULT)?)?);
        match u32::try_from(nanoseconds) {
            Ok(nanoseconds) if nanoseconds < 1_000_000_000 && i64::try_from(seconds).is_ok() => {
                Ok(Duration::new(seconds, nanoseconds))
            }
            _ => Err(Errno::INVAL),
        }
    }

    fn optional_time(&mut self, at: u64) -> Result<Option<Duration>, Errno> {
        if at == 0 { Ok(None) } else { self.time_at(at).map(Some) }
    }

    fn optional_micros(&mut self, at: u64) -> Result<Option<Duration>, Errno> {
        if at == 0 {
            return Ok(None);
        }
        let (seconds, micros) = (self.word(at)?, self.word(at.checked_add(8).ok_or(Errno::FAULT)?)?);
        let seconds = i64::try_from(seconds).map_err(|_| Errno::INVAL)?.unsigned_abs();
        Ok(Some(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros))))
    }

    fn sleep(&mut self, at: u64, clock: Option<u64>, outside: &dyn Outside) -> SyscallResult {
        let mut wait = self.time_at(at)?;
        if let Some(clock) = clock {
            let (seconds, nanoseconds) = self.now(clock)?;
            wait = wait
                .saturating_sub(Duration::new(seconds, 0))
                .saturating_sub(Duration::from_nanos(nanoseconds));
        }
        rest(wait, outside);
        Ok(0)
    }

    fn futex(
        &mut self,
        at: u64,
        operation: u64,
        value: u64,
        timeout: u64,
        outside: &dyn Outside,
    ) -> SyscallResult {
        const WAIT: u64 = libc::FUTEX_WAIT as u64;
        const WAKE: u64 = libc::FUTEX_WAKE as u64;
        const WAIT_BITSET: u64 = libc::FUTEX_WAIT_BITSET as u64;
        const WAKE_BITSET: u64 = libc::FUTEX_WAKE_BITSET as u64;
        let plain = operation & !((libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) as u64);
        match plain {
            WAKE | WAKE_BITSET => Ok(0),
            WAIT | WAIT_BITSET => {
                if u64::from(self.half(at)?) != value & u64::from(u32::MAX) {
                    return Err(Errno::AGAIN);
                }
                let Some(mut wait) = self.optional_time(timeout)? else { return Err(STUCK) };
                if plain == WAIT_BITSET {
                    let realtime = operation & libc::FUTEX_CLOCK_REALTIME as u64 != 0;
                    let clock = if realtime { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
                    let (seconds, nanoseconds) = self.now(clock as u64)?;
                    wait = wait.saturating_sub(Duration::new(seconds, nanoseconds as u32));
                }
                rest(wait, outside);
                Err(Errno::TIMEDOUT)
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn poll(&mut self, at: u64, count: u64, wait: Option<Duration>, outside: &dyn Outside) -> SyscallResult {
        if count > POLLED_MAX {
            return Err(Errno::INVAL);
        }
        let mut entries = vec![0; usize::try_from(count.saturating_mul(8)).map_err(|_| Errno::INVAL)?];
        self.space.read(at, &mut entries)?;
        let mut ready = 0;
        for entry in entries.chunks_exact_mut(8) {
            let Some((fd, [low, high, seen @ ..])) = entry.split_first_chunk_mut::<4>() else { continue };
            let fd = i32::from_le_bytes(*fd);
            let wanted = i16::from_le_bytes([*low, *high]);
            let found = match u64::try_from(fd) {
                Err(_) => 0,
                Ok(fd) => match self.files.readiness(fd) {
                    Err(_) => libc::POLLNVAL,
                    Ok((read, write, hung)) => {
                        let bit = |set: bool, bit: i16| if set { bit } else { 0 };
                        (bit(read, libc::POLLIN) | bit(write, libc::POLLOUT)) & wanted
                            | bit(hung, libc::POLLHUP)
                    }
                },
            };
            if found != 0 {
                ready += 1;
            }
            for (slot, byte) in seen.iter_mut().zip(found.to_le_bytes()) {
                *slot = byte;
            }
        }
        if ready == 0 {
            match wait {
                None => return Err(STUCK),
                Some(wait) => rest(wait, outside),
            }
        }
        self.space.write(at, &entries)?;
        Ok(ready)
    }

    fn select(
        &mut self,
        count: u64,
        sets: [u64; 3],
        wait: Option<Duration>,
        outside: &dyn Outside,
    ) -> SyscallResult {
        if count > POLLED_MAX {
            return Err(Errno::INVAL);
        }
        let bytes = usize::try_from(count.div_ceil(64) * 8).map_err(|_| Errno::INVAL)?;
        let (mut ready, mut found) = (0, Vec::new());
        for (which, at) in sets.into_iter().enumerate() {
            if at == 0 {
                continue;
            }
            let mut set = vec![0_u8; bytes];
            self.space.read(at, &mut set)?;
            for fd in 0..count {
                let Some(byte) = usize::try_from(fd / 8).ok().and_then(|at| set.get_mut(at)) else {
                    continue;
                };
                let bit = 1_u8 << (fd % 8);
                if *byte & bit == 0 {
                    continue;
                }
                let (read, write, hung) = self.files.readiness(fd)?;
                let is_ready = match which {
                    0 => read || hung,
                    1 => write,
                    _ => false,
                };
                if is_ready {
                    ready += 1;
                } else {
                    *byte &= !bit;
                }
            }
            found.push((at, set));
        }
        if ready == 0 {
            match wait {
                None => return Err(STUCK),
                Some(wait) => rest(wait, outside),
            }
        }
        for (at, set) in found {
            self.space.write(at, &set)?;
        }
        Ok(ready)
    }
}

/// Waits, but not past the end of time.
fn rest(wait: Duration, outside: &dyn Outside) {
    outside.rest(Instant::now().checked_add(wait));
}
