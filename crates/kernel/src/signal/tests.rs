//! Masks, dispositions and queues, case by case.

use proptest::prelude::*;

use super::*;

#[test]
fn numbers_and_names_are_those_of_the_table() {
    for (at, signal) in Signal::ALL.into_iter().enumerate() {
        assert_eq!(usize::from(signal.number()), at + 1);
        let spellings = [
            signal.name().to_owned(),
            format!("SIG{signal}"),
            signal.name().to_lowercase(),
            signal.number().to_string(),
        ];
        for text in spellings {
            assert_eq!(text.parse::<Signal>().unwrap(), signal, "{text}");
        }
        assert_eq!(serde_json::to_value(signal).unwrap(), signal.name());
    }
    for text in ["", "SIG", "0", "13", "KILL ", "-9", "SIGSIGKILL", "KI\u{0141}L"] {
        assert!(text.parse::<Signal>().is_err(), "{text:?}");
    }
}

#[test]
fn kill_policy_and_trust_can_not_be_held_back_ignored_or_handled() {
    for signal in [Signal::Kill, Signal::Policy, Signal::Trust] {
        let mut inbox = Inbox::default();
        inbox.mask(&MaskChange::Set(Signal::ALL.to_vec()));
        assert_eq!(inbox.dispose(signal, Disposition::Ignore), Err(Fixed(signal)));
        assert_eq!(inbox.dispose(signal, Disposition::Handle), Err(Fixed(signal)));
        assert_eq!(inbox.dispose(signal, Disposition::Default), Ok(()));
        assert_eq!(inbox.receive(signal), Arrival::Acts(SignalEffect::End));
        assert!(!inbox.masked().contains(&signal));
    }
}

#[test]
fn what_suspends_can_be_held_back_but_not_talked_away() {
    for signal in [Signal::Stop, Signal::Budget, Signal::Drift] {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.dispose(signal, Disposition::Ignore), Err(Fixed(signal)));
        assert_eq!(inbox.dispose(signal, Disposition::Handle), Err(Fixed(signal)));
        inbox.mask(&MaskChange::Block(vec![signal]));
        assert_eq!(inbox.receive(signal), Arrival::Held);
        assert_eq!(inbox.mask(&MaskChange::Unblock(vec![signal])), [signal]);
    }
}

#[test]
fn held_signals_come_through_oldest_first_and_only_those_let_through() {
    let mut inbox = Inbox::default();
    inbox.mask(&MaskChange::Block(vec![Signal::Usr1, Signal::Int, Signal::Term]));
    for signal in [Signal::Term, Signal::Usr1, Signal::Int, Signal::Usr1] {
        assert_eq!(inbox.receive(signal), Arrival::Held);
    }
    assert_eq!(inbox.receive(Signal::Usr2), Arrival::Acts(SignalEffect::Diagnose));
    assert_eq!(
        inbox.mask(&MaskChange::Unblock(vec![Signal::Usr1, Signal::Int])),
        [Signal::Usr1, Signal::Int, Signal::Usr1]
    );
    assert_eq!(inbox.masked(), [Signal::Term]);
    assert_eq!(inbox.mask(&MaskChange::Set(vec![])), [Signal::Term]);
}

#[test]
fn handled_signals_wait_for_the_agent_and_are_taken_once() {
    let mut inbox = Inbox::default();
    inbox.dispose(Signal::Term, Disposition::Handle).unwrap();
    inbox.dispose(Signal::Usr1, Disposition::Ignore).unwrap();
    assert_eq!(inbox.receive(Signal::Term), Arrival::ForAgent);
    assert_eq!(inbox.receive(Signal::Usr1), Arrival::Ignored);
    assert_eq!(inbox.take(), [Signal::Term]);
    assert_eq!(inbox.take(), []);
    inbox.dispose(Signal::Term, Disposition::Default).unwrap();
    assert_eq!(inbox.receive(Signal::Term), Arrival::Acts(SignalEffect::End));
}

#[test]
fn cont_resumes_whatever_mask_and_disposition_say() {
    for disposition in [Disposition::Default, Disposition::Ignore, Disposition::Handle] {
        for change in [MaskChange::Set(vec![]), MaskChange::Set(vec![Signal::Cont])] {
            let mut inbox = Inbox::default();
            inbox.dispose(Signal::Cont, disposition).unwrap();
            inbox.mask(&change);
            assert_eq!(
                inbox.receive(Signal::Cont),
                Arrival::Acts(SignalEffect::Resume),
                "{disposition:?} {change:?}"
            );
        }
    }
}

#[test]
fn queues_are_bounded_and_the_sender_hears_of_it() {
    let mut inbox = Inbox::default();
    inbox.mask(&MaskChange::Block(vec![Signal::Int]));
    inbox.dispose(Signal::Term, Disposition::Handle).unwrap();
    for _ in 0..QUEUE_SIGNALS_MAX {
        assert_eq!(inbox.receive(Signal::Int), Arrival::Held);
        assert_eq!(inbox.receive(Signal::Term), Arrival::ForAgent);
    }
    assert_eq!(inbox.receive(Signal::Int), Arrival::Dropped);
    assert_eq!(inbox.receive(Signal::Term), Arrival::Dropped);
    assert_eq!(inbox.receive(Signal::Kill), Arrival::Acts(SignalEffect::End));
}

fn signal() -> impl Strategy<Value = Signal> {
    proptest::sample::select(Signal::ALL.to_vec())
}

proptest! {
    /// Whatever an agent has masked or handled, the three always end it.
    #[test]
    fn nothing_that_an_agent_says_survives_a_kill(
        acts in proptest::collection::vec((signal(), 0..4_u8), 0..100),
        last in proptest::sample::select(vec![Signal::Kill, Signal::Policy, Signal::Trust]),
    ) {
        let mut inbox = Inbox::default();
        for (signal, act) in acts {
            match act {
                0 => { inbox.mask(&MaskChange::Block(vec![signal])); }
                1 => { let _refused = inbox.dispose(signal, Disposition::Ignore); }
                2 => { let _refused = inbox.dispose(signal, Disposition::Handle); }
                _ => { inbox.receive(signal); }
            }
            prop_assert!(inbox.held.len() <= QUEUE_SIGNALS_MAX && inbox.for_agent.len() <= QUEUE_SIGNALS_MAX);
        }
        prop_assert_eq!(inbox.receive(last), Arrival::Acts(SignalEffect::End));
    }
}
