//! A pack of payloads: whatever it holds, verification and reading come to an end, and only the true one passes.
#![no_main]

regent_testkit::fuzz_ledger_file!("lanes/0000/000000000000.pack");
