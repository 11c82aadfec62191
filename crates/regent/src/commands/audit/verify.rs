//! `regent audit verify`: the whole ledger from disk.

use std::path::{Path, PathBuf};

use regent_ledger::{LedgerVerdict, PublicKey, Report, VerifyError, VerifyOptions};
use serde_json::json;

use crate::codes;
use crate::compose::{self, error_chain};
use crate::context::Context;
use crate::controls;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::term;

pub(super) fn run(context: &Context, folder: &Path, expect: &[PathBuf], keys: &[String]) -> CommandResult {
    let report =
        regent_ledger::verify(folder, &options(context, folder, expect, keys)?).map_err(|error| {
            let message = error_chain(&error);
            match error {
                VerifyError::NoLedger => {
                    Failure::new(codes::AUDIT_NONE, format!("there is no ledger at `{}`", folder.display()))
                        .help("Regent has recorded nothing here yet")
                }
                VerifyError::Expectation(_) => Failure::new(codes::AUDIT_PROOF, message),
                VerifyError::Io(_) => Failure::new(codes::AUDIT_UNREADABLE, message),
            }
        })?;
    let data = json!({"folder": folder.display().to_string(), "report": report});
    match &report.verdict {
        LedgerVerdict::Ok => Ok(Done::new(data, text(context, &report))),
        LedgerVerdict::Unproven { lanes } => {
            let lanes: Vec<String> = lanes.iter().map(ToString::to_string).collect();
            let message = format!(
                "unproven tail: entries after the last signed checkpoint of lane {}",
                lanes.join(", ")
            );
            Err(Failure::new(codes::AUDIT_UNPROVEN, message)
                .help("a crash causes this; the next kernel settles and records it")
                .data(data))
        }
        LedgerVerdict::Broken(broken) if broken.is_witnessed() => {
            Err(compose::ledger::replaced(broken.to_string()).data(data))
        }
        LedgerVerdict::Broken(broken) => {
            // Sound by itself and signed with another key is not damage.
            if keys.is_empty()
                && let Some(sound) = sound_under_another_key(folder)
            {
                let message = format!(
                    "`{}` is signed by another key than yours: {}. It is consistent; whether to trust it depends on that key",
                    folder.display(),
                    term::inline(&sound.key)
                );
                let data = json!({"folder": folder.display().to_string(), "report": sound});
                return Err(compose::ledger::other_key(message).data(data));
            }
            Err(Failure::new(codes::AUDIT_BROKEN, format!("the ledger is broken: {broken}"))
                .help("leave the folder as it is and compare it with a backup or an exported checkpoint")
                .data(data))
        }
    }
}

/// The user's own key and witness count for the user's own ledgers; a ledger from elsewhere is judged by the keys that are given.
fn options(
    context: &Context,
    folder: &Path,
    expect: &[PathBuf],
    keys: &[String],
) -> Result<VerifyOptions, Failure> {
    let mut trusted = Vec::new();
    for text in keys {
        let key: PublicKey = text.parse().map_err(|error| Failure::new(codes::USAGE, format!("{error}")))?;
        trusted.push(key);
    }
    let mut witness = None;
    let own = context.project().ok().filter(|project| project.audit() == folder);
    if let Some(project) = own {
        if trusted.is_empty()
            && let Some(key) = compose::ledger::existing_key(&context.paths)?
        {
            trusted.push(key.public());
        }
        witness = Some(context.paths.witness(&project.root));
    }
    let expect = expect.iter().map(|path| controls::read_file(&context.cwd.join(path)));
    Ok(VerifyOptions {
        keys: trusted,
        expect: expect.collect::<Result<_, _>>()?,
        witness,
        skip_payloads: false,
    })
}

/// What is found under the key that the ledger itself begins with, if all of it holds.
fn sound_under_another_key(folder: &Path) -> Option<Report> {
    let report = regent_ledger::verify(folder, &VerifyOptions::default()).ok()?;
    matches!(report.verdict, LedgerVerdict::Ok | LedgerVerdict::Unproven { .. }).then_some(report)
}

fn text(context: &Context, report: &Report) -> String {
    let mut out = format!(
        "{} {} in {} hold; {} match, {} erased\n  signed by {}\n",
        context.screen.good("ok"),
        term::count(report.entries, "entry"),
        term::count(report.lanes.len() as u64, "lane"),
        term::count(report.payloads, "payload"),
        report.erased,
        term::inline(&report.key)
    );
    if report.erase_pending > 0 {
        out.push_str(&format!(
            "  {}: their digests were erased, but the erasure was interrupted or the same bytes were recorded again\n",
            context.screen.warn(&format!("{} still to be erased", term::count(report.erase_pending, "payload")))
        ));
        for digest in &report.pending {
            out.push_str(&format!("    `regent audit erase {digest} --because REASON` erases it\n"));
        }
    }
    for lane in &report.lanes {
        let live = if lane.live { ", being written" } else { "" };
        let settled = if lane.settled { ", end settled after a crash" } else { "" };
        out.push_str(&format!(
            "  lane {}: {}, root {}{live}{settled}\n",
            lane.lane,
            term::count(lane.entries, "entry"),
            lane.root
        ));
        if lane.clock_steps_back > 0 {
            out.push_str(&format!(
                "    the clock went back {} times; entries are ordered by number\n",
                lane.clock_steps_back
            ));
        }
    }
    out
}
