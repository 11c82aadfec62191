//! Durable tasks: what one is, the states it goes through, and how the ledger tells of them.
//!
//! A task is a program over system calls. Everything about it is in the ledger: what it is (its *record*), each call it made with
//! its outcome, and each state it was in. There is no other file: resuming a task reads the ledger and runs the program again,
//! and calls that have an end are replayed instead of made.

mod asking;
mod diff;
mod said;
mod spec;
mod state;
mod tape;
mod verify;

pub use asking::is_question;
pub use diff::{Brief, Difference, diff};
pub use regent_kernel::Priority;
pub use said::{Exchange, Said, StoppedTurn};
pub(crate) use said::{is_dropped, is_dropped_turn, model_at, model_before, next_turn, turn_of};
pub use spec::{InstructionFile, Instructions, Mode, TaskRecord, TaskSpec};
pub use state::TaskState;
pub(crate) use state::may_become;
pub use tape::{End, Payloads, Recorded, Tape, TaskIndex, TaskView, read, read_from};
pub(crate) use tape::{RECORD_STEP, TaskStateRecord, read_all, read_tasks};
pub(crate) use verify::{Deed, DeedKind, doubt};
