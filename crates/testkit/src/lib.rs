//! Does it hold? The simulator, the crash harness and the executor contract.
