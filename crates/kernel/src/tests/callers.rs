//! Authentication: credentials, tokens, roles and their limits.

use regent_store::Partition;
use std::sync::Arc;

use regent_policy::{Class, Integrity};
use regent_store::{MemoryState, SqliteState, State};
use serde_json::{Value, json};

use super::shared::{OPEN, ProjectFixture, START_MS, work};
use crate::{
    ApprovalAnswer, AuthError, Budget, BudgetScope, Credential, Op, PersonRole, Principal, Reply, Scope,
    Signal, SpawnSpec, Status, Subject, TicketId, Token, TokenId, TokenSpec, TokenState, TokenSummary,
};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
const TWO: &str = "version: 1\nmode: permissive\nrules:\n  - id: two\n    effect: ask\n    match: { tool: work }\n    approvers: 2\n";

async fn world() -> ProjectFixture {
    ProjectFixture::new(OPEN, Arc::new(MemoryState::default())).await
}

fn person(name: &str, role: PersonRole) -> Subject {
    Subject::Person { name: name.to_owned(), role }
}

fn creation(token: &Token, subject: &Subject, valid_ms: Option<u64>) -> Op {
    let (id, sha256) = (token.id().clone(), token.digest());
    Op::CreateToken(TokenSpec { id, sha256, subject: subject.clone(), valid_ms })
}

impl ProjectFixture {
    async fn perform(&self, who: &Principal, op: Op) -> Value {
        let name = op.name();
        match self.kernel.syscall(who, op).await.unwrap() {
            Reply::Done(outcome) if outcome.status == Status::Ok => {
                serde_json::from_slice(outcome.output.bytes()).unwrap()
            }
            other @ (Reply::Done(_) | Reply::Denied(_) | Reply::Pending(_)) => panic!("{name}: {other:?}"),
        }
    }

    async fn code(&self, who: &Principal, op: Op) -> String {
        match self.kernel.syscall(who, op).await.unwrap() {
            Reply::Denied(denial) => denial.reason.code.into_owned(),
            Reply::Done(outcome) => match outcome.status {
                Status::Failed(failure) => failure.code,
                Status::Ok => "ok".to_owned(),
                other @ (Status::TimedOut | Status::Cancelled | Status::Faulted(_)) => panic!("{other:?}"),
            },
            Reply::Pending(_) => "pending".to_owned(),
        }
    }

    async fn token(&self, subject: &Subject, valid_ms: Option<u64>) -> Token {
        let token = Token::generate().unwrap();
        self.perform(&self.kernel.operator(), creation(&token, subject, valid_ms)).await;
        token
    }

    async fn bearer(&self, text: &str) -> Result<Principal, AuthError> {
        self.kernel.authenticator().authenticate(Credential::Bearer(text)).await
    }

    async fn caller(&self, subject: &Subject) -> Principal {
        self.bearer(self.token(subject, None).await.reveal()).await.unwrap()
    }

    async fn tokens(&self) -> Vec<TokenSummary> {
        serde_json::from_value(self.perform(&self.kernel.operator(), Op::Tokens).await).unwrap()
    }
}

#[tokio::test]
async fn the_user_of_the_process_is_an_admin_and_nobody_elses_uid_is_anybody() {
    let world = world().await;
    let own = rustix::process::geteuid().as_raw();
    let me = world.kernel.authenticator().authenticate(Credential::PeerUid(own)).await.unwrap();
    assert_eq!((me.class(), me.role(), me.display_name()), (Class::Operator, Some(PersonRole::Admin), "ada"));
    for uid in [own.wrapping_add(1), 65_534, u32::MAX] {
        let refused = world.kernel.authenticator().authenticate(Credential::PeerUid(uid)).await;
        assert!(matches!(refused, Err(AuthError::OtherUser)), "{uid}");
    }
}

