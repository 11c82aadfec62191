//! Model providers: one trait, over the network or in this process.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;

use regent_egress::ReachError;
use regent_kernel::{BoxFuture, Inference, Part, Secret, SecretError};
use tokio::sync::mpsc;

use crate::capability::Capability;
use crate::event::Event;
use crate::names::Names;
use crate::patience::Wait;
use crate::scheduler::SchedulerTurn;

/// Pieces of an answer that may wait to be taken; then the provider waits too.
const EVENTS_WAITING_MAX: usize = 64;

/// A model provider: continues a conversation.
///
/// It gets what it needs and nothing more: no permit, no policy, no ledger. What it may be asked, and whether, is decided before;
/// retries, time-outs in all, prices and fallbacks are the [`Hub`](crate::Hub)'s. A provider in this process runs its token loop on
/// a thread of its own: it gives each token with [`Events::give_blocking`], stops when that fails, and looks at
/// [`SchedulerTurn::should_yield`] between two tokens.
///
/// ```
/// use std::sync::Arc;
/// use regent_kernel::{BoxFuture, StopReason, SystemClock};
/// use regent_models::{Event, Events, Hub, Provider, ProviderError, ProviderKind, ProviderRequest, ProviderSettings, RouterSettings};
///
/// /// Returns the last message.
/// #[derive(Debug)]
/// struct Echo;
///
/// impl Provider for Echo {
///     fn endpoint(&self, _model: &str) -> Option<String> {
///         None // it stays in this process
///     }
///
///     fn ask<'a>(&'a self, ask: ProviderRequest<'a>, events: Events) -> BoxFuture<'a, Result<(), ProviderError>> {
///         Box::pin(async move {
///             let last = ask.inference.messages.last().map(|message| message.text());
///             events.give(Event::Text(last.unwrap_or_default().into_owned())).await?;
///             events.give(Event::Stop(StopReason::End)).await
///         })
///     }
/// }
///
/// let mut hub = Hub::new(RouterSettings::default(), Arc::new(SystemClock::default()))?;
/// hub.add("echo", Arc::new(Echo), ProviderSettings::new(ProviderKind::Local, &["one"]));
/// assert_eq!(hub.list()[0].model, "echo/one");
/// # Ok::<(), regent_models::SettingsError>(())
/// ```
pub trait Provider: Send + Sync + fmt::Debug {
    /// Where a question to this model goes, as a URL; `None` if it stays in this process.
    fn endpoint(&self, model: &str) -> Option<String>;

    /// The secret that opens it, by name.
    fn secret(&self) -> Option<&str> {
        None
    }

    /// Whether it can be asked for this model at all; one whose weights aren't there can't.
    fn is_ready(&self, _model: &str) -> bool {
        true
    }

    /// Whether it has a use for a part: an image or a file. A conversation with one that it doesn't take is refused before it is asked.
    fn takes(&self, _part: &Part) -> bool {
        false
    }

    /// How long a conversation with this model may be, if it knows.
    fn window_tokens(&self, _model: &str) -> Option<u64> {
        None
    }

    /// Asks, and gives the answer piece by piece. Ok without an [`Event::Stop`] counts as a cut stream.
    fn ask<'a>(
        &'a self,
        ask: ProviderRequest<'a>,
        events: Events,
    ) -> BoxFuture<'a, Result<(), ProviderError>>;
}

/// One question to a provider.
#[derive(Debug, Clone, Copy)]
pub struct ProviderRequest<'a> {
    /// The model, as the provider spells it.
    pub model: &'a str,
    /// The conversation.
    pub inference: &'a Inference,
    /// Tools as the provider spells them.
    pub names: &'a Names,
    /// What opens it.
    pub secret: Option<&'a Secret>,
    /// Its place among the calls that run. One in this process makes way by [`SchedulerTurn::give_way`].
    pub turn: &'a SchedulerTurn,
    /// Counts the bytes that leave this machine.
    pub bytes_out: &'a AtomicU64,
    /// What the model can do.
    pub capability: &'a Capability,
    /// What the provider has refused for this model before; the question goes without it.
    pub refused: &'a BTreeSet<&'static str>,
}

/// Where the pieces of an answer go.
#[derive(Debug, Clone)]
pub struct Events(mpsc::Sender<Event>);

impl Events {
    /// A channel for the pieces of one answer. A provider that is ahead of its reader waits.
    pub fn channel() -> (Self, mpsc::Receiver<Event>) {
        let (to, from) = mpsc::channel(EVENTS_WAITING_MAX);
        (Self(to), from)
    }

    /// Sends a chunk; fails when the receiver is gone.
    pub async fn give(&self, event: Event) -> Result<(), ProviderError> {
        self.0.send(event).await.map_err(|_| ProviderError::Stopped)
    }

    /// The same from a thread of one's own.
    pub fn give_blocking(&self, event: Event) -> Result<(), ProviderError> {
        self.0.blocking_send(event).map_err(|_| ProviderError::Stopped)
    }
}

