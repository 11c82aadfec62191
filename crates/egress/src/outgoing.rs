//! Checks outgoing data: a revealed value doesn't leave, unless the broker itself filled it in.

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use regent_kernel::{Permit, ToolFailure, tier};

use crate::body::Pieces;
use crate::reach::Reach;
use crate::tally::{ExchangeTally, failure, unreached};

/// Rejects bytes that contain a revealed value, plain or in a common encoding.
pub(crate) fn check(permit: &Permit<'_, tier::Host>, what: &str, bytes: &[u8]) -> Result<(), ToolFailure> {
    let mut copy = bytes.to_vec();
    if permit.scrub(&mut copy) { Err(leaving(what)) } else { Ok(()) }
}

fn leaving(what: &str) -> ToolFailure {
    let message = format!(
        "the {what} contains the value of a secret; send its handle (secret://name) in a header or a JSON text instead"
    );
    failure("net.secret_leaving", message)
}

/// Forwards a body as it arrives, and checks it across piece boundaries.
pub(crate) async fn stream(
    permit: &Permit<'_, tier::Host>,
    reach: &Reach,
    tally: &ExchangeTally<'_>,
    mut body: Incoming,
    pieces: Pieces,
) -> Result<(), ToolFailure> {
    let cut = |_| failure("net.broken", "the server stopped reading the body");
    let mut held = Vec::new();
    while let Some(frame) = reach.in_time(body.frame()).await.map_err(|error| unreached(&error))? {
        let frame = frame
            .map_err(|error| failure("net.broken", format!("reading the program's body failed: {error}")))?;
        let Ok(piece) = frame.into_data() else { continue };
        held.extend_from_slice(&piece);
        let part = permit.scrub_part(&mut held);
        if part.masked {
            return Err(leaving("body"));
        }
        tally.leave(part.bytes.len() as u64).await?;
        reach.in_time(pieces.send(part.bytes)).await.map_err(|error| unreached(&error))?.map_err(cut)?;
    }
    check(permit, "body", &held)?;
    tally.leave(held.len() as u64).await?;
    reach.in_time(pieces.send(held)).await.map_err(|error| unreached(&error))?.map_err(cut)?;
    pieces.finish().await;
    Ok(())
}