#[tokio::test]
async fn a_token_is_its_subject_and_nobody_else() {
    let world = world().await;
    let bob = world.caller(&person("bob", PersonRole::Operator)).await;
    assert_eq!(
        (bob.class(), bob.role(), bob.display_name()),
        (Class::Operator, Some(PersonRole::Operator), "bob")
    );
    assert_eq!(bob.roles(), ["operator"]);
    let service = world.caller(&Subject::Service { name: "ci".to_owned() }).await;
    assert_eq!((service.class(), service.name(), service.role()), (Class::Service, "service:ci", None));
    let peer = world.caller(&Subject::Peer { name: "acme".to_owned() }).await;
    assert_eq!((peer.class(), peer.name()), (Class::Peer, "peer:acme"));
    let agent = world.agent(&world.kernel.operator(), "helper", None).await;
    let subject = Subject::Agent { agent: agent.agent_id().unwrap().clone() };
    let outside = world.caller(&subject).await;
    assert_eq!((outside.class(), outside.agent_id()), (Class::Agent, agent.agent_id()));
    let reply = world.perform(&bob, Op::Whoami).await;
    assert_eq!(
        (&reply["name"], &reply["role"], &reply["class"]),
        (&json!("bob"), &json!("operator"), &json!("operator"))
    );
    assert!(reply["authenticated"].as_str().unwrap().starts_with("token "), "{reply}");
}

#[tokio::test]
async fn adv_071_only_the_newest_secret_of_a_token_that_holds_lets_anybody_in() {
    let world = world().await;
    let (one, other) = (
        world.token(&person("bob", PersonRole::Viewer), None).await,
        world.token(&person("eve", PersonRole::Admin), None).await,
    );
    assert!(world.bearer(one.reveal()).await.is_ok());
    assert!(!format!("{one:?} {:?}", Credential::Bearer(one.reveal())).contains(one.reveal()));
    let text = one.reveal();
    let (head, secret) = text.rsplit_once('_').unwrap();
    let last = if secret.ends_with('0') { '1' } else { '0' };
    let (_, others) = other.reveal().rsplit_once('_').unwrap();
    let wrong = [
        String::new(),
        "rgt_".to_owned(),
        "rgt__".to_owned(),
        secret.to_owned(),
        head.to_owned(),
        format!("{head}_"),
        // Truncated, lengthened, altered, padded, in other letters.
        text[..text.len() - 1].to_owned(),
        format!("{text}0"),
        format!("{}{last}", &text[..text.len() - 1]),
        format!(" {text}"),
        format!("{text}\n"),
        text.to_uppercase(),
        // One token's id with another one's secret.
        format!("{head}_{others}"),
        // A digest is no token.
        one.digest().to_string(),
        format!("{head}_{}", one.digest()),
        format!("rgt_{}_{}", "0".repeat(16), secret),
        format!("rgt_../../question_{secret}"),
        "é".repeat(40),
        "x".repeat(1 << 20),
    ];
    for text in wrong {
        assert!(
            matches!(world.bearer(&text).await, Err(AuthError::Invalid)),
            "{:?}",
            &text.get(..40.min(text.len()))
        );
    }
    let renewed = Token::renew(one.id()).unwrap();
    let op = Op::RotateToken { id: one.id().clone(), sha256: renewed.digest() };
    world.perform(&world.kernel.operator(), op).await;
    assert!(matches!(world.bearer(one.reveal()).await, Err(AuthError::Invalid)), "rotated");
    assert_eq!(
        world.bearer(renewed.reveal()).await.unwrap().role(),
        Some(PersonRole::Viewer),
        "the same subject"
    );
    world.perform(&world.kernel.operator(), Op::RevokeToken { id: one.id().clone() }).await;
    assert!(matches!(world.bearer(renewed.reveal()).await, Err(AuthError::Invalid)), "revoked");
    let op = Op::RotateToken { id: one.id().clone(), sha256: renewed.digest() };
    assert_eq!(world.code(&world.kernel.operator(), op).await, "token.unknown", "revoked for good");
    assert_eq!(
        world.tokens().await.iter().find(|kept| kept.id == *one.id()).unwrap().state,
        TokenState::Revoked
    );
}

