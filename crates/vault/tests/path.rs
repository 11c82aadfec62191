//! A real vault with a real kernel, and tools that leak values in every way.

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use regent_kernel::{
        BoxFuture, Catalogue, Confidentiality, Driver, ExecuteError, Executor, Executors, Fault, Host, Nonce,
        Op, Parts, Permit, RawOutput, Reply, Secret, SideEffect, Status, SystemClock, Tier, ToolCall,
        ToolSet, ToolSpec, Workspace, tier,
    };
    use regent_ledger::{Ledger, LedgerKey, Reader};
    use regent_policy::{Layer, Source};
    use regent_store::MemoryState;
    use regent_vault::{Scope, Short, Vault};
    use serde_json::{Value, json};

    const VALUE: &str = "s3cr3t/Value+with\"quotes\\42";

    /// Misuses the secret `a` as the tool's name says.
    struct Leaky;

    impl Executor<tier::Host> for Leaky {
        fn execute<'s>(
            &'s self,
            permit: Permit<'s, tier::Host>,
        ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
            Box::pin(async move {
                let Op::RunTool(run) = permit.call().op() else {
                    return Err(ExecuteError::NoDriver(String::new()));
                };
                let value = match permit.secret("a") {
                    Ok(value) => String::from_utf8(value.expose().to_vec()).unwrap(),
                    Err(error) => return Ok(RawOutput::failed(error.code(), error.to_string())),
                };
                assert_eq!(permit.secret("b").unwrap_err().code(), "secret.not_judged");
                let encoded = STANDARD.encode(format!("x{value}"));
                Ok(match run.tool.as_str() {
                    "says" => RawOutput::new(format!("{value} {encoded}").into_bytes()),
                    "quotes" => RawOutput::json(&json!({"deep": {"in": [value]}})),
                    "fails" => RawOutput::failed("tool.failed", format!("no luck with {value} or {encoded}")),
                    "both" => {
                        RawOutput::new(value.clone().into_bytes()).with_failure(&format!("x.{value}"), value)
                    }
                    "confined" => {
                        RawOutput::new(Vec::new()).with_obtained(json!({"argv": [value.clone()], value: 1}))
                    }
                    "breaks" => return Err(ExecuteError::Broken(format!("with {value} in hand"))),
                    "panics" => panic!("with {value} in hand"),
                    "streams" => {
                        let (mut held, mut out) = (Vec::new(), Vec::new());
                        for chunk in format!("before {value} after").as_bytes().chunks(3) {
                            held.extend_from_slice(chunk);
                            out.extend(permit.scrub_part(&mut held).bytes);
                        }
                        permit.scrub(&mut held);
                        out.extend(held);
                        assert_eq!(out, b"before [secret:a] after");
                        RawOutput::new(out)
                    }
                    "quiet" => RawOutput::new(b"done".to_vec()),
                    other => return Err(ExecuteError::NoDriver(other.to_owned())),
                })
            })
        }
    }

    const TOOLS: [&str; 9] =
        ["says", "quotes", "fails", "both", "confined", "breaks", "panics", "streams", "quiet"];

    fn spec(name: &str) -> ToolSpec {
        ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            input: json!({"type": "object"}),
            arguments: std::collections::BTreeMap::new(),
            capabilities: Vec::new(),
            effect: SideEffect::None,
            idempotent: true,
            reversible: true,
            tiers: vec![Tier::Host],
            output: regent_kernel::Label {
                integrity: regent_kernel::Integrity::Tool,
                confidentiality: Confidentiality::Public,
            },
            ..ToolSpec::default()
        }
    }

    async fn kernel(folder: &std::path::Path, policy: &str) -> Host {
        let vault = Vault::new(folder, None);
        if !vault.exists().unwrap() {
            for name in ["a", "b"] {
                let value =
                    Secret::new(format!("{VALUE}{}", if name == "a" { "" } else { "-b" }).into_bytes());
                vault.add(name, value, Scope::default(), Short::Refused, 1).unwrap();
            }
        }
        let catalogue = Catalogue::default();
        let driver = Driver::host(Arc::new(Leaky));
        let tools =
            TOOLS.iter().fold(ToolSet::new("built-in"), |set, name| set.with(spec(name), driver.clone()));
        let arguments =
            std::collections::BTreeMap::from([("/argv".to_owned(), regent_kernel::ArgumentKind::Argv)]);
        catalogue.admit_own(tools.with(ToolSpec { arguments, ..spec("programs") }, driver)).unwrap();
        let parts = Parts {
            policy: regent_policy::load(policy, &Source::new("test.yml", Layer::User)).unwrap(),
            ledger: Ledger::in_memory(LedgerKey::generate().unwrap()),
            executors: Executors::default(),
            catalogue,
            workspace: Workspace::open(folder).unwrap(),
            state: Arc::new(MemoryState::default()),
            secrets: Arc::new(vault),
            clock: Arc::new(SystemClock::default()),
            sponsor: "tester".to_owned(),
            session: "test".to_owned(),
        };
        Host::boot(parts).await.unwrap()
    }

    const NAMED: &str =
        "version: 1\nrules:\n  - { id: all, effect: allow, match: { tool: '*', secret: a } }\n";

    async fn call(kernel: &Host, tool: &str, args: Value) -> Result<Reply, Fault> {
        kernel.syscall(&kernel.operator(), Op::RunTool(ToolCall { tool: tool.to_owned(), args })).await
    }

    fn clean(what: &str, text: &str) {
        let forms = [
            VALUE.to_owned(),
            serde_json::to_string(VALUE).unwrap().trim_matches('"').to_owned(),
            STANDARD.encode(VALUE),
            STANDARD.encode(format!("x{VALUE}")),
        ];
        for form in forms {
            assert!(!text.contains(form.get(4..form.len() - 4).unwrap()), "{what} has `{form}`: {text}");
        }
    }

    /// The ledger's entries, which can't be erased.
    fn entries(kernel: &Host) -> String {
        let reader = Reader::on(kernel.ledger().storage());
        reader.entries().unwrap().map(|entry| entry.unwrap().body.to_string()).collect()
    }

    /// Everything recorded in the ledger: entries and payloads.
    fn recorded(kernel: &Host) -> String {
        let reader = Reader::on(kernel.ledger().storage());
        let mut all = String::new();
        for entry in reader.entries().unwrap() {
            let entry = entry.unwrap();
            all.push_str(&entry.body.to_string());
            for name in ["args", "output"] {
                let digest = entry.body.get(name).and_then(|one| one.get("sha256")).and_then(Value::as_str);
                let bytes = digest.and_then(|digest| reader.payload(&digest.parse().unwrap(), None).unwrap());
                all.push_str(&String::from_utf8_lossy(&bytes.unwrap_or_default()));
            }
        }
        all
    }

    #[tokio::test]
    async fn whatever_a_tool_does_with_a_value_nobody_sees_it() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = kernel(folder.path(), NAMED).await;
        let nonce = Nonce::random().unwrap();
        for tool in TOOLS {
            let args = json!({"use": "secret://a"});
            let shown = match call(&kernel, tool, args).await {
                Ok(Reply::Done(outcome)) => {
                    let label = outcome.output.label().confidentiality;
                    let masked = !matches!(tool, "quiet" | "streams");
                    assert_eq!(label == Confidentiality::Secret, masked, "{tool} is labelled {label}");
                    let (Status::Failed(_) | Status::Ok) = &outcome.status else {
                        panic!("{tool}: {outcome:?}")
                    };
                    format!("{outcome:?} {} {}", outcome.output.for_model(&nonce), outcome.output.text())
                }
                Err(fault) => {
                    assert!(matches!(tool, "breaks" | "panics"), "{tool}: {fault}");
                    format!("{fault} {fault:?}")
                }
                other => panic!("{tool}: {other:?}"),
            };
            clean(tool, &shown);
            if !matches!(tool, "quiet") {
                assert!(shown.contains("[secret:a]"), "{tool}: {shown}");
            }
        }
        let recorded = recorded(&kernel);
        clean("the ledger", &recorded);
        assert!(recorded.contains("{\"secret\":\"a\"}"), "{recorded}");
    }

    #[tokio::test]
    async fn a_secret_is_had_only_if_policy_names_it_and_the_arguments_have_it() {
        let folder = tempfile::tempdir().unwrap();
        let plain = "version: 1\nrules:\n  - { id: all, effect: allow }\n";
        let refusing = kernel(folder.path(), plain).await;
        let denied = call(&refusing, "says", json!({"use": ["x", {"y": "secret://a"}]})).await.unwrap();
        let Reply::Denied(denial) = denied else { panic!("{denied:?}") };
        assert_eq!(denial.reason.code, "policy.no_rule", "{denial:?}");
        // Without a handle in its arguments, a call gets no secret, even if policy allows everything else.
        let done = call(&refusing, "says", json!({"use": "a"})).await.unwrap();
        let Reply::Done(outcome) = done else { panic!("{done:?}") };
        assert!(matches!(outcome.status, Status::Failed(failure) if failure.code == "secret.not_judged"));
        // One secret that policy names and one that it doesn't: the call is denied.
        let named = kernel(folder.path(), NAMED).await;
        let denied = call(&named, "says", json!({"use": "secret://a secret://b"})).await.unwrap();
        assert!(matches!(denied, Reply::Denied(_)), "{denied:?}");
        let handles: Vec<String> = (0..40).map(|number| format!("secret://n{number}")).collect();
        let denied = call(&named, "says", json!({"use": handles})).await.unwrap();
        let Reply::Denied(denial) = denied else { panic!("{denied:?}") };
        assert_eq!(denial.reason.code, "secret.too_many");
    }

    #[tokio::test]
    async fn free_text_is_redacted_where_it_can_not_be_erased() {
        let folder = tempfile::tempdir().unwrap();
        let kernel = kernel(folder.path(), NAMED).await;
        let denied = call(&kernel, "ada@example.com", json!({})).await.unwrap();
        let Reply::Denied(denial) = denied else { panic!("{denied:?}") };
        assert!(denial.reason.message.contains("ada@example.com"), "the caller hears what it said");
        let line = json!({"argv": ["curl", "-u", "x", "--password=hunter22", VALUE, "ordinary"]});
        // A revealed value is masked in everything that is recorded afterwards.
        call(&kernel, "quiet", json!({"use": "secret://a"})).await.unwrap();
        call(&kernel, "programs", line).await.unwrap();
        let recorded = entries(&kernel);
        assert!(recorded.contains("--password=[password:1]") && recorded.contains("ordinary"), "{recorded}");
        clean("the entries", &recorded);
        assert!(recorded.contains("[email:1]") && !recorded.contains("ada@example"), "{recorded}");
    }
}
