//! The manifests, word by word. A digest is what people pin and what models get, so it changes only on purpose:
//! `UPDATE_EXPECT=1 cargo test -p regent-tools golden` writes the file anew.

use std::sync::Arc;

use regent_kernel::{Digest, Executor, ToolSpec, tier};
use regent_ledger::CanonicalJson;
use serde_json::{Value, json};

use crate::generated::{Generated, ScriptTier, host_tools};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/manifest/golden.json");

/// No script runs here.
#[derive(Debug)]
struct NoTier;

impl ScriptTier for NoTier {
    fn script(
        &self,
        _interpreter: &[u8],
        _digest: Digest,
        _source: String,
    ) -> Result<Arc<dyn Executor<tier::Wasm>>, String> {
        Err("no script runs here".to_owned())
    }
}

fn described(spec: &ToolSpec) -> (String, Value) {
    let digest = Digest::compute(CanonicalJson::encode(spec).unwrap().as_str().as_bytes());
    (spec.name.clone(), json!({"sha256": digest, "manifest": spec}))
}

#[test]
fn golden_every_manifest_is_what_it_was() {
    let generated = Generated::with_interpreter("".into(), "".into(), Arc::new(NoTier), b"");
    let making = host_tools(&Arc::new(generated)).into_iter().map(|tool| tool.spec());
    let all: serde_json::Map<_, _> =
        super::specs().into_iter().chain(making).map(|spec| described(&spec)).collect();
    let found = serde_json::to_string_pretty(&Value::Object(all)).unwrap() + "\n";
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(FILE, &found).unwrap();
    }
    let expected = std::fs::read_to_string(FILE).unwrap();
    for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of {FILE}", line + 1);
    }
    assert_eq!(found.len(), expected.len());
}