#[tokio::test]
async fn revocation_rotation_and_expiry_count_from_the_next_call_on() {
    let world = world().await;
    let admin = world.kernel.operator();
    let ends: [(&str, &str); 3] =
        [("revoke", "auth.invalid"), ("rotate", "auth.invalid"), ("expire", "auth.expired")];
    for (how, code) in ends {
        let token = world.token(&person("bob", PersonRole::Operator), Some(60_000)).await;
        let bob = world.bearer(token.reveal()).await.unwrap();
        assert_eq!(world.code(&bob, work(json!({}))).await, "ok", "{how}");
        let runs = world.runs();
        match how {
            "revoke" => drop(world.perform(&admin, Op::RevokeToken { id: token.id().clone() }).await),
            "rotate" => {
                let sha256 = Token::renew(token.id()).unwrap().digest();
                world.perform(&admin, Op::RotateToken { id: token.id().clone(), sha256 }).await;
            }
            _expire => world.clock.advance_ms(60_000),
        }
        assert_eq!(world.code(&bob, work(json!({}))).await, code, "{how}");
        assert_eq!(world.code(&bob.unattended(), work(json!({}))).await, code, "no copy of it is better");
        assert_eq!(world.runs(), runs, "{how}");
    }
}

#[tokio::test]
async fn agents_stop_when_the_token_of_whoever_started_them_is_revoked_and_only_then() {
    let world = world().await;
    let admin = world.kernel.operator();
    for (how, code) in [("rotate", "ok"), ("expire", "ok"), ("revoke", "auth.invalid")] {
        let token = world.token(&person("bob", PersonRole::Operator), Some(60_000)).await;
        let bob = world.bearer(token.reveal()).await.unwrap();
        let agent = world.agent(&bob, "helper", None).await;
        let child = world.agent(&agent, "child", None).await;
        match how {
            "revoke" => drop(world.perform(&admin, Op::RevokeToken { id: token.id().clone() }).await),
            "rotate" => {
                let sha256 = Token::renew(token.id()).unwrap().digest();
                world.perform(&admin, Op::RotateToken { id: token.id().clone(), sha256 }).await;
            }
            _expire => world.clock.advance_ms(60_000),
        }
        for who in [&agent, &child] {
            assert_eq!(world.code(who, work(json!({}))).await, code, "{how}");
        }
        assert_eq!(
            world.code(&world.agent(&admin, "other", None).await, work(json!({}))).await,
            "ok",
            "{how}"
        );
    }
}

#[tokio::test]
async fn what_was_approved_with_a_token_ends_with_its_revocation() {
    let world = ProjectFixture::new(TWO, Arc::new(MemoryState::default())).await;
    let admin = world.kernel.operator();
    let token = world.token(&person("carl", PersonRole::Approver), None).await;
    let carl = world.bearer(token.reveal()).await.unwrap();
    let dora = world.caller(&person("dora", PersonRole::Approver)).await;
    let erin = world.caller(&person("erin", PersonRole::Approver)).await;
    let Reply::Pending(ticket) = world.work(json!({"text": "deploy"})).await else { panic!("not asked") };
    world.clock.advance_ms(60_000);
    let approve = Op::Answer {
        ticket: ticket.id.clone(),
        with: Vec::new(),
        answer: ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 3_600_000 },
    };
    assert_eq!(world.perform(&carl, approve.clone()).await["agreed"], 1);
    world.perform(&admin, Op::RevokeToken { id: token.id().clone() }).await;
    assert_eq!(world.perform(&dora, approve.clone()).await["agreed"], 1, "carl's is gone");
    assert_eq!(world.code(&admin, work(json!({"text": "deploy"}))).await, "pending");
    world.perform(&erin, approve).await;
    assert_eq!(world.code(&admin, work(json!({"text": "deploy"}))).await, "ok");
}

