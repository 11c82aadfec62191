//! Files in foreign formats load unchanged and with their meaning.

use super::{call, source, verdict};
use crate::{Policy, Verdict, codes, load};

fn file(name: &str, text: &str) -> Policy {
    load(text, &source(name)).unwrap_or_else(|error| panic!("{:#?}\n{text}", error.findings))
}

const AGENTZERO: &str = r#"# AgentZero policy
version = "1"
default_classification = "private"
model_routing = "local_only"
shell_commands = "require_approval"
file_write = "require_approval"
file_read = "allow"
network = "deny"
wasm_execution = "allow"
"#;

#[test]
fn an_agentzero_policy_loads_as_it_is() {
    let policy = file(".agentzero/policy.yml", AGENTZERO);
    let cases = [
        ("{ tool: fs.read, path: src/a }", "allow"),
        ("{ tool: fs.read, path: /etc/passwd }", "deny policy.no_rule"),
        ("{ tool: fs.write, path: src/a }", "ask"),
        ("{ tool: fs.write, path: .git/hooks/x }", "deny policy.denied"),
        ("{ tool: shell.exec, command: ls }", "ask"),
        ("{ tool: http.fetch, url: 'https://example.com' }", "deny policy.denied"),
        ("{ tool: some.tool, capabilities: [network.request] }", "deny policy.denied"),
        ("{ tool: some.tool, tier: wasm }", "allow"),
        ("{ tool: some.tool }", "deny policy.no_rule"),
        ("{ op: model.infer, url: 'http://127.0.0.1:11434/api' }", "allow"),
        ("{ op: model.infer, url: 'https://api.example.com/' }", "deny policy.no_rule"),
        ("{ op: model.infer }", "deny policy.no_rule"),
        ("{ op: vfs.write, agent: ada, path: 'vfs:/agent/ada/mem/x' }", "allow"),
        ("{ op: vfs.write, agent: ada, path: 'vfs:/agent/bob/mem/x' }", "deny policy.no_rule"),
        ("{ op: agent.exit }", "allow"),
    ];
    for (text, expected) in cases {
        assert_eq!(verdict(&policy, text), expected, "{text}");
    }
    let Verdict::Ask(question) = super::decide(&policy, "{ tool: fs.write, path: a }") else {
        panic!("it asks")
    };
    assert_eq!((&*question.rule.id, question.rule.line), ("agentzero.file_write", 6));
}

#[test]
fn agentzero_keys_in_yaml_load_too() {
    let policy = file(
        "policy.yml",
        "version: 1\nfile_read: allow\nmodel_routing: local_preferred\nnetwork: allow\ndefault_classification: pii",
    );
    assert_eq!(verdict(&policy, "{ tool: fs.read, path: a }"), "allow");
    assert_eq!(verdict(&policy, "{ op: model.infer, url: 'https://x.test/' }"), "allow");
    assert_eq!(
        verdict(
            &policy,
            "{ op: model.infer, url: 'https://x.test/', labels: { /m: { confidentiality: secret } } }"
        ),
        "deny policy.denied"
    );
    assert_eq!(
        verdict(
            &policy,
            "{ op: model.infer, url: 'https://x.test/', labels: { /m: { confidentiality: unknown } } }"
        ),
        "deny policy.denied"
    );
    assert_eq!(
        verdict(
            &policy,
            "{ op: model.infer, url: 'http://localhost:1/', labels: { /m: { confidentiality: secret } } }"
        ),
        "allow"
    );
}

#[test]
fn mistakes_in_an_agentzero_policy_are_reported_at_their_position() {
    let cases = [
        ("version = 1\nfile_raed = \"allow\"", 2, 1, "unknown key `file_raed`"),
        ("version = 1\nfile_read = \"maybe\"", 2, 13, "unknown action `maybe`"),
        ("version = 9\nfile_read = \"allow\"", 1, 11, "unknown version"),
        ("version = 1\nmodel_routing = \"remote\"", 2, 17, "unknown routing"),
        ("version = 1\nfile_read = ", 2, 13, "this is not TOML"),
        ("version = 1\nversion = 1", 2, 1, "this is not TOML"),
    ];
    for (text, line, column, message) in cases {
        let found = load(text, &source("policy.yml")).expect_err(text).findings;
        assert!(
            found.iter().any(|finding| (finding.line, finding.column) == (line, column)
                && finding.message.contains(message)),
            "{text}\n{found:#?}"
        );
    }
}

const SECURITY: &str = r#"kernel:
  version: "1.0"
  mode: strict
signals: [SIGSTOP, SIGKILL, SIGTERM]
policies:
  - action: database_query
    effect: allow
    mode: read_only
    rate_limit: "100/hour"
  - action: file_read
    effect: allow
    constraints:
      allowed_paths: ["src/**"]
  - action: file_write
    requires_approval: true
  - action: send_email
    effect: allow
    requires_approval: true
  - action: http_request
    effect: allow
    constraints: { allowed_domains: ["*.example.com"], methods: [GET] }
  - action: drop_table
    effect: deny
  - action: "*"
    effect: deny
