//! A case: a manifest, a snapshot, the policy's output, and the expected result.

use regent_policy::acs::{
    AcsDecision, Approval, Evaluation, EvaluationLimits, Host, Manifest, Mode, Request, RuntimeError, resolve,
};
use serde_json::{Value, json};

/// A host that returns what the case defines.
struct Fixture<'a> {
    case: &'a Value,
    asked: Vec<String>,
}

impl Host for Fixture<'_> {
    fn annotate(&mut self, name: &str, _declared: &Value, _value: &Value) -> Result<Value, RuntimeError> {
        self.asked.push(name.to_owned());
        match self.case["annotator_behavior"].as_str() {
            Some("timeout") => Err(RuntimeError::AnnotationTimeout),
            Some(_) => Err(RuntimeError::AnnotationFailed),
            None => Ok(self.case["annotator_outputs"][name].clone()),
        }
    }

    fn ask(&mut self, _definition: &Value, _binding: &Value, _input: &Value) -> Result<Value, RuntimeError> {
        match self.case["policy_behavior"].as_str() {
            Some(_) => Err(RuntimeError::PolicyInvocationFailed),
            None => Ok(self.case["policy_response"].clone()),
        }
    }
}

fn limits(case: &Value) -> EvaluationLimits {
    let default = EvaluationLimits::default();
    let bound = |key: &str, default: usize| {
        case["limits"][key].as_u64().map_or(default, |bound| usize::try_from(bound).unwrap())
    };
    EvaluationLimits {
        snapshot_bytes_max: bound("max_snapshot_bytes", default.snapshot_bytes_max),
        input_depth_max: bound("max_policy_input_depth", default.input_depth_max),
        annotators_max: bound("max_annotators_per_point", default.annotators_max),
        annotation_bytes_max: bound("max_annotator_output_bytes", default.annotation_bytes_max),
        output_bytes_max: bound("max_policy_output_bytes", default.output_bytes_max),
    }
}

fn evaluate(manifest: &Manifest, case: &Value) -> (Evaluation, Vec<String>) {
    let mode = match case["mode"].as_str() {
        Some("evaluate_only") => Mode::EvaluateOnly,
        Some(_) | None => Mode::Enforce,
    };
    let request =
        Request { point: case["intervention_point"].as_str().unwrap(), snapshot: &case["snapshot"], mode };
    let mut host = Fixture { case, asked: Vec::new() };
    let said = manifest.evaluate(&request, &limits(case), &mut host);
    // The same request gives the same result.
    assert_eq!(manifest.evaluate(&request, &limits(case), &mut Fixture { case, asked: Vec::new() }), said);
    (said, host.asked)
}

/// Runs a case, and returns the error, if any.
fn run(case: &Value) -> Result<(), String> {
    let text = case["manifest_yaml"].as_str().unwrap();
    let (expected, id) = (&case["expected"], &case["id"]);
    let manifest = match Manifest::load(text) {
        Ok(manifest) => manifest,
        // An invalid manifest denies everything.
        Err(error) => {
            let as_expected = expected["decision"] == "deny"
                && expected["reason"] == RuntimeError::ManifestInvalid.to_string();
            return if as_expected { Ok(()) } else { Err(format!("{id}: {error}")) };
        }
    };
    let (said, asked) = evaluate(&manifest, case);
    let mut verdict = said.verdict.clone();
    if case["operation"] == "approval_action_mismatch" {
        let now = said.enforced_identity.clone().unwrap();
        let other = regent_policy::acs::identity(&json!("something else"));
        verdict = resolve(&said, Some(&Approval::Allow(other.clone())), &now);
        // The action must be unchanged; an approval of exactly this action is valid.
        assert_eq!(resolve(&said, Some(&Approval::Allow(now.clone())), &other), verdict);
        assert_eq!(resolve(&said, Some(&Approval::Suspend(other)), &now), verdict);
        assert_eq!(resolve(&said, Some(&Approval::Allow(now.clone())), &now).decision, AcsDecision::Allow);
        assert_eq!(resolve(&said, Some(&Approval::Deny), &now).decision, AcsDecision::Deny);
        assert_eq!(resolve(&said, None, &now).decision, AcsDecision::Deny);
    }
    let input = said.input.clone().unwrap_or_default();
    let found = json!({
        "decision": verdict.decision,
        "reason": verdict.reason,
        "message": verdict.message,
        "transformed_policy_target": said.transformed,
        "policy_target": input.pointer("/policy_target/value"),
        "tool_name": input.pointer("/tool/name"),
        "annotations": input["annotations"],
        "annotator_order": asked,
        "action_identity": match (&said.input_identity, &said.enforced_identity) {
            (Some(judged), Some(done)) if judged.len() == 71 && done.starts_with("sha256:") => "present",
            (_, _) => "absent",
        },
    });
    for (key, wanted) in expected.as_object().unwrap() {
        if found[key] != *wanted {
            return Err(format!("{id}: {key} is {}, and should be {wanted}", found[key]));
        }
    }
    if !input.is_null() {
        let members: Vec<&String> = input.as_object().unwrap().keys().collect();
        assert_eq!(members.len(), 5, "{id}: {members:?}");
    }
    Ok(())
}

#[test]
fn our_own_cases() {
    let cases: Value = serde_json::from_str(include_str!("cases.json")).unwrap();
    let wrong: Vec<String> = cases.as_array().unwrap().iter().filter_map(|case| run(case).err()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_public_cases() {
    let root = std::env::var("REGENT_VECTORS")
        .unwrap_or_else(|_| format!("{}/../../../shared/vectors", env!("CARGO_MANIFEST_DIR")));
    let Ok(files) = std::fs::read_dir(format!("{root}/acs/cases")) else {
        crate::skip::skipped("vectors", "REGENT_VECTORS names no folder with the public ACS cases");
        return;
    };
    let (mut passed, mut wrong) = (0, Vec::new());
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        match run(&serde_json::from_str(&text).unwrap()) {
            Ok(()) => passed += 1,
            Err(error) => wrong.push(error),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(passed, 25, "all of them");
}