#[tokio::test]
async fn an_approval_that_a_revocation_missed_does_not_count() {
    for scope in [Scope::Once, Scope::Session] {
        let world = ProjectFixture::new(TWO, Arc::new(MemoryState::default())).await;
        let admin = world.kernel.operator();
        let token = world.token(&person("carl", PersonRole::Approver), None).await;
        let carl = world.bearer(token.reveal()).await.unwrap();
        let dora = world.caller(&person("dora", PersonRole::Approver)).await;
        let call = || work(json!({"text": "deploy"}));
        let Reply::Pending(ticket) = world.work(json!({"text": "deploy"})).await else { panic!("not asked") };
        world.clock.advance_ms(60_000);
        let answer = ApprovalAnswer::Approve { scope, valid_ms: 3_600_000 };
        let approve = Op::Answer { ticket: ticket.id.clone(), with: Vec::new(), answer };
        world.perform(&carl, approve.clone()).await;
        world.perform(&dora, approve.clone()).await;
        // As a process does that can't read the questions: the token is over, and nothing is taken back.
        let now_ms = START_MS + 60_000;
        world.kernel.kernel().0.tokens.revoke(token.id(), now_ms).await.unwrap();
        assert_eq!(world.code(&admin, call()).await, "pending", "{scope:?}");
        let erin = world.caller(&person("erin", PersonRole::Approver)).await;
        world.perform(&erin, approve).await;
        assert_eq!(world.code(&admin, call()).await, "ok", "{scope:?}: dora's still counts");
    }
}

#[tokio::test]
async fn nobody_has_the_name_of_somebody_else_in_other_capitals() {
    let world = world().await;
    world.token(&person("alice", PersonRole::Approver), None).await;
    for (name, code) in [
        ("Alice", "token.name"),
        ("ADA", "token.name"),
        ("Operator", "token.name"),
        ("alice", "ok"),
        ("bob", "ok"),
    ] {
        let token = Token::generate().unwrap();
        let made = creation(&token, &person(name, PersonRole::Approver), None);
        assert_eq!(world.code(&world.kernel.operator(), made).await, code, "{name}");
    }
}

#[tokio::test]
async fn a_replaced_secret_makes_no_new_one_even_while_it_is_being_replaced() {
    let world = world().await;
    let token = world.token(&person("bob", PersonRole::Operator), None).await;
    let bob = world.bearer(token.reveal()).await.unwrap();
    let tokens = &world.kernel.0.tokens;
    let rotate = async |presented| {
        let sha256 = Token::renew(token.id()).unwrap().digest();
        let changed = tokens.rotate(token.id(), sha256, presented, START_MS).await.unwrap();
        matches!(changed, crate::token::Changed::Done(_))
    };
    assert!(rotate(None).await, "an admin's");
    assert!(!rotate(bob.presented()).await, "bob's was judged before that and comes after it");
    assert_eq!(world.tokens().await[0].rotations, 1);
}

#[tokio::test]
async fn callers_that_are_no_agents_have_questions_and_histories_of_their_own() {
    const ASK: &str =
        "version: 1\nmode: permissive\nrules:\n  - { id: ask, effect: ask, match: { tool: work } }\n";
    let world = ProjectFixture::new(ASK, Arc::new(MemoryState::default())).await;
    let peer = world.caller(&Subject::Peer { name: "acme".to_owned() }).await;
    let bob = world.caller(&person("bob", PersonRole::Operator)).await;
    let mut codes: Vec<String> = Vec::new();
    for number in 0..60 {
        codes.push(world.code(&peer, work(json!({"text": number.to_string()}))).await);
    }
    assert_eq!(codes.last().unwrap(), "approval.flood");
    for who in [&bob, &world.kernel.operator()] {
        assert_eq!(world.code(who, work(json!({"text": who.display_name()}))).await, "pending");
    }
    let asked = world.kernel.operator();
    let Reply::Done(open) = world.kernel.syscall(&asked, Op::Questions).await.unwrap() else { panic!() };
    let open: Value = serde_json::from_slice(open.output.bytes()).unwrap();
    let causes: std::collections::BTreeSet<(String, String)> = open
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (one["caller"].to_string(), one["cause"].to_string()))
        .collect();
    assert_eq!(causes.len(), 3, "one cause for each caller: {causes:?}");
}

