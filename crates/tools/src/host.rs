//! The executor of the host tier: one driver per tool, found by name.

use regent_egress::{Broker, Client};
use regent_kernel::{BoxFuture, ExecuteError, Executor, Op, Permit, RawOutput, tier};

use crate::output::{Driven, Stopped};
use crate::{fs, http, process};

/// Performs the built-in tools that run in this process.
#[derive(Debug)]
pub struct HostTools {
    broker: Broker,
    client: Client,
}

impl HostTools {
    /// What leaves, leaves through this broker.
    pub fn new(broker: Broker) -> Self {
        Self { client: broker.client(), broker }
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
            "fs.stat" => fs::stat::run(permit),
            "process.list" => process::list(permit).await,
            "http.fetch" => http::run(permit, &self.client).await,
            other => Err(ExecuteError::NoDriver(other.to_owned()).into()),
        }
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
                Err(Stopped::Failed(failure)) => Ok(RawOutput::failed(&failure.code, failure.message)),
                Err(Stopped::Broke(error)) => Err(error),
            }
        })
    }
}
