//! The process tier takes the exam that every executor takes.

use std::sync::Arc;

use regent_sandbox::{Floor, ProcessTier};
use regent_testkit::{Programs, executor_contract};

#[tokio::test]
async fn the_process_tier_passes_the_executors_exam() {
    let failed = executor_contract(&Programs(Arc::new(ProcessTier::new(Floor::Full)))).await.unwrap();
    assert_eq!(failed, Vec::<String>::new());
}
