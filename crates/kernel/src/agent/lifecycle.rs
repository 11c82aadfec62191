//! The only ways from one stage of an agent's life to the next.

pub use regent_wire::Lifecycle;

/// A step in an agent's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LifecycleStep {
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

impl LifecycleStep {
    /// Where it leads, or `None` where it can't be taken.
    pub(crate) fn leads_from(self, stage: Lifecycle) -> Option<Lifecycle> {
        match (stage, self) {
            (Lifecycle::Init, Self::Boot) => Some(Lifecycle::Ready),
            (Lifecycle::Ready, Self::Activate) | (Lifecycle::Suspended, Self::Resume) => {
                Some(Lifecycle::Active)
            }
            (Lifecycle::Active, Self::Suspend) => Some(Lifecycle::Suspended),
            (Lifecycle::Init | Lifecycle::Ready | Lifecycle::Active | Lifecycle::Suspended, Self::Retire) => {
                Some(Lifecycle::Retiring)
            }
            (Lifecycle::Retiring, Self::Terminate) => Some(Lifecycle::Terminated),
            (
                Lifecycle::Init
                | Lifecycle::Ready
                | Lifecycle::Active
                | Lifecycle::Suspended
                | Lifecycle::Retiring
                | Lifecycle::Terminated,
                Self::Boot | Self::Activate | Self::Suspend | Self::Resume | Self::Retire | Self::Terminate,
            ) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn step() -> impl Strategy<Value = LifecycleStep> {
        prop_oneof![
            Just(LifecycleStep::Boot),
            Just(LifecycleStep::Activate),
            Just(LifecycleStep::Suspend),
            Just(LifecycleStep::Resume),
            Just(LifecycleStep::Retire),
            Just(LifecycleStep::Terminate),
        ]
    }

    #[test]
    fn the_whole_life_in_order() {
        let steps = [
            LifecycleStep::Boot,
            LifecycleStep::Activate,
            LifecycleStep::Suspend,
            LifecycleStep::Resume,
            LifecycleStep::Retire,
            LifecycleStep::Terminate,
        ];
        let end = steps.iter().try_fold(Lifecycle::Init, |stage, step| step.leads_from(stage));
        assert_eq!(end, Some(Lifecycle::Terminated));
    }

    proptest! {
        /// Whatever is tried: the only way back is from Suspended to Active, nothing is skipped on the way up, and an agent
        /// that has begun to end only ends.
        #[test]
        fn no_sequence_of_steps_leaves_the_table(steps in proptest::collection::vec(step(), 0..64)) {
            let mut stage = Lifecycle::Init;
            for step in steps {
                let Some(next) = step.leads_from(stage) else { continue };
                prop_assert!(next > stage || (stage == Lifecycle::Suspended && next == Lifecycle::Active));
                prop_assert!(!stage.is_over() || next == Lifecycle::Terminated);
                prop_assert!(next.is_over() || next as u8 <= stage as u8 + 1);
                stage = next;
            }
        }
    }
}
