//! The tools that a request begins with. Requests that begin with the same tools share them: what is made of a schema is large.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use regent_ledger::Digest;
use regent_provenance::{Declared, FieldLabels};

use crate::catalogue::{Catalogue, Tool, ToolSpec};

/// The tools of a request.
#[derive(Debug)]
pub(crate) struct Offer {
    /// Of all tools.
    pub(super) labels: Arc<HashMap<String, FieldLabels>>,
    /// Those that the host performs itself.
    pub(super) tools: HashMap<String, Arc<Tool>>,
    /// Of those, the ones without declared labels.
    pub(super) inferred: Vec<String>,
}

/// The offers that some request uses, by what they were made of.
#[derive(Debug, Default)]
pub(crate) struct Offers(Mutex<HashMap<Digest, Weak<Offer>>>);

impl Offers {
    /// The offer of these tools, beside those of the catalogue.
    pub(super) fn get(
        &self,
        catalogue: &Catalogue,
        declared: &BTreeMap<String, Declared>,
    ) -> Result<Arc<Offer>, String> {
        let own = catalogue.all();
        let made_of: (Vec<&str>, &BTreeMap<String, Declared>) =
            (own.iter().map(|tool| tool.digest_hex()).collect(), declared);
        let key = Digest::compute(&serde_json::to_vec(&made_of).map_err(|error| error.to_string())?);
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key).and_then(Weak::upgrade);
        if let Some(known) = known {
            return Ok(known);
        }
        let mut labels: HashMap<String, FieldLabels> =
            own.iter().map(|tool| (tool.spec().name.clone(), tool.spec().field_labels())).collect();
        let (mut tools, mut inferred) = (HashMap::new(), Vec::new());
        for (name, one) in declared {
            let one = one.labelled(name);
            let tool = Tool::undriven(ToolSpec::elsewhere(name, &one)).map_err(|error| error.to_string())?;
            tools.insert(name.clone(), Arc::new(tool));
            let own = one.field_labels();
            if own.inferred {
                inferred.push(name.clone());
            }
            labels.insert(name.clone(), own);
        }
        let offer = Arc::new(Offer { labels: Arc::new(labels), tools, inferred });
        let mut offers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that no request uses any more go whenever their number has doubled.
        if offers.len().is_power_of_two() {
            offers.retain(|_, offer| offer.strong_count() > 0);
        }
        offers.insert(key, Arc::downgrade(&offer));
        Ok(offer)
    }
}
