//! How a program that runs elsewhere shows which agent it is: a random word that the kernel keeps only the hash of.

use regent_ledger::{Digest, Kind};
use serde_json::json;
use zeroize::Zeroizing;

use super::AgentId;
use crate::principal::Principal;
use crate::syscall::{Fault, Kernel};

/// An agent's token: its id, a dot, and 256 random bits. Shown once; wiped when it is dropped.
pub struct Token(Zeroizing<String>);

impl Token {
    /// The text to hand to the agent's program.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What the kernel keeps of a token.
#[derive(Debug)]
pub(super) struct Kept([u8; 32]);

impl Kept {
    fn of(secret: &str) -> Self {
        Self(sha2::Digest::finalize(<sha2::Sha256 as sha2::Digest>::new_with_prefix(secret)).into())
    }

    /// Looks at every byte, whatever the first ones are.
    fn is(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl Kernel {
    /// Makes a token for an agent, for whoever started it; `None` for everyone else. The token before it is worth nothing from now on.
    pub async fn issue_token(&self, caller: &Principal, agent: &AgentId) -> Result<Option<Token>, Fault> {
        let Some(agent) = self.0.agents.get(agent) else { return Ok(None) };
        if !agent.was_started_by(caller) || agent.life.stage().is_over() {
            return Ok(None);
        }
        let mut secret = Zeroizing::new([0_u8; 32]);
        getrandom::fill(&mut *secret)
            .map_err(|error| Fault::NotRunning(format!("the machine gives no randomness: {error}")))?;
        // Room for all of it from the start, so that growing leaves no copy behind.
        let mut text = Zeroizing::new(String::with_capacity(agent.id.as_str().len() + 65));
        text.push_str(agent.id.as_str());
        text.push('.');
        for half in secret.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
            text.extend(char::from_digit(u32::from(half), 16));
        }
        let kept = Kept::of(&text);
        let body = json!({
            "agent": agent.id, "by": caller.chain(), "event": "token", "session": caller.session(),
            "token": Digest::of(&kept.0),
        });
        self.0.note(Kind::Agent, &body).await?;
        *agent.token.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(kept);
        Ok(Some(Token(text)))
    }

    /// The agent that a token was made for; `None` if it is wrong, was replaced, or its agent has ended.
    pub fn login(&self, token: &str) -> Option<Principal> {
        let (id, _secret) = token.split_once('.')?;
        let agent = self.0.agents.get(&AgentId::from(id))?;
        let shown = Kept::of(token);
        let kept = agent.token.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let right = kept.as_ref().is_some_and(|kept| kept.is(&shown));
        (right && !agent.life.stage().is_over()).then(|| agent.principal.clone())
    }
}
