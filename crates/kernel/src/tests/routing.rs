//! Tools that come and go while calls run.

use std::sync::Arc;

use regent_policy::Integrity;
use serde_json::json;
use tokio::sync::Semaphore;

use super::alone::{KernelFixture, named, run};
use crate::{
    BoxFuture, Driver, DriverKind, ExecuteError, Executor, Permit, RawOutput, Status, Tier, ToolSet,
    ToolSpec, tier,
};

/// Says which edition it is, once it is let go.
struct Edition {
    number: u32,
    began: Arc<Semaphore>,
    go: Arc<Semaphore>,
}

impl Executor<tier::Host> for Edition {
    fn execute<'s>(
        &'s self,
        _permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            self.began.add_permits(1);
            let _go = self.go.acquire().await.map_err(|error| ExecuteError::Broken(error.to_string()))?;
            Ok(RawOutput::json(&json!(self.number)))
        })
    }
}

#[tokio::test]
async fn a_running_call_ends_with_the_driver_it_began_with_and_the_next_gets_what_is_there_then() {
    let world = Arc::new(KernelFixture::new().await);
    let (began, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let set = |number: u32| {
        let spec = ToolSpec {
            name: "test.edition".to_owned(),
            description: format!("Edition {number}."),
            input: json!({"type": "object"}),
            driver: DriverKind::Remote,
            tiers: vec![Tier::Host],
            ..ToolSpec::default()
        };
        let edition = Edition { number, began: Arc::clone(&began), go: Arc::clone(&go) };
        ToolSet::new("mcp:editions").with(spec, Driver::remote(Arc::new(edition)))
    };
    let agreed = set(1).digest().unwrap();
    world.kernel.catalogue().admit(set(1), Some(agreed)).unwrap();
    let agent = world.spawn(&world.person(), named("worker")).await;
    let call = || {
        let (world, agent) = (Arc::clone(&world), agent.clone());
        tokio::spawn(async move { world.outcome(&agent, run("test.edition")).await })
    };
    let first = call();
    began.acquire().await.unwrap().forget();
    // While it runs its set is replaced. The digest of the old one doesn't do: then the source is off.
    assert!(world.kernel.catalogue().admit(set(2), Some(agreed)).is_err());
    assert_eq!(world.denied(&agent, run("test.edition")).await, "tool.unknown");
    let digest = set(2).digest().unwrap();
    world.kernel.catalogue().admit(set(2), Some(digest)).unwrap();
    let second = call();
    began.acquire().await.unwrap().forget();
    assert!(world.kernel.catalogue().withdraw("mcp:editions"));
    assert_eq!(world.denied(&agent, run("test.edition")).await, "tool.unknown");
    go.add_permits(2);
    for (call, said) in [(first, "1"), (second, "2")] {
        let outcome = call.await.unwrap();
        assert_eq!((outcome.status, outcome.output.text().as_ref()), (Status::Ok, said));
        assert_eq!(outcome.output.label().integrity, Integrity::Peer, "nobody vouches for a server");
    }
    assert!(!world.kernel.catalogue().withdraw("mcp:editions"));
}
