//! Asks about a call before the call is due, so that a reviewer sees the calls of one turn together. Nothing runs here: no
//! permit is minted. A call that needs no question, or has one already, leaves no trace.

use std::sync::Arc;

use super::{Fault, Kernel};
use crate::approval::OpenQuestion;
use crate::call::{Call, Op};
use crate::executor::BoxFuture;
use crate::journal::JournalLookup;
use crate::kernel::Core;
use crate::principal::Principal;
use crate::record;

/// A question about a call that is made later.
#[derive(Debug)]
pub struct AskedAhead {
    /// All that the person should see.
    pub question: Box<OpenQuestion>,
    /// It was put now. Otherwise it was open before, and its intent is in the ledger already.
    pub is_new: bool,
}

impl Kernel {
    /// Asks about a call that is made later, unless the question is already open. The call is judged again when it is made: then an
    /// answer counts if it is still the same call.
    pub fn ask_ahead(
        &self,
        caller: &Principal,
        op: Op,
    ) -> BoxFuture<'static, Result<Option<AskedAhead>, Fault>> {
        let asking = Arc::clone(&self.0).ask_ahead(Call::top_level(caller, op));
        // Like a call, it continues if the caller goes away: a question has its intent in the ledger.
        Box::pin(async move { tokio::spawn(asking).await.unwrap_or(Err(Fault::TornDown)) })
    }
}

impl Core {
    async fn ask_ahead(self: Arc<Self>, call: Call) -> Result<Option<AskedAhead>, Fault> {
        self.admit().await?;
        let JournalLookup::Make(None) = self.known(&call).await? else { return Ok(None) };
        let mut facts = self.facts(&call).await?;
        let considered = self.consider(&call, &mut facts, None).await;
        // Nothing runs here: an approval that was found is for the call itself.
        facts.charges.give_back().await;
        let (verdict, asked) = considered?;
        let Some(asked) = asked else { return Ok(None) };
        if asked.question.intent.is_some() {
            return Ok(Some(AskedAhead { question: asked.question, is_new: false }));
        }
        let draft = record::intent(&self.stamp(&facts), &call, &facts, &verdict, Some(&asked))?;
        let intent = self.record_judged(draft, &verdict).await?;
        self.step_begun(&call, intent, None, true);
        self.note_lane(&call, intent.lane).await?;
        let question = self.pending(asked, intent).await?.question;
        Ok(Some(AskedAhead { question, is_new: true }))
    }
}
