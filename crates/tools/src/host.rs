//! The executor of the host tier: one driver per tool, found by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use regent_egress::{Broker, Client};
use regent_kernel::{BoxFuture, ExecuteError, Executor, Foreseen, Op, Permit, RawOutput, ToolSpec, tier};
use serde_json::Value;

use crate::extract::Extract;
use crate::output::Driven;
use crate::tool::{HostTool, ToolError};
use crate::{fs, http, process};

/// Performs the tools that run in this process: the built-in ones, and those that were added.
pub struct HostTools {
    broker: Broker,
    client: Client,
    added: BTreeMap<String, Arc<dyn HostTool>>,
}

impl HostTools {
    /// The built-in tools. What leaves, leaves through this broker.
    pub fn new(broker: Broker) -> Self {
        Self { client: broker.client(), broker, added: BTreeMap::new() }
            .with(fs::stat::stat())
            .with(process::list())
            .with(Extract::default())
    }

    /// One more tool. It still has to be admitted to the catalogue; one that has the name of another takes its place.
    #[must_use]
    pub fn with(self, tool: impl HostTool + 'static) -> Self {
        self.with_shared(Arc::new(tool))
    }

    /// The same for a tool that somebody else holds too.
    #[must_use]
    pub fn with_shared(mut self, tool: Arc<dyn HostTool>) -> Self {
        self.added.insert(tool.spec().name, tool);
        self
    }

    /// What the tools that were added declare.
    pub fn specs(&self) -> impl Iterator<Item = ToolSpec> {
        self.added.values().map(|tool| tool.spec())
    }

    async fn drive(&self, permit: &Permit<'_, tier::Host>) -> Driven<RawOutput> {
        let op = permit.call().op();
        let Op::RunTool(run) = op else { return Err(ExecuteError::NoDriver(op.name().to_owned()).into()) };
        match run.tool.as_str() {
            "fs.read" => fs::read::run(permit).await,
            "fs.write" => fs::write::run(permit).await,
            "fs.edit" => fs::edit::run(permit).await,
            "fs.list" => fs::list::run(permit).await,
            "fs.search" => fs::search::run(permit).await,
            "http.fetch" => http::run(permit, &self.client).await,
            other => match self.added.get(other) {
                Some(tool) => tool.run(permit).await,
                None => Err(ExecuteError::NoDriver(other.to_owned()).into()),
            },
        }
    }
}

impl std::fmt::Debug for HostTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostTools").field("added", &self.added.keys()).finish_non_exhaustive()
    }
}

impl Executor<tier::Host> for HostTools {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        if let Op::RunTool(run) = permit.call().op()
            && Broker::drives(&run.tool)
        {
            return self.broker.execute(permit);
        }
        Box::pin(async move {
            match self.drive(&permit).await {
                Ok(raw) => Ok(raw),
                Err(ToolError::Failed(failure)) => Ok(RawOutput::failed(&failure.code, failure.message)),
                Err(ToolError::Broke(error)) => Err(error),
            }
        })
    }

    fn foresee(&self, tool: &str, args: &Value, before: Option<&[u8]>) -> Option<Foreseen> {
        match tool {
            "fs.write" => fs::write::foresee(args, before),
            "fs.edit" => fs::edit::foresee(args, before),
            other => self.added.get(other)?.foresee(args, before),
        }
    }
}
