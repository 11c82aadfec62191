//! Requests that leave memory: they come back as they were, or deny everything.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::alone::{ALLOW_ALL, KernelFixture};
use super::requests::{begun, elsewhere, word, world};
use crate::{Aside, Op, Principal, Saved};

/// What was saved, part by part, for a test to look at and to alter.
#[derive(Debug, Clone, Default)]
struct Disk(Arc<Mutex<Vec<Vec<u8>>>>);

impl Disk {
    fn save(&self, part: &[u8]) -> io::Result<Saved> {
        let mut parts = self.0.lock().unwrap();
        let (disk, number) = (self.clone(), parts.len());
        parts.push(part.to_vec());
        Ok(Box::new(move || {
            disk.0.lock().unwrap().get(number).cloned().ok_or_else(|| io::Error::other("it is gone"))
        }))
    }
}

fn put_aside(world: &KernelFixture, agent: &Principal, what: Aside, disk: &Disk) -> io::Result<()> {
    let save = |part: &[u8]| disk.save(part);
    world.kernel.put_aside(&world.person(), agent.agent_id().unwrap(), what, &save)
}

fn pay(to: &str) -> Op {
    elsewhere("pay", json!({"to": to, "amount": 5}))
}

fn plan() -> Value {
    json!({"plan": [
        {"tool": "mail"},
        {"tool": "pay", "args": {"to": {"const": "ann@a.test"}, "amount": {"const": 5}}},
    ]})
}

#[tokio::test]
async fn a_request_that_was_out_of_memory_is_ruled_on_as_before() {
    for trusted in [json!(null), plan()] {
        let world = world(ALLOW_ALL).await;
        let (stays, leaves) = (begun(&world, trusted.clone()).await, begun(&world, trusted).await);
        let disk = Disk::default();
        let calls = [
            elsewhere("mail", json!({})),
            pay("eve@e.test"),
            pay("ann@a.test"),
            pay("ann@a.test"),
            elsewhere("other", json!({})),
        ];
        for call in calls {
            put_aside(&world, &leaves, Aside::Everything, &disk).unwrap();
            assert_eq!(word(&world, &leaves, call.clone()).await, word(&world, &stays, call).await);
        }
        assert!(disk.0.lock().unwrap().len() > 2, "output received since is a part of its own");
    }
}

#[tokio::test]
async fn an_altered_or_missing_history_denies_everything() {
    let harms: [fn(&mut Vec<Vec<u8>>); 3] = [
        |parts| parts.clear(),
        |parts| parts.iter_mut().for_each(Vec::clear),
        |parts| parts.iter_mut().for_each(|part| part.truncate(part.len() / 2)),
    ];
    for harm in harms {
        let world = world(ALLOW_ALL).await;
        let agent = begun(&world, json!(null)).await;
        let disk = Disk::default();
        put_aside(&world, &agent, Aside::Everything, &disk).unwrap();
        harm(&mut disk.0.lock().unwrap());
        for call in [pay("ann@a.test"), elsewhere("mail", json!({})), pay("ann@a.test")] {
            assert_eq!(word(&world, &agent, call).await, "provenance.lost");
        }
    }
}

#[tokio::test]
async fn what_could_not_be_saved_stays_in_memory() {
    let world = world(ALLOW_ALL).await;
    let agent = begun(&world, json!(null)).await;
    let id = agent.agent_id().unwrap();
    let full = |_: &[u8]| Err(io::Error::from(io::ErrorKind::StorageFull));
    assert!(world.kernel.put_aside(&world.person(), id, Aside::Everything, &full).is_err());
    assert_eq!(word(&world, &agent, elsewhere("mail", json!({}))).await, "done");
    assert_eq!(word(&world, &agent, pay("ann@a.test")).await, "done");
    let disk = Disk::default();
    put_aside(&world, &agent, Aside::History, &disk).unwrap();
    let size = world.kernel.request_size(&world.person(), id);
    assert!(size.unsaved_bytes == 0 && size.bytes > 0, "{size:?}");
    put_aside(&world, &agent, Aside::Everything, &disk).unwrap();
    assert_eq!(word(&world, &agent, pay("ann@a.test")).await, "ask by provenance", "it was done before");
}

#[tokio::test]
async fn nobody_else_takes_a_request_out_of_memory() {
    let world = world(ALLOW_ALL).await;
    let (agent, other) = (begun(&world, json!(null)).await, begun(&world, json!(null)).await);
    let disk = Disk::default();
    let save = |part: &[u8]| disk.save(part);
    world.kernel.put_aside(&other, agent.agent_id().unwrap(), Aside::Everything, &save).unwrap();
    assert!(disk.0.lock().unwrap().is_empty());
    assert_eq!(world.kernel.request_size(&other, agent.agent_id().unwrap()).bytes, 0);
}

#[tokio::test]
async fn only_who_started_an_agent_brings_its_request_back() {
    let world = world(ALLOW_ALL).await;
    let (agent, other) = (begun(&world, json!(null)).await, begun(&world, json!(null)).await);
    let (id, disk) = (agent.agent_id().unwrap(), Disk::default());
    put_aside(&world, &agent, Aside::Everything, &disk).unwrap();
    for (caller, is_aside) in [(&other, true), (&world.person(), false)] {
        world.kernel.bring_back(caller, id);
        assert_eq!(world.kernel.request_size(&world.person(), id).is_aside, is_aside);
    }
    disk.0.lock().unwrap().clear();
    assert_eq!(word(&world, &agent, pay("ann@a.test")).await, "done", "nothing is read again");
}

#[tokio::test]
async fn a_request_that_cannot_be_read_back_counts_as_misled() {
    for (is_harmed, expected) in [(false, false), (true, true)] {
        let world = world(ALLOW_ALL).await;
        let agent = begun(&world, json!(null)).await;
        let work = agent.life().unwrap().work();
        assert!(!work.is_tainted(), "nothing was returned yet");
        let disk = Disk::default();
        put_aside(&world, &agent, Aside::Everything, &disk).unwrap();
        if is_harmed {
            disk.0.lock().unwrap().clear();
        }
        assert_eq!(work.is_tainted(), expected);
    }
}
