//! Tools of the host tier and their drivers. A tool is registered together with what performs it, so its name decides nothing.

use std::sync::Arc;

use regent_egress::Broker;
use regent_kernel::{
    BoxFuture, Driver, ExecuteError, Executor, Foreseen, Permit, RawOutput, ToolSet, ToolSpec, tier,
};
use serde_json::Value;

use crate::extract::extract;
use crate::tool::{HostTool, ToolError};
use crate::{fs, http, memory, process};

/// The driver of one tool.
struct Hosted(Arc<dyn HostTool>);

impl Executor<tier::Host> for Hosted {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Host>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        Box::pin(async move {
            match self.0.run(&permit).await {
                Ok(raw) => Ok(raw),
                Err(ToolError::Failed(failure)) => Ok(RawOutput::failed(&failure.code, failure.message)),
                Err(ToolError::Broke(error)) => Err(error),
            }
        })
    }

    fn foresee(&self, args: &Value, before: Option<&[u8]>) -> Option<Foreseen> {
        self.0.foresee(args, before)
    }
}

/// A tool with its driver, as the catalogue takes it.
pub fn entry(tool: Arc<dyn HostTool>) -> (ToolSpec, Driver) {
    (tool.spec(), Driver::host(Arc::new(Hosted(tool))))
}

/// Tools of the host tier as a set.
pub fn tool_set(source: &str, tools: impl IntoIterator<Item = Arc<dyn HostTool>>) -> ToolSet {
    tools.into_iter().map(entry).fold(ToolSet::new(source), |set, (spec, driver)| set.with(spec, driver))
}

/// The built-in tools that run in this process. What leaves, leaves through this broker.
pub fn hosted(broker: &Broker) -> Vec<(ToolSpec, Driver)> {
    let own: Vec<Arc<dyn HostTool>> = vec![
        Arc::new(fs::append::append()),
        Arc::new(fs::copy::copy()),
        Arc::new(fs::delete::delete()),
        Arc::new(fs::edit::replace()),
        Arc::new(fs::list::list()),
        Arc::new(fs::mkdir::make()),
        Arc::new(fs::read::read()),
        Arc::new(fs::relocate::relocate()),
        Arc::new(fs::search::search()),
        Arc::new(fs::stat::stat()),
        Arc::new(fs::write::write()),
        Arc::new(process::kill()),
        Arc::new(process::list()),
        Arc::new(http::fetch(broker.client())),
        Arc::new(extract("auto")),
        Arc::new(memory::remember()),
        Arc::new(memory::recall()),
    ];
    own.into_iter().map(entry).chain(broker.tools()).collect()
}

/// All built-in tools. `programs` runs those that start programs.
pub fn built_in(broker: &Broker, programs: &Driver) -> ToolSet {
    let started = process::program_specs().into_iter().map(|spec| (spec, programs.clone()));
    let all = hosted(broker).into_iter().chain(started);
    all.fold(ToolSet::new("built-in"), |set, (spec, driver)| set.with(spec, driver))
}