#[tokio::test]
async fn an_agents_token_is_that_agent_until_the_agent_ends_and_another_kernel_does_not_know_it() {
    let world = world().await;
    let admin = world.kernel.operator();
    let agent = world.agent(&admin, "helper", None).await;
    let subject = Subject::Agent { agent: agent.agent_id().unwrap().clone() };
    let token = world.token(&subject, None).await;
    let outside = world.bearer(token.reveal()).await.unwrap();
    // What no door led to: an agent outside reads its own signals, and ends itself.
    assert_eq!(world.code(&outside, Op::Sigpending).await, "ok");
    let next = world.next(OPEN, "session-2", "ada").await;
    assert!(matches!(next.bearer(token.reveal()).await, Err(AuthError::NoAgent)));
    assert_eq!(
        next.code(&next.kernel.operator(), creation(&Token::generate().unwrap(), &subject, None)).await,
        "token.no_agent"
    );
    assert_eq!(world.code(&outside, Op::Exit { code: 0 }).await, "ok");
    assert!(matches!(world.bearer(token.reveal()).await, Err(AuthError::NoAgent)), "ended");
    assert_eq!(world.code(&outside, Op::Sigpending).await, "agent.ended");
}

#[tokio::test]
async fn roles_are_enforced_before_policy_which_allows_everything_here() {
    let world = world().await;
    let agent = world.agent(&world.kernel.operator(), "helper", None).await;
    let id = agent.agent_id().unwrap().clone();
    let signal = Op::Signal { agent: id.clone(), signal: Signal::Usr2, group: false };
    let answer = Op::Answer {
        ticket: TicketId("nothing".to_owned()),
        with: Vec::new(),
        answer: ApprovalAnswer::Deny { because: None },
    };
    let budget = Op::SetBudget { scope: BudgetScope::Session, limits: Budget::default() };
    let create = || creation(&Token::generate().unwrap(), &person("mallory", PersonRole::Admin), None);
    let spawn = Op::Spawn(SpawnSpec { name: "child".to_owned(), ..SpawnSpec::default() });
    let no = "auth.role";
    let gone = "approval.gone";
    // Which of these a caller may do: look, run, signal, spawn, answer, set budgets, create tokens.
    let cases: [(Subject, [&str; 7]); 7] = [
        (person("v", PersonRole::Viewer), ["ok", no, no, no, no, no, no]),
        (person("o", PersonRole::Operator), ["ok", "ok", "ok", "ok", no, no, no]),
        (person("a", PersonRole::Approver), ["ok", no, no, no, gone, no, no]),
        (person("r", PersonRole::Admin), ["ok", "ok", "ok", "ok", gone, "ok", "ok"]),
        (
            Subject::Service { name: "ci".to_owned() },
            [
                "ok",
                "ok",
                "agent.not_yours",
                "ok",
                "approval.not_a_person",
                "budget.not_a_person",
                "auth.class",
            ],
        ),
        (
            Subject::Peer { name: "acme".to_owned() },
            [
                "auth.class",
                "ok",
                "agent.not_yours",
                "auth.class",
                "approval.not_a_person",
                "budget.not_a_person",
                "auth.class",
            ],
        ),
        (
            Subject::Agent { agent: id },
            ["ok", "ok", "ok", "ok", "approval.not_a_person", "budget.not_a_person", "auth.class"],
        ),
    ];
    for (subject, expected) in cases {
        let who = world.caller(&subject).await;
        let ops = [
            Op::Agents,
            work(json!({})),
            signal.clone(),
            spawn.clone(),
            answer.clone(),
            budget.clone(),
            create(),
        ];
        for (op, expected) in ops.into_iter().zip(expected) {
            let name = op.name();
            assert_eq!(world.code(&who, op.clone()).await, expected, "{name} as {subject:?}");
            // A check ahead gives the same answer.
            if expected.starts_with("auth.") {
                let reply = world.perform(&who, Op::CheckPolicy { op: Box::new(op) }).await;
                assert_eq!(reply["code"], expected, "{name} as {subject:?}");
            }
        }
    }
}

