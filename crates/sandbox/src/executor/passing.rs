//! A program whose output is read while it runs: from its pipes or its terminal to the kernel's channel, no faster than the reader reads.

use std::time::Duration;

use regent_kernel::{Channel, Overflow, Permit, Reading, tier};
use tokio::sync::Notify;

use super::{ProcessTier, Sizes, Unrun};
use crate::ended::{EndedBy, FinishedRun};
use crate::sink::{self, QueuedOutput, SinkSource};
use crate::spec::Spec;

/// A program that has written nothing for so long may wait for an answer to what it wrote: nothing of that is held back any more.
const IDLE: Duration = Duration::from_millis(30);

/// Runs a program and passes on what it writes meanwhile. Tells how much of it the outcome will have.
pub(super) async fn launched(
    tier: &ProcessTier,
    spec: &mut Spec,
    network: bool,
    permit: &Permit<'_, tier::Process>,
) -> (Result<FinishedRun, Unrun>, Option<Sizes>) {
    let (sink, source) = sink::channel();
    spec.sink = Some(sink);
    let stop = Notify::new();
    let mut passing = Box::pin(pass_on(permit, source));
    let mut passed = None;
    let mut running = Box::pin(tier.launched(spec, network, permit, &stop));
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut running => break ended,
            end = &mut passing, if passed.is_none() => {
                if end.is_err() {
                    stop.notify_one();
                }
                passed = Some(end);
            }
        }
    };
    drop(running);
    // The last sender: what is in the queue is passed on, and then it is over.
    spec.sink = None;
    let mut ended = match ended {
        Ok(ended) => ended,
        Err(unrun) => return (Err(unrun), None),
    };
    let rest = [
        (Channel::Output, std::mem::take(&mut ended.stdout)),
        (Channel::Error, std::mem::take(&mut ended.stderr)),
    ];
    let passing_rest = async {
        match passed {
            Some(end) => end,
            None => passing.await,
        }?;
        for (channel, bytes) in rest {
            permit.emit(channel, &bytes).await?;
            permit.end(channel).await?;
        }
        Ok(())
    };
    // A reader that doesn't read keeps the call as long as it may run, and no longer.
    let passed = tokio::select! {
        biased;
        passed = passing_rest => passed,
        () = permit.cancelled() => Ok(()),
    };
    if let Err(Overflow) = passed {
        (ended.why, ended.truncated) = (EndedBy::OutputCap, true);
    }
    let kept = |channel| permit.delivered(channel).kept_bytes;
    (Ok(ended), Some((kept(Channel::Output), kept(Channel::Error))))
}

async fn pass_on(permit: &Permit<'_, tier::Process>, mut source: SinkSource) -> Result<(), Overflow> {
    loop {
        let written = match tokio::time::timeout(IDLE, source.chunks.recv()).await {
            Ok(written) => written,
            Err(_idle) => {
                flush(permit).await?;
                source.chunks.recv().await
            }
        };
        match written {
            None => return Ok(()),
            Some(QueuedOutput::Chunk(channel, bytes)) => match permit.emit(channel, &bytes).await? {
                Reading::Read => {}
                Reading::Unread => source.close(channel),
            },
            Some(QueuedOutput::Settle(done)) => {
                flush(permit).await?;
                permit.caught_up().await;
                let _gone = done.send(()).is_err();
            }
        }
    }
}

async fn flush(permit: &Permit<'_, tier::Process>) -> Result<(), Overflow> {
    for channel in Channel::ALL {
        permit.flush(channel).await?;
    }
    Ok(())
}