observability:
  metrics: true
  traces: true
  flight_recorder: true
"#;

#[test]
fn a_security_file_loads_as_it_is() {
    let fenced = format!("# Security\n\nWords.\n\n```yaml\n{SECURITY}```\n\nMore words.\n");
    let front = format!("---\n{SECURITY}---\n# Security\n\nWords: [not yaml\n");
    for (name, text, shift) in [
        (".agents/security.md", SECURITY, 0),
        ("security.md", &fenced, 5),
        ("security.md", &front, 1),
        ("security.yml", SECURITY, 0),
    ] {
        let policy = file(name, text);
        let cases = [
            ("{ tool: database_query }", "allow"),
            ("{ tool: database_query, capabilities: [file.write] }", "deny policy.denied"),
            ("{ tool: fs.read, path: src/a }", "allow"),
            ("{ tool: fs.read, path: docs/a }", "deny policy.no_rule"),
            ("{ tool: fs.write, path: src/a }", "ask"),
            ("{ tool: fs.write, path: .regent/policy.yml }", "deny policy.denied"),
            ("{ tool: send_email }", "ask"),
            ("{ tool: http.fetch, url: 'https://a.example.com/' }", "allow"),
            ("{ tool: http.fetch, url: 'https://a.example.com/', method: POST }", "deny policy.no_rule"),
            ("{ tool: http.fetch, url: 'https://evil.test/' }", "deny policy.no_rule"),
            ("{ tool: drop_table }", "deny policy.denied"),
            ("{ tool: anything }", "deny policy.no_rule"),
            ("{ op: signal.send, class: operator, args: { signal: LOOP } }", "deny policy.denied"),
            ("{ op: agent.exit }", "allow"),
        ];
        for (text, expected) in cases {
            assert_eq!(verdict(&policy, text), expected, "{name}: {text}");
        }
        let Verdict::Deny(reason) = super::decide(&policy, "{ tool: drop_table }") else { panic!("denied") };
        assert_eq!(reason.rule.map(|rule| rule.line), Some(22 + shift), "{name}");
    }
    let policy = file("security.md", SECURITY);
    let Verdict::Allow(grant) = super::decide(&policy, "{ tool: database_query }") else { panic!("allowed") };
    assert_eq!((grant.charges[0].limit, grant.charges[0].window_ms), (100, 3_600_000));
}

#[test]
fn a_security_file_in_other_modes() {
    let permissive = file(
        "security.md",
        "kernel: { mode: permissive }\npolicies:\n  - { action: database_query, effect: allow, mode: read_only }",
    );
    assert_eq!(verdict(&permissive, "{ tool: anything }"), "allow");
    assert_eq!(
        verdict(&permissive, "{ tool: database_query, capabilities: [file.write] }"),
        "deny policy.denied"
    );
    let closed = file(
        "security.md",
        "kernel: { mode: permissive }\npolicies:\n  - { action: x, effect: allow }\n  - { action: '*', effect: deny }",
    );
    assert_eq!(verdict(&closed, "{ tool: anything }"), "deny policy.no_rule");
    let audit = file("security.md", "kernel: { mode: audit }\npolicies: [{ action: x, effect: deny }]");
    let grant = call("{ tool: x }").with_facts(|facts| audit.decide(facts));
    assert!(matches!(grant, Verdict::Allow(grant) if grant.warnings[0].code == codes::WOULD_DENY));
}

#[test]
fn mistakes_in_a_security_file_are_errors() {
    let cases = [
        ("kernel: { mode: lax }", "unknown mode"),
        ("kernel: { version: 3.0 }", "unknown version"),
        ("policies: [{ action: x, effect: permit }]", "unknown effect"),
        ("policies: [{ action: x, effect: ask }]", "`allow` or `deny`"),
        ("policies: [{ action: x }]", "neither `effect` nor"),
        ("policies: [{ effect: allow }]", "no `action`"),
        ("policies: [{ action: x, effect: allow, mode: readonly }]", "unknown mode"),
        ("policies: [{ action: x, effect: allow, rate_limit: lots }]", "expected a rate"),
        ("policies: [{ action: x, effect: allow, constraints: { tables: [a] } }]", "unknown key `tables`"),
        ("policies: [{ action: x, effect: allow, when: now }]", "unknown key `when`"),
        ("policies: { action: x }", "must be a list"),
        ("signals: [SIGFOO]", "unknown signal"),
        ("observability: { logs: true }", "unknown key `logs`"),
        ("rules: []", "unknown key `rules`"),
    ];
    for (text, message) in cases {
        let found = load(text, &source("security.md")).expect_err(text).findings;
        assert!(found.iter().any(|finding| finding.message.contains(message)), "{text}\n{found:#?}");
    }
    let twice = "```yaml\npolicies: []\n```\n```yaml\npolicies: []\n```\n";
    assert!(load(twice, &source("security.md")).is_err());
}
