//! What is set up, as it stands in a settings file:
//!
//! ```toml
//! [models.claude]
//! kind = "anthropic"
//! key = "secret://anthropic"
//! models = ["claude-sonnet-5-5"]
//! fallback = ["qwen/qwen2.5-coder"]
//!
//! [models.qwen]
//! kind = "ollama"
//!
//! [router]
//! cost_microusd_max = 50000
//! ```

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use serde::Deserialize;

use crate::capability::{CapabilitySpec, CapabilityTable};
use crate::patience::Patience;

/// Providers that may be set up.
const PROVIDERS_MAX: usize = 64;
/// Models that one may name, and others that it may fall back to.
const MODELS_MAX: usize = 256;
pub(crate) const FALLBACKS_MAX: usize = 4;

/// Everything about models.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Providers by the name that calls use.
    pub models: BTreeMap<String, ProviderSettings>,
    /// How `auto` chooses.
    pub router: RouterSettings,
    /// The folder with pulled weights. Not from a settings file: the caller knows where weights are stored.
    #[serde(skip)]
    pub weights: Option<PathBuf>,
    /// The user's own table of capabilities, from a file of its own.
    #[serde(skip)]
    pub table: Option<CapabilityTable>,
}

/// One provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderSettings {
    /// What it speaks.
    pub kind: ProviderKind,
    /// Where it is; the kind's usual place if absent.
    pub url: Option<String>,
    /// A handle to what opens it, `secret://name`. Never the key itself.
    pub key: Option<String>,
    /// Its models, the first being the one that is meant where none is named. Others can be asked for by name.
    #[serde(default)]
    pub models: Vec<String>,
    /// The script of a scripted one; the folder with the weights of a local one.
    pub file: Option<PathBuf>,
    /// Threads of a local one; all processors but one if absent.
    pub threads: Option<usize>,
    /// Whom to ask when it fails, as `provider/model`, in order. Each is judged as a call of its own.
    #[serde(default)]
    pub fallback: Vec<String>,
    /// Whether what looks like credentials and personal details is taken out of what leaves for it; yes if absent and it is remote.
    pub redact: Option<bool>,
    /// Calls at once.
    pub running_max: Option<usize>,
    /// Calls that may wait.
    pub waiting_max: Option<usize>,
    /// Shares of agents by name; 1 if absent.
    #[serde(default)]
    pub shares: HashMap<String, u32>,
    /// Time-outs and retries.
    #[serde(default)]
    pub patience: Patience,
    /// What its models can do and what they cost, where the table doesn't say or says otherwise.
    #[serde(default)]
    pub capabilities: BTreeMap<String, CapabilitySpec>,
}

/// The protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// OpenAI, by its chat completions.
    Openai,
    /// OpenAI, by its responses.
    OpenaiResponses,
    /// Anthropic.
    Anthropic,
    /// Google.
    Gemini,
    /// Ollama.
    Ollama,
    /// A server that speaks OpenAI's chat completions: llama.cpp, vLLM, LM Studio.
    Compatible,
    /// A file of turns.
    Scripted,
    /// Weights in this process.
    Local,
}

impl ProviderKind {
    /// The word in the table of capabilities and for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Openai | Self::OpenaiResponses => "openai",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
            Self::Compatible => "compatible",
            Self::Scripted => "scripted",
            Self::Local => "local",
        }
    }

    /// Where it usually is.
    pub(crate) fn usual_url(self) -> Option<&'static str> {
        match self {
            Self::Openai | Self::OpenaiResponses => Some("https://api.openai.com/v1"),
            Self::Anthropic => Some("https://api.anthropic.com/v1"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::Ollama => Some("http://127.0.0.1:11434"),
            Self::Compatible | Self::Scripted | Self::Local => None,
        }
    }
}

/// How `auto` chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RouterSettings {
    /// What one call may cost at most; what nobody has a price for is over it.
    pub cost_microusd_max: Option<u64>,
    /// Rather not one that has taken longer than this so far.
    pub latency_ms_max: Option<u64>,
    /// Rather not one of which fewer calls in a hundred have succeeded.
    pub good_percent_min: Option<u8>,
    /// By task class.
    pub classes: BTreeMap<String, ClassSettings>,
}

/// How `auto:CLASS` chooses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassSettings {
    /// Models in the order that is tried, as `provider/model`; then the others.
    pub prefer: Vec<String>,
    /// Instead of the general one.
    pub cost_microusd_max: Option<u64>,
    /// Instead of the general one.
    pub latency_ms_max: Option<u64>,
    /// Instead of the general one.
    pub good_percent_min: Option<u8>,
}

