//! How urgent an agent is decides whose call to a busy model comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use regent_kernel::{BoxFuture, Op, Principal, Reply, Status, StopReason};
use regent_models::{
    Event, Events, Patience, Provider, ProviderError, ProviderKind, ProviderRequest, ProviderSettings,
};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};

use crate::world::*;

/// A provider whose calls begin when they have a turn, and end when the test lets one go.
#[derive(Debug)]
struct HeldProvider {
    begun: mpsc::UnboundedSender<String>,
    /// Calls that were asked to make way: a more urgent one waits.
    yields: Arc<AtomicU64>,
    go: Arc<Semaphore>,
}

impl Provider for HeldProvider {
    fn endpoint(&self, _model: &str) -> Option<String> {
        None
    }

    fn ask<'a>(
        &'a self,
        ask: ProviderRequest<'a>,
        events: Events,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(async move {
            self.begun.send(ask.inference.messages[0].text().into_owned()).unwrap();
            let mut has_yielded = false;
            loop {
                if ask.turn.should_yield() && !has_yielded {
                    has_yielded = true;
                    self.yields.fetch_add(1, Ordering::Release);
                }
                match self.go.try_acquire() {
                    Ok(permit) => break permit.forget(),
                    Err(_none) => tokio::task::yield_now().await,
                }
            }
            events.give(Event::Text("done".to_owned())).await?;
            events.give(Event::Stop(StopReason::End)).await
        })
    }
}

async fn agent(world: &ModelsFixture, priority: &str) -> Principal {
    let spec = json!({"name": "worker", "roles": [], "priority": priority});
    let spec = serde_json::from_value(spec).unwrap();
    let operator = world.kernel.operator();
    let Reply::Done(born) = world.kernel.syscall(&operator, Op::Spawn(spec)).await.unwrap() else {
        panic!("no agent")
    };
    let born: serde_json::Value = serde_json::from_slice(born.output.bytes()).unwrap();
    world.kernel.principal_of(&operator, &born["agent"].as_str().unwrap().into()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_more_urgent_agent_overtakes_those_that_wait() {
    let (to, mut begun) = mpsc::unbounded_channel();
    let (yields, go) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(0)));
    let held = HeldProvider { begun: to, yields: Arc::clone(&yields), go: Arc::clone(&go) };
    let patience = Patience { total_ms_max: 600_000, ..hasty() };
    let own = ProviderSettings {
        patience,
        running_max: Some(2),
        ..ProviderSettings::new(ProviderKind::Compatible, &["m"])
    };
    let world = ModelsFixture::new(ALLOW_ALL, hub(vec![("one", Arc::new(held), own)])).await;
    let mut calls = Vec::new();
    let mut call = |who: Principal, text: &'static str| {
        let kernel = world.kernel.kernel();
        calls.push(tokio::spawn(async move { kernel.syscall(&who, Op::Infer(asking("one", text))).await }));
    };
    // Two calls of no urgency hold all the room. Each notices one more urgent call that waits: that is how the test knows.
    let low = agent(&world, "low").await;
    for text in ["first", "second"] {
        call(low.clone(), text);
        assert_eq!(begun.recv().await.as_deref(), Some(text));
    }
    for (priority, waiting) in [("normal", 1), ("high", 2)] {
        call(agent(&world, priority).await, priority);
        while yields.load(Ordering::Acquire) < waiting {
            tokio::task::yield_now().await;
        }
    }
    for expected in ["high", "normal"] {
        go.add_permits(1);
        assert_eq!(begun.recv().await.as_deref(), Some(expected));
    }
    go.add_permits(2);
    for call in calls {
        let Reply::Done(outcome) = call.await.unwrap().unwrap() else { panic!("refused") };
        assert_eq!(outcome.status, Status::Ok);
    }
}