#[tokio::test]
async fn whoever_is_not_an_admin_rotates_their_own_token_only() {
    let world = world().await;
    let (own, other) = (
        world.token(&person("bob", PersonRole::Viewer), Some(DAY_MS.unsigned_abs())).await,
        world.token(&person("eve", PersonRole::Admin), None).await,
    );
    let bob = world.bearer(own.reveal()).await.unwrap();
    let renewed = Token::renew(own.id()).unwrap();
    let rotate = |id: &TokenId| Op::RotateToken { id: id.clone(), sha256: renewed.digest() };
    assert_eq!(world.code(&bob, rotate(other.id())).await, "auth.role");
    assert_eq!(world.code(&bob, Op::RevokeToken { id: own.id().clone() }).await, "auth.role");
    world.clock.advance_ms(3_600_000);
    assert_eq!(world.code(&bob, rotate(own.id())).await, "ok");
    let kept = world.tokens().await.into_iter().find(|kept| kept.id == *own.id()).unwrap();
    assert_eq!(kept.expires_at_ms.unwrap() - kept.created_at_ms, DAY_MS, "as long as before");
    assert_eq!(world.bearer(renewed.reveal()).await.unwrap().role(), Some(PersonRole::Viewer));
}

#[tokio::test]
async fn two_approvals_take_two_people_whatever_tokens_they_hold() {
    let world = ProjectFixture::new(TWO, Arc::new(MemoryState::default())).await;
    let pending = |reply: Reply| match reply {
        Reply::Pending(ticket) => ticket.id,
        other @ (Reply::Done(_) | Reply::Denied(_)) => panic!("{other:?}"),
    };
    let ticket = pending(world.work(json!({"text": "deploy"})).await);
    let yes = || {
        // Everybody has the time to read.
        world.clock.advance_ms(60_000);
        let answer = ApprovalAnswer::Approve { scope: Scope::Once, valid_ms: 3_600_000 };
        Op::Answer { ticket: ticket.clone(), with: Vec::new(), answer }
    };
    let alice = world.caller(&person("alice", PersonRole::Approver)).await;
    // A second token of the same person, and the user at the terminal under the same name as a token, are one person.
    let again = world.caller(&person("alice", PersonRole::Admin)).await;
    let carl = world.caller(&person("carl", PersonRole::Operator)).await;
    assert_eq!(world.perform(&alice, yes()).await["answered"], "waiting");
    for one in [&alice, &again] {
        let reply = world.perform(one, yes()).await;
        assert_eq!(
            (&reply["answered"], &reply["agreed"], &reply["needed"]),
            (&json!("waiting"), &json!(1), &json!(2))
        );
    }
    assert_eq!(world.code(&carl, yes()).await, "auth.role", "an operator doesn't approve");
    pending(world.work(json!({"text": "deploy"})).await);
    assert_eq!(world.runs(), 0);
    let bob = world.caller(&person("bob", PersonRole::Approver)).await;
    assert_eq!(world.perform(&bob, yes()).await["answered"], "approved");
    assert!(matches!(world.work(json!({"text": "deploy"})).await, Reply::Done(_)));
    assert_eq!(world.runs(), 1);
    let entries = regent_ledger::Reader::on(world.kernel.ledger().storage()).tail(usize::MAX).unwrap();
    let approved = entries.iter().find_map(|entry| entry.body.pointer("/approved/by").cloned()).unwrap();
    assert_eq!(approved, json!(["alice", "bob"]), "by name");
    let is_answer = |entry: &&regent_ledger::Entry| {
        entry.kind == regent_ledger::EntryKind::Intent && entry.body["op"] == "approval.answer"
    };
    let by = entries.iter().rfind(is_answer).unwrap();
    let caller = &by.body["caller"];
    assert_eq!((&caller["chain"][0], &caller["role"]), (&json!("bob"), &json!("approver")));
    assert!(caller["authenticated"].as_str().unwrap().starts_with("token "), "{caller}");
}

