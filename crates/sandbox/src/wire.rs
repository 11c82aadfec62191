//! What the child says to the parent over their pipe: fixed-size records, written in one go.

use rustix::io::Errno;

use crate::error::SetupStep;

/// Bytes of one record; far below the size up to which a pipe keeps writes whole.
pub(crate) const RECORD_BYTES: usize = 8;

/// One message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildRecord {
    /// The confinement stands and the program is about to start. Bits of [`got`].
    Ready(u32),
    /// A step failed; `part` is the index of the part of the view or of the rule it failed on.
    Failed { step: SetupStep, part: u16, errno: i32 },
    /// Processor time of everything that ran, in milliseconds.
    CpuMs(u32),
    /// The largest resident size, in KiB.
    PeakKib(u32),
    /// The program ended with this code, and nothing that it started is left.
    Exited(i32),
    /// This signal ended the program, and nothing that it started is left.
    Signalled(i32),
    /// The program was stopped from its terminal (Ctrl-Z).
    Stopped,
}

/// Parts of the confinement that not every host gives.
pub(crate) mod got {
    pub(crate) const FRESH_PROC: u32 = 1;
}

/// Stands for "no particular part".
pub(crate) const NO_PART: u16 = u16::MAX;

impl ChildRecord {
    pub(crate) fn failed(failure: SetupFailure) -> Self {
        let SetupFailure { step, part, errno } = failure;
        Self::Failed { step, part, errno: errno.raw_os_error() }
    }

    pub(crate) fn encode(self) -> [u8; RECORD_BYTES] {
        let (kind, step, part, value) = match self {
            Self::Ready(bits) => (1, 0, 0, bits.cast_signed()),
            Self::Failed { step, part, errno } => (2, step as u8, part, errno),
            Self::Exited(code) => (3, 0, 0, code),
            Self::Signalled(signal) => (4, 0, 0, signal),
            Self::CpuMs(ms) => (5, 0, 0, ms.cast_signed()),
            Self::PeakKib(kib) => (6, 0, 0, kib.cast_signed()),
            Self::Stopped => (7, 0, 0, 0),
        };
        let ([p0, p1], [v0, v1, v2, v3]) = (part.to_le_bytes(), value.to_le_bytes());
        [kind, step, p0, p1, v0, v1, v2, v3]
    }

    pub(crate) fn decode(bytes: [u8; RECORD_BYTES]) -> Option<Self> {
        let [kind, step, p0, p1, v0, v1, v2, v3] = bytes;
        let value = i32::from_le_bytes([v0, v1, v2, v3]);
        match kind {
            1 => Some(Self::Ready(value.cast_unsigned())),
            2 => Some(Self::Failed {
                step: SetupStep::from_wire(step)?,
                part: u16::from_le_bytes([p0, p1]),
                errno: value,
            }),
            3 => Some(Self::Exited(value)),
            4 => Some(Self::Signalled(value)),
            5 => Some(Self::CpuMs(value.cast_unsigned())),
            6 => Some(Self::PeakKib(value.cast_unsigned())),
            7 => Some(Self::Stopped),
            _ => None,
        }
    }
}

/// A failed step, on its way to becoming a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetupFailure {
    pub step: SetupStep,
    pub part: u16,
    pub errno: Errno,
}

/// Names the step that a call belongs to.
pub(crate) fn setup_failure(step: SetupStep) -> impl FnOnce(Errno) -> SetupFailure {
    part_failure(step, usize::from(NO_PART))
}

/// Names the step and the part of the view.
pub(crate) fn part_failure(step: SetupStep, part: usize) -> impl FnOnce(Errno) -> SetupFailure {
    move |errno| SetupFailure { step, part: u16::try_from(part).unwrap_or(NO_PART), errno }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_decode_or_not_and_never_panic(bytes: [u8; RECORD_BYTES]) {
            if let Some(record) = ChildRecord::decode(bytes) {
                prop_assert_eq!(ChildRecord::decode(record.encode()), Some(record));
            }
        }
    }
}
