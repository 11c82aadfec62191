//! Tools that come and go together, pinned by one digest.

use std::sync::Arc;

use regent_ledger::{CanonicalJson, Digest};
use regent_policy::Integrity;

use super::{AdmitError, Driver, DriverKind, Origin, SideEffect, Tool, ToolSpec};

/// The tools of one source: Regent itself, one skill, one server. Each is given with its driver.
#[derive(Debug)]
pub struct ToolSet {
    source: Arc<str>,
    content: Option<Digest>,
    vouched: Option<Integrity>,
    tools: Vec<(ToolSpec, Driver)>,
}

impl ToolSet {
    /// A set without tools. `source` says whose it is: `built-in`, `skill:pdf`, `mcp:github`.
    pub fn new(source: &str) -> Self {
        Self { source: source.into(), content: None, vouched: None, tools: Vec::new() }
    }

    /// The same with one more tool.
    #[must_use]
    pub fn with(mut self, spec: ToolSpec, driver: Driver) -> Self {
        self.tools.push((spec, driver));
        self
    }

    /// The same, pinned by the digest of what the tools were made from, such as the files of a skill. Without this a set is pinned by its
    /// manifests.
    #[must_use]
    pub fn made_from(self, content: Digest) -> Self {
        Self { content: Some(content), ..self }
    }

    /// The same; the user declares what the output of its remote tools is taken for. Without this it is a peer's, and the web's if the tool
    /// talks to the network.
    #[must_use]
    pub fn vouched_for(self, integrity: Integrity) -> Self {
        Self { vouched: Some(integrity), ..self }
    }

    /// Whose it is.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn source_name(&self) -> &Arc<str> {
        &self.source
    }

    /// The manifests.
    pub fn specs(&self) -> impl Iterator<Item = &ToolSpec> {
        self.tools.iter().map(|(spec, _)| spec)
    }

    /// The digest that is approved. The order of the tools doesn't matter.
    pub fn digest(&self) -> Result<Digest, AdmitError> {
        if let Some(content) = self.content {
            return Ok(content);
        }
        let mut specs: Vec<&ToolSpec> = self.specs().collect();
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Digest::compute(CanonicalJson::encode(&specs)?.as_str().as_bytes()))
    }

    /// The set itself, if it is what was agreed to.
    pub(super) fn agreed(self, agreed: Option<Digest>) -> Result<Self, AdmitError> {
        let found = self.digest()?;
        let source_name = self.source.to_string();
        match agreed {
            Some(agreed) if agreed == found => Ok(self),
            Some(agreed) => Err(AdmitError::Changed { source_name, agreed, found }),
            None => Err(AdmitError::Unagreed(source_name)),
        }
    }

    /// Each tool checked, with its schema compiled.
    pub(super) fn into_tools(self) -> Result<Vec<Tool>, AdmitError> {
        let Self { source, vouched, tools, .. } = self;
        let mut made: Vec<Tool> = Vec::with_capacity(tools.len());
        for (mut spec, driver) in tools {
            check(&spec, &driver)?;
            if made.iter().any(|other| other.spec.name == spec.name) {
                let (source_name, owner) = (source.to_string(), source.to_string());
                return Err(AdmitError::Taken { tool: spec.name, source_name, owner });
            }
            if driver.kind() == DriverKind::Remote {
                spec.output.integrity = remote_integrity(&spec, vouched);
            }
            made.push(Tool::new(spec, driver, Arc::clone(&source))?);
        }
        Ok(made)
    }
}

/// Where the output of a remote tool comes from. A server can say that it is worse than it seems, and never that it is better: only the user can.
fn remote_integrity(spec: &ToolSpec, vouched: Option<Integrity>) -> Integrity {
    let unvouched = if spec.effect == SideEffect::Network { Integrity::Web } else { Integrity::Peer };
    vouched.unwrap_or_else(|| unvouched.max(spec.output.integrity))
}

fn check(spec: &ToolSpec, driver: &Driver) -> Result<(), AdmitError> {
    let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    if spec.name.is_empty() || spec.name.len() > 128 || !spec.name.chars().all(fine) {
        return Err(AdmitError::Name(spec.name.clone()));
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
    if spec.version.is_empty() || spec.version.len() > 64 || !spec.version.chars().all(fine) {
        return Err(AdmitError::Version(spec.version.clone()));
    }
    if spec.tiers.is_empty() {
        return Err(AdmitError::NoTier(spec.name.clone()));
    }
    let refuse = |why: String| Err(AdmitError::Driver { tool: spec.name.clone(), why });
    if driver.kind() != spec.driver {
        return refuse(format!("its driver is {:?}, its manifest says {:?}", driver.kind(), spec.driver));
    }
    if let Some(tier) = spec.tiers.iter().find(|tier| !spec.driver.runs_at(**tier)) {
        return refuse(format!("a {:?} driver doesn't run at the tier `{tier}`", spec.driver));
    }
    // What a server says about itself is a claim.
    if spec.driver == DriverKind::Remote && matches!(spec.origin, Origin::BuiltIn | Origin::Verified) {
        return refuse("a remote tool is nobody's that Regent vouches for".to_owned());
    }
    Ok(())
}