/// Settings that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not TOML, or not of this shape.
    #[error("{message}")]
    Shape {
        /// What is wrong.
        message: String,
        /// Where, in bytes.
        span: Option<std::ops::Range<usize>>,
    },
    /// One provider can't be used.
    #[error("`models.{name}`: {why}")]
    Provider {
        /// Which.
        name: String,
        /// What is wrong.
        why: String,
    },
}

impl Settings {
    /// Reads the sections `models` and `router` of a settings file; the others are not ours.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let settings: Self = toml::from_str(text).map_err(|error| SettingsError::Shape {
            message: error.message().to_owned(),
            span: error.span(),
        })?;
        if settings.models.len() > PROVIDERS_MAX {
            let message = format!("more than {PROVIDERS_MAX} providers");
            return Err(SettingsError::Shape { message, span: None });
        }
        for (name, provider) in &settings.models {
            let fail = |why: String| SettingsError::Provider { name: name.clone(), why };
            check_name(name).map_err(fail)?;
            provider.check().map_err(fail)?;
        }
        Ok(settings)
    }
}

impl ProviderSettings {
    fn check(&self) -> Result<(), String> {
        if self.models.len() > MODELS_MAX || self.fallback.len() > FALLBACKS_MAX {
            return Err(format!("more than {MODELS_MAX} models or {FALLBACKS_MAX} fallbacks"));
        }
        self.models.iter().try_for_each(|model| check_model(model))?;
        if let Some(bad) = self.fallback.iter().find(|one| !one.contains('/')) {
            return Err(format!("`{bad}` is not `provider/model`"));
        }
        self.secret().map(drop)
    }

    /// The name of the secret that opens it.
    pub(crate) fn secret(&self) -> Result<Option<String>, String> {
        let Some(key) = &self.key else { return Ok(None) };
        // What was meant as a key must not come back in a message.
        match key.strip_prefix("secret://") {
            Some(name) if regent_kernel::is_secret_name(name) => Ok(Some(name.to_owned())),
            Some(_) | None => {
                Err("`key` must be a handle such as `secret://openai`, not the key itself".to_owned())
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !name.is_empty() && name.len() <= 64 && name != "auto" && name.chars().all(fits) {
        true => Ok(()),
        false => {
            Err("a provider's name may have letters, digits, `-` and `_`, and can't be `auto`".to_owned())
        }
    }
}

/// A model's name may become part of a URL's path.
pub(crate) fn check_model(model: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:/@".contains(c);
    let fine = !model.is_empty() && model.len() <= 200 && model.chars().all(fits) && !model.contains("..");
    if fine { Ok(()) } else { Err(format!("`{}` is not a model's name", model.escape_debug())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_mistakes_named() {
        let text = "[ui]\ncolor='never'\n[models.o]\nkind='openai-responses'\nkey='secret://open-ai'\nmodels=['gpt-x']\n\
                    patience={tries_max=2}\n[models.o.capabilities.gpt-x]\nwindow_tokens=9\nprice={input=1,output=2}\n[router.classes.code]\nprefer=['o/gpt-x']\n";
        let settings = Settings::parse(text).unwrap();
        let one = &settings.models["o"];
        assert_eq!(
            (one.kind, one.patience.tries_max, one.patience.idle_ms_max),
            (ProviderKind::OpenaiResponses, 2, 60_000)
        );
        assert_eq!(one.secret().unwrap().as_deref(), Some("open-ai"));
        assert_eq!(one.capabilities["gpt-x"].window_tokens, Some(9));
        let cases = [
            ("[models.a]\nkind='x'", "unknown variant `x`"),
            ("[models.a]\nkind='ollama'\nurll='x'", "unknown field `urll`"),
            ("[models.a]\nkind='ollama'\ncapabilities.m={refused=['x']}", "unknown parameter `x`"),
            ("[models.auto]\nkind='ollama'", "can't be `auto`"),
            ("[models.a]\nkind='openai'\nkey='sk-12345678'", "not the key itself"),
            ("[models.a]\nkind='gemini'\nmodels=['../x']", "not a model's name"),
            ("[models.a]\nkind='gemini'\nmodels=['x?y']", "not a model's name"),
            ("[models.a]\nkind='gemini'\nfallback=['x']", "not `provider/model`"),
        ];
        for (text, expected) in cases {
            let error = Settings::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("sk-1234"), "{error}");
        }
    }
}