/// No answer, or half of one.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// It wasn't reached, or the exchange broke.
    #[error(transparent)]
    Reach(#[from] ReachError),
    /// It refused.
    #[error("it answered {status}: {message}")]
    Status {
        /// With which status.
        status: u16,
        /// And which words.
        message: String,
        /// When to retry, if it named a time.
        wait: Option<Wait>,
        /// A parameter of the question that it doesn't take, and that the question can do without.
        parameter: Option<&'static str>,
    },
    /// It accepted the request, and then reported an error.
    #[error("it reported `{code}`: {message}")]
    Reported {
        /// Its own word for it.
        code: String,
        /// And its words.
        message: String,
    },
    /// It is no server for models.
    #[error("the server answered with `{0}`, which isn't a model's answer: check the provider's `url`")]
    NotAnApi(String),
    /// What it sent can't be understood.
    #[error("the answer can't be parsed: {0}")]
    Malformed(String),
    /// The answer ended before it was over.
    #[error("the answer was truncated")]
    Cut,
    /// More came than is taken.
    #[error("{0} exceeds its size limit")]
    TooLarge(&'static str),
    /// It took too long in all.
    #[error("the answer took longer than {0} ms")]
    Late(u64),
    /// Its secret isn't available.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The question can't be put to it.
    #[error("it can't be called: {0}")]
    Unfit(String),
    /// What answers isn't on this machine, or can't be used.
    #[error("it isn't on this machine: {0}")]
    Absent(String),
    /// It has failed too often just now to be asked.
    #[error("it failed repeatedly, so calls to it are paused; the last failure: {0}")]
    Down(String),
    /// Too many wait for it.
    #[error("{0} calls are already waiting for it")]
    Busy(usize),
    /// Nobody waits for the answer any more.
    #[error("the caller is gone")]
    Stopped,
}

/// What to do after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask again, and not before this, if it named a time.
    Again(Option<Wait>),
    /// Ask someone else: it would say the same again.
    Elsewhere,
    /// Anyone would say the same.
    Fail,
}

impl ProviderError {
    /// What to do about it.
    pub fn next(&self) -> Next {
        match self {
            Self::Reach(error) => match error {
                ReachError::Connect { .. } | ReachError::Timeout(_) | ReachError::Broken(_) => {
                    Next::Again(None)
                }
                ReachError::Url(_)
                | ReachError::Name { .. }
                | ReachError::NoSuchHost { .. }
                | ReachError::Address { .. }
                | ReachError::Tls(_) => Next::Elsewhere,
                ReachError::TooLarge => Next::Fail,
            },
            Self::Status { status: 408 | 409 | 425 | 429 | 500..=599, wait, .. } => Next::Again(*wait),
            Self::Status { status: 401..=404, .. }
            | Self::Secret(_)
            | Self::Absent(_)
            | Self::NotAnApi(_)
            | Self::Down(_)
            | Self::Busy(_) => Next::Elsewhere,
            Self::Status { .. } | Self::TooLarge(_) | Self::Unfit(_) | Self::Stopped => Next::Fail,
            Self::Reported { code, .. } if is_passing(code) => Next::Again(None),
            Self::Reported { .. } => Next::Elsewhere,
            Self::Malformed(_) | Self::Cut => Next::Again(None),
            Self::Late(_) => Next::Elsewhere,
        }
    }

    /// Whether the provider seems to be down, which its breaker counts. A provider that refuses is up.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Reach(_) | Self::Malformed(_) | Self::Cut | Self::Late(_) => true,
            Self::Status { status, .. } => *status >= 500,
            Self::Reported { code, .. } => is_passing(code),
            Self::TooLarge(_)
            | Self::Secret(_)
            | Self::Unfit(_)
            | Self::Absent(_)
            | Self::NotAnApi(_)
            | Self::Down(_)
            | Self::Busy(_)
            | Self::Stopped => false,
        }
    }

    /// Whether the same question, put to it later, can succeed. With [`next`](Self::next) this is the one place that says
    /// what is retried: the receipt carries it, and callers don't decide for themselves.
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Reach(error) => match error {
                ReachError::Connect { .. }
                | ReachError::Timeout(_)
                | ReachError::Broken(_)
                | ReachError::NoSuchHost { .. } => false,
                ReachError::Url(_)
                | ReachError::Name { .. }
                | ReachError::Address { .. }
                | ReachError::Tls(_)
                | ReachError::TooLarge => true,
            },
            Self::Down(_) | Self::Busy(_) | Self::Late(_) | Self::Stopped => false,
            Self::Status { .. }
            | Self::Reported { .. }
            | Self::NotAnApi(_)
            | Self::Malformed(_)
            | Self::Cut
            | Self::TooLarge(_)
            | Self::Secret(_)
            | Self::Unfit(_)
            | Self::Absent(_) => !matches!(self.next(), Next::Again(_)),
        }
    }

    /// A stable word for the failure that the caller sees.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Reach(_) => "model.unreachable",
            Self::Status { status: 401..=403, .. } => "model.unauthorised",
            Self::Status { status: 429, .. } => "model.rate_limited",
            Self::Status { message, .. } if is_too_long(message) => "model.too_long",
            Self::Status { .. } | Self::Reported { .. } => "model.refused",
            Self::Malformed(_) => "model.garbled",
            Self::Cut => "model.cut",
            Self::TooLarge(_) => "model.too_large",
            Self::Late(_) => "model.late",
            Self::Secret(error) => error.code(),
            Self::Unfit(_) => "model.unfit",
            Self::Absent(_) => "model.absent",
            Self::NotAnApi(_) => "model.not_an_api",
            Self::Down(_) => "model.down",
            Self::Busy(_) => "model.busy",
            Self::Stopped => "model.stopped",
        }
    }
}

/// Words that providers use for a conversation that is longer than the model takes.
fn is_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let words =
        ["context_length", "context length", "context window", "prompt is too long", "too many tokens"];
    words.iter().any(|word| message.contains(word))
}

/// Words that providers use for what goes away by itself.
fn is_passing(code: &str) -> bool {
    let code = code.to_ascii_lowercase();
    let words =
        ["overload", "rate_limit", "server", "internal", "unavailable", "api_error", "timeout", "exhausted"];
    words.iter().any(|word| code.contains(word)) || matches!(code.parse(), Ok(429_u16 | 500..=599))
}
