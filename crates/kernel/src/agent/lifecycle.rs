//! The stages of an agent's life, and the only ways from one to the next.

use serde::Serialize;

/// Where an agent is in its life. Ordered: it never goes back past `Active`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// Has an id and a key; its start isn't recorded yet.
    Init,
    /// Recorded; has not called yet.
    Ready,
    /// Calls are let in.
    Active,
    /// Calls wait.
    Suspended,
    /// Calls are refused; those that run are being stopped.
    Retiring,
    /// Over. None of its calls runs any more.
    Terminated,
}

/// A step in an agent's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Its start is in the ledger.
    Boot,
    /// It makes its first call.
    Activate,
    /// It is held.
    Suspend,
    /// It is let go.
    Resume,
    /// It ends: by itself or by a signal.
    Retire,
    /// Its last call has ended.
    Terminate,
}

impl Lifecycle {
    /// Where a step leads, or `None` where it can't be taken.
    pub(crate) fn after(self, step: Step) -> Option<Self> {
        match (self, step) {
            (Self::Init, Step::Boot) => Some(Self::Ready),
            (Self::Ready, Step::Activate) | (Self::Suspended, Step::Resume) => Some(Self::Active),
            (Self::Active, Step::Suspend) => Some(Self::Suspended),
            (Self::Init | Self::Ready | Self::Active | Self::Suspended, Step::Retire) => Some(Self::Retiring),
            (Self::Retiring, Step::Terminate) => Some(Self::Terminated),
            (
                Self::Init | Self::Ready | Self::Active | Self::Suspended | Self::Retiring | Self::Terminated,
                Step::Boot | Step::Activate | Step::Suspend | Step::Resume | Step::Retire | Step::Terminate,
            ) => None,
        }
    }

    /// Whether it takes no more calls, for good.
    pub fn is_over(self) -> bool {
        self >= Self::Retiring
    }

    /// As entries and people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Suspended => "suspended",
            Self::Retiring => "retiring",
            Self::Terminated => "terminated",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Boot),
            Just(Step::Activate),
            Just(Step::Suspend),
            Just(Step::Resume),
            Just(Step::Retire),
            Just(Step::Terminate),
        ]
    }

    #[test]
    fn the_whole_life_in_order() {
        let steps = [Step::Boot, Step::Activate, Step::Suspend, Step::Resume, Step::Retire, Step::Terminate];
        let end = steps.iter().try_fold(Lifecycle::Init, |stage, step| stage.after(*step));
        assert_eq!(end, Some(Lifecycle::Terminated));
    }

    proptest! {
        /// Whatever is tried: the only way back is from Suspended to Active, nothing is skipped on the way up, and an agent
        /// that has begun to end only ends.
        #[test]
        fn no_sequence_of_steps_leaves_the_table(steps in proptest::collection::vec(step(), 0..64)) {
            let mut stage = Lifecycle::Init;
            for step in steps {
                let Some(next) = stage.after(step) else { continue };
                prop_assert!(next > stage || (stage == Lifecycle::Suspended && next == Lifecycle::Active));
                prop_assert!(!stage.is_over() || next == Lifecycle::Terminated);
                prop_assert!(next.is_over() || next as u8 <= stage as u8 + 1);
                stage = next;
            }
        }
    }
}
