//! Rules that look back, on whole kernels.

use crate::tests::alone::{KernelFixture, named, run};
use crate::{Kernel, Principal, Reply};

const POLICY: &str = "
version: 1
rules:
  - { id: all, effect: allow }
  - { id: stays, effect: deny, match: { tool: test.send }, after: { result: { min_confidentiality: secret } } }
  - { id: once, effect: deny, match: { tool: test.web }, at_most: 1, scope: lasting }
  - { id: first, effect: deny, match: { tool: test.drip }, needs: { tool: test.echo } }
";

async fn verdict(kernel: &Kernel, who: &Principal, tool: &str) -> Option<String> {
    match kernel.syscall(who, run(tool)).await.unwrap() {
        Reply::Done(_) => None,
        Reply::Denied(denial) => denial.reason.rule.map(|rule| rule.id.to_string()),
        other @ Reply::Pending(_) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_an_agent_has_seen_binds_it_and_its_children_and_nobody_else() {
    let world = KernelFixture::with(POLICY).await;
    let one = world.spawn(&world.person(), named("one")).await;
    let other = world.spawn(&world.person(), named("other")).await;
    let child = world.spawn(&one, named("child")).await;
    assert_eq!(verdict(&world.kernel, &one, "test.send").await, None);
    // A child reads, and its parent can't send what the child returned.
    assert_eq!(verdict(&world.kernel, &child, "test.secret").await, None);
    assert_eq!(verdict(&world.kernel, &one, "test.send").await.as_deref(), Some("stays"));
    assert_eq!(verdict(&world.kernel, &child, "test.send").await.as_deref(), Some("stays"));
    assert_eq!(verdict(&world.kernel, &other, "test.send").await, None);
    assert_eq!(verdict(&world.kernel, &one, "test.drip").await.as_deref(), Some("first"));
    assert_eq!(verdict(&world.kernel, &one, "test.echo").await, None);
    assert_eq!(verdict(&world.kernel, &child, "test.drip").await, None);
}

#[tokio::test]
async fn calls_side_by_side_take_no_more_than_there_is() {
    let world = KernelFixture::with(POLICY).await;
    let one = world.spawn(&world.person(), named("one")).await;
    let calls = (0..16).map(|_| {
        let (kernel, who) = (world.kernel.clone(), one.clone());
        tokio::spawn(async move { verdict(&kernel, &who, "test.web").await })
    });
    let mut went = 0;
    for call in calls.collect::<Vec<_>>() {
        went += usize::from(call.await.unwrap().is_none());
    }
    assert_eq!(went, 1);
    // Another agent by that name has no more: what lasts goes by the name.
    let again = world.spawn(&world.person(), named("one")).await;
    assert_eq!(verdict(&world.kernel, &again, "test.web").await.as_deref(), Some("once"));
}
