//! How long does it take to say where a call's values come from, and does that grow with what was heard?

use std::collections::HashMap;

use anyhow::{Result, ensure};
use regent_provenance::{FieldLabels, Observed, Reading, Session, Stance, Trusted};
use serde_json::{Value, json};

use crate::measure::nanos;
use crate::report::Report;

/// `policy.provenance.*`: a call with sinks and content after a transcript of 1 MB in 500 results, and after a small one.
pub fn measure(report: &mut Report) -> Result<()> {
    let small = decide(1)?;
    let large = decide(500)?;
    report.figure("policy.provenance.decide.results1", small / 1_000.0, "us");
    report.figure("policy.provenance.decide", large / 1_000.0, "us");
    report.figure("policy.provenance.decide.flatness", large / small, "ratio");
    Ok(())
}

fn decide(results: usize) -> Result<f64> {
    let read = json!({"effect": "read", "taint": ["subject"], "secret": true});
    let send = json!({"effect": "write", "taint": "none", "sinks": ["to", "cc"]});
    let labels = |value: &Value| FieldLabels::declared(value, &Value::Null);
    let tools = HashMap::from([("list".to_owned(), labels(&read)), ("send".to_owned(), labels(&send))]);
    let request =
        "Send the largest payment of May 3rd, 1,200.00 to GB29NWBK60161331926819, to ann@example.test";
    let mut session = Session::begin(request, tools, Trusted::default())?;
    for number in 0..results {
        let rows: Vec<Value> = (0..16)
            .map(|row| {
                let place = number * 16 + row;
                json!({"id": place, "sender": format!("DE{place:020}"), "amount": place as f64 / 4.0, "date": "2024-05-03",
                    "subject": format!("invoice {place} of the month, with {} words of no weight in it", place % 97)})
            })
            .collect();
        let output = Value::Array(rows);
        session.observe(
            None,
            &Observed {
                call: number as u64,
                tool: "list",
                output: &output,
                failed: false,
                agreed: None,
                cleared: None,
                reading: Reading::Whole,
            },
        );
    }
    let args = json!({"to": "ann@example.test", "cc": ["DE00000000000000000007"], "amount": 1200, "date": "2024-05-03",
        "text": "the largest payment of May 3rd to GB29NWBK60161331926819"});
    ensure!(
        session.rule("send", &args).stance == Stance::Ask,
        "the copy goes to somebody whom the request doesn't name"
    );
    Ok(nanos(201, 200, || session.rule("send", &args)))
}