#[tokio::test]
async fn a_program_reaches_only_the_agents_that_it_started() {
    let world = world().await;
    let (ci, other) = (
        world.caller(&Subject::Service { name: "ci".to_owned() }).await,
        world.caller(&Subject::Service { name: "other".to_owned() }).await,
    );
    let own = world.agent(&ci, "worker", None).await;
    let id = own.agent_id().unwrap().clone();
    assert_eq!(own.chain().first().map(String::as_str), Some("service:ci"));
    assert!(world.kernel.principal_of(&other, &id).is_none());
    assert!(world.kernel.principal_of(&world.caller(&person("v", PersonRole::Viewer)).await, &id).is_none());
    let begin = || Op::Begin { agent: id.clone(), begin: Box::default() };
    assert_eq!(world.code(&other, begin()).await, "agent.not_yours");
    assert_eq!(world.code(&ci, begin()).await, "ok");
    assert_eq!(
        world.code(&other, Op::Signal { agent: id.clone(), signal: Signal::Kill, group: false }).await,
        "agent.not_yours"
    );
    assert_eq!(world.perform(&other, Op::Agents).await, json!([]));
    assert_eq!(world.perform(&ci, Op::Agents).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn input_of_programs_carries_their_label_and_rules_see_class_and_label() {
    let peers = "version: 1\nmode: permissive\nrules:\n  - { id: words, effect: deny, match: { tool: work, labels: { \"*\": { integrity: peer } } } }\n";
    let classes = "version: 1\nmode: permissive\nrules:\n  - { id: programs, effect: deny, match: { class: [peer, service], op: tool.run } }\n";
    let (peer, service) =
        (Subject::Peer { name: "acme".to_owned() }, Subject::Service { name: "ci".to_owned() });
    for (policy, subject, integrity, expected) in [
        (peers, &peer, Integrity::Peer, "policy.denied"),
        (peers, &service, Integrity::Tool, "ok"),
        (peers, &person("bob", PersonRole::Operator), Integrity::Operator, "ok"),
        (classes, &peer, Integrity::Peer, "policy.denied"),
        (classes, &service, Integrity::Tool, "policy.denied"),
        (classes, &person("bob", PersonRole::Operator), Integrity::Operator, "ok"),
    ] {
        let world = ProjectFixture::new(policy, Arc::new(MemoryState::default())).await;
        let who = world.caller(subject).await;
        assert_eq!(who.own_label().integrity, integrity, "{subject:?}");
        assert_eq!(world.code(&who, work(json!({"text": "x"}))).await, expected, "{subject:?}");
    }
    // What a program starts begins with what the program says, and is trusted no further.
    let world = world().await;
    let ci = world.caller(&service).await;
    let spec = SpawnSpec { name: "worker".to_owned(), trust: Some(1_000), ..SpawnSpec::default() };
    let born = world.perform(&ci, Op::Spawn(spec)).await;
    let agent = world.kernel.principal_of(&ci, &born["agent"].as_str().unwrap().into()).unwrap();
    let life = agent.life().unwrap();
    assert_eq!((life.context().integrity, life.trust()), (Integrity::Tool, 500));
}

#[tokio::test]
async fn neither_ledger_nor_state_ever_has_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let state: Arc<dyn State> = Arc::new(SqliteState::open(&folder.path().join("state.db")).unwrap());
    let world = ProjectFixture::new(OPEN, Arc::clone(&state)).await;
    let token = world.token(&person("bob", PersonRole::Admin), None).await;
    let bob = world.bearer(token.reveal()).await.unwrap();
    world.perform(&bob, Op::Whoami).await;
    let renewed = Token::renew(token.id()).unwrap();
    world.perform(&bob, Op::RotateToken { id: token.id().clone(), sha256: renewed.digest() }).await;
    world.bearer(renewed.reveal()).await.unwrap();
    let ledger = world.kernel.ledger();
    let entries = regent_ledger::Reader::on(ledger.storage()).tail(usize::MAX).unwrap();
    let mut texts: Vec<String> = entries.iter().map(|entry| format!("{entry:?}")).collect();
    let digests = entries
        .iter()
        .flat_map(|entry| [entry.body.pointer("/args/sha256"), entry.body.pointer("/output/sha256")]);
    let digests: Vec<regent_ledger::Digest> =
        digests.flatten().filter_map(|one| serde_json::from_value(one.clone()).ok()).collect();
    assert!(!digests.is_empty());
    texts.extend(
        digests
            .iter()
            .filter_map(|one| ledger.payload(one).unwrap())
            .map(|bytes| String::from_utf8(bytes).unwrap()),
    );
    let mut records = Vec::new();
    for key in ["token/", "question/", "history/", "budget/"] {
        records.extend(state.scan(&Partition::containing(key), "").await.unwrap());
    }
    texts.extend(
        records.iter().map(|record| format!("{} {}", record.key, String::from_utf8_lossy(&record.value))),
    );
    let secrets = [token.reveal(), renewed.reveal()].map(|text| text.rsplit_once('_').unwrap().1);
    assert!(texts.iter().any(|text| text.contains(&token.id().0)), "the test looks in the right place");
    for text in &texts {
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    }
}

#[tokio::test]
async fn creating_refuses_names_and_ids_that_pass_for_somebody_else() {
    let world = world().await;
    let admin = world.kernel.operator();
    for name in ["", "operator", "kernel", "a b", "ada (uid 0)", "../x", "é", "service:ci", &"x".repeat(65)]
    {
        let token = Token::generate().unwrap();
        let op = creation(&token, &person(name, PersonRole::Viewer), None);
        assert_eq!(world.code(&admin, op).await, "token.name", "{name:?}");
    }
    let token = world.token(&person("bob", PersonRole::Viewer), None).await;
    let over = creation(&token, &person("eve", PersonRole::Admin), None);
    assert_eq!(world.code(&admin, over).await, "token.id", "a token isn't replaced by creating it again");
    for id in ["", "xyz", "../../question/x", "AAAAAAAAAAAAAAAA"] {
        let spec = TokenSpec {
            id: TokenId(id.to_owned()),
            sha256: token.digest(),
            subject: person("eve", PersonRole::Admin),
            valid_ms: None,
        };
        assert_eq!(world.code(&admin, Op::CreateToken(spec)).await, "token.id", "{id:?}");
        assert_eq!(world.code(&admin, Op::RevokeToken { id: TokenId(id.to_owned()) }).await, "token.unknown");
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_lets_nobody_in() {
    let world = world().await;
    let token = world.token(&person("bob", PersonRole::Admin), None).await;
    let bob = world.bearer(token.reveal()).await.unwrap();
    let key = format!("token/{}", token.id());
    let partition = Partition::containing(&key);
    let damaged =
        regent_store::change(&*world.state, &partition, &[], |records| records.put(&key, b"{}", i64::MAX));
    damaged.await.unwrap();
    assert!(matches!(world.bearer(token.reveal()).await, Err(AuthError::State(_))));
    assert!(world.kernel.syscall(&bob, work(json!({}))).await.is_err());
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn the_last_use_is_known_to_the_hour_and_rarely_written() {
    let world = world().await;
    let token = world.token(&person("bob", PersonRole::Viewer), None).await;
    world.clock.advance_ms(90 * 60_000);
    world.bearer(token.reveal()).await.unwrap();
    let used = |tokens: Vec<TokenSummary>| tokens[0].last_used_at_ms.unwrap();
    let first = used(world.tokens().await);
    assert_eq!(first % 3_600_000, 0);
    world.clock.advance_ms(10 * 60_000);
    world.bearer(token.reveal()).await.unwrap();
    assert_eq!(used(world.tokens().await), first);
}
