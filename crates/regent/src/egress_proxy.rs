//! Makes the broker the egress proxy of sandboxes. The two crates don't know each other; this is all that connects them.

use std::net::TcpListener;

use regent_egress::{Broker, CERTIFICATES};
use regent_kernel::{BoxFuture, Permit, tier};
use regent_sandbox::{Bind, EGRESS_PROXY, EgressProxy, Outfit};

/// The broker, as the sandbox sees it.
#[derive(Debug)]
pub(crate) struct BrokerProxy(pub(crate) Broker);

impl EgressProxy for BrokerProxy {
    fn outfit(&self) -> Result<Outfit, String> {
        let outfit = self.0.outfit(EGRESS_PROXY)?;
        Ok(Outfit {
            env: outfit.env.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            binds: vec![Bind { host: outfit.certificates, at: CERTIFICATES.into() }],
        })
    }

    fn serve<'s>(
        &'s self,
        listener: TcpListener,
        permit: &'s Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, ()> {
        Box::pin(self.0.serve(listener, permit))
    }
}
