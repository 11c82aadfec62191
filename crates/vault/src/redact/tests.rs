//! What redaction finds and, equally important, what it leaves unchanged.

use proptest::prelude::*;

use super::*;

fn redacted(input: &str) -> String {
    text(input).into_owned()
}

#[test]
fn redacts_credentials_and_personal_data() {
    assert!(keys::is_built());
    // The parts are joined here so that secret scanners don't report these examples.
    let random = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1bC3dE5f";
    let upper = "QWERTY1234ASDFGH";
    let hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let header = URL_HEADER;
    let cases: Vec<(String, &str)> = vec![
        ("pay with 4111 1111 1111 1111 now".into(), "pay with [card:1] now"),
        ("4111111111111111".into(), "[card:1]"),
        ("card=5555-5555-5555-4444;".into(), "card=[card:1];"),
        ("amex 3782 822463 10005.".into(), "amex [card:1]."),
        ("\"pan\":\"6011111111111117\"".into(), "\"pan\":\"[card:1]\""),
        ("IBAN DE89 3704 0044 0532 0130 00, please".into(), "IBAN [iban:1], please"),
        ("GB29NWBK60161331926819".into(), "[iban:1]"),
        ("FR1420041010050500013M02606".into(), "[iban:1]"),
        ("write to ada.lovelace+x@example.co.uk.".into(), "write to [email:1]."),
        ("<ada@example.com>".into(), "<[email:1]>"),
        ("a@b.de a@b.de c@d.de".into(), "[email:1] [email:1] [email:2]"),
        ("mailto:ada@example.com?x".into(), "mailto:[email:1]?x"),
        ("call +44 20 7946 0958 today".into(), "call [phone:1] today"),
        ("tel:+4915112345678".into(), "tel:[phone:1]"),
        ("+1 (212) 555-0123".into(), "[phone:1]"),
        ("(212) 555-0123".into(), "[phone:1]"),
        ("212-555-0123".into(), "[phone:1]"),
        ("01 23 45 67 89".into(), "[phone:1]"),
        ("SSN 123-45-6789.".into(), "SSN [ssn:1]."),
        (format!("AKIA{upper}"), "[key:1]"),
        (format!("token ghp_{random}"), "token [key:1]"),
        (format!("github_pat_{random}_{random}"), "[key:1]"),
        (format!("glpat-{}", &random[..20]), "[key:1]"),
        (format!("xoxb-123456789012-{}", &random[..12]), "[key:1]"),
        (format!("sk-{random}"), "[key:1]"),
        (format!("sk-proj-{random}"), "[key:1]"),
        (format!("(sk-ant-api03-{random}-{random})"), "([key:1])"),
        (format!("AIza{}", &random[..35]), "[key:1]"),
        (format!("sk_live_{}", &random[..24]), "[key:1]"),
        (format!("dop_v1_{hex}"), "[key:1]"),
        (format!("--token rgt_0123456789abcdef_{hex}."), "--token [key:1]."),
        (format!("Authorization: Bearer {random}"), "Authorization: Bearer [token:1]"),
        (format!("authorization: bearer {}", &random[..20]), "authorization: bearer [token:1]"),
        (format!("Basic {}", "dXNlcjpodW50ZXIyMTIz"), "Basic [token:1]"),
        (format!("{header}.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc-DEF_123 x"), "[token:1] x"),
        ("password=hunter22".into(), "password=[password:1]"),
        ("DB_PASSWORD='hunter22!'".into(), "DB_PASSWORD='[password:1]'"),
        ("{\"password\": \"correcthorse\"}".into(), "{\"password\": \"[password:1]\"}"),
        ("PASSWORD: s3cr3t!pw".into(), "PASSWORD: [password:1]"),
        ("?password=hunter22&x=1".into(), "?password=[password:1]&x=1"),
        ("postgres://app:hunter2@db.example.com/x".into(), "postgres://app:[password:1]@db.example.com/x"),
        (format!("api_key = \"{}\"", &random[..16]), "api_key = \"[key:1]\""),
        (format!("SECRET_TOKEN={}", &random[..20]), "SECRET_TOKEN=[token:1]"),
        (format!("key is {random}, keep it"), "key is [key:1], keep it"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest".into(),
            "[private-key:1]\nrest",
        ),
        ("a -----BEGIN PRIVATE KEY-----\nMIIE cut".into(), "a [private-key:1]"),
        ("ü ada@example.com ü 4111111111111111 ü".into(), "ü [email:1] ü [card:1] ü"),
    ];
    for (input, expected) in cases {
        assert_eq!(redacted(&input), expected, "for {input}");
    }
}

const URL_HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

#[test]
fn leaves_ordinary_text_unchanged() {
    let cases = [
        "the task-force runs a risk-based desk-check on disk-usage",
        "ask-me-anything sk-learn-contrib-imbalanced-learn-0.12.3-documentation",
        "a token of appreciation; the secret is out; keep the password safe",
        "password: String, token: &str, secret: Option<Secret>",
        "let token = response.json()[\"token\"];",
        "password = get_password()",
        "login(user=user, password=password)",
        "token_count = 128000, max_tokens: 4096, tokens=12345678901234",
        "password: ${DB_PASSWORD}",
        "password: <your password here>",
        "api_key: process.env.OPENAI_API_KEY",
        "api_key=secret://openai",
        "PASSWORD=********",
        "bearer of good news, basic understanding, Bearer authentication",
        "git@github.com:org/repo.git",
        "ssh://git@github.com/org/repo.git",
        "getty@tty1.service user@1000.service icon@2x.png",
        "left-pad@1.3.0 @scope/package actions/checkout@v4.1.0 image@sha256:abcd",
        "@app.route('/x') @Override foo@bar",
        "550e8400-e29b-41d4-a716-446655440000",
        "d41d8cd98f00b204e9800998ecf8427e",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "SHA256:uNiVztksCsDhcc0u9e8BgrJXVGDeuv4aKl8JTtHyWqM",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "https://example.com/a/very/long/path/to/some/Resource2/With9/Mixed7/Parts",
        "src/components/VeryLongComponentNameForTheFactory2Implementation.tsx",
        "AbstractSingletonProxyFactoryBean2WithConfiguration3Support",
        "test_that_v2_of_the_api_returns_404_for_missing_resources_2024",
        "0x7fff5fbff8a0 2026-11-15T12:35:00.123Z 1767614400000 1767614400",
        "10.0.0.1:8080 192.168.100.200 255.255.255.255 1.2.3.4.5.6",
        "order 4111111111111112, id 1234567812345678",
        "0.4111111111111111 and 12.4111111111111111",
        "version 212.555.0123456 in 2024-01-02",
        "000-12-3456 666-12-3456 900-12-3456 123-00-4567 123-45-0000",
        "DE89 3704 0044 0532 0130 01",
        "+1234567890\n+42\n-1234567890",
        "x+12345678 1+1=2 a += 12345678",
        "AKIAlowercase AIzaShort ghp_short xoxb-",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "eyJ.a.b eyJhbGci",
        "http://localhost:8080/ http://user@host.example/x",
        "0123456789",
        "the price is 1 234 567 890 and 12,345,678.90",
        "",
    ];
    for case in cases {
        assert_eq!(redacted(case), case);
    }
}

#[test]
fn placeholder_numbers_continue_across_texts() {
    let mut numbers = Numbers::default();
    let first = redact_with(b"a@b.de and c@d.de", &mut numbers);
    let second = redact_with(b"c@d.de and e@f.de", &mut numbers);
    assert_eq!(first.bytes, b"[email:1] and [email:2]");
    assert_eq!(second.bytes, b"[email:2] and [email:3]");
    assert_eq!(first.findings[1], Finding { kind: FindingKind::Email, span: 11..17 });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn redaction_accepts_any_text_and_splits_no_character(input in "(\\PC|@|\\.|[0-9 +(-]|password=|sk-|ü|a@b.de|://|-----BEGIN PRIVATE KEY-----){0,60}") {
        let found = find(input.as_bytes());
        let mut last = 0;
        for one in &found {
            prop_assert!(one.span.start >= last && one.span.start < one.span.end);
            prop_assert!(input.is_char_boundary(one.span.start) && input.is_char_boundary(one.span.end), "{one:?} in {input}");
            last = one.span.end;
        }
        prop_assert!(String::from_utf8(redact(input.as_bytes()).bytes).is_ok());
    }

    #[test]
    fn redaction_never_panics(input in prop::collection::vec(any::<u8>(), 0..300)) {
        redact(&input);
    }

    #[test]
    fn words_stay_unchanged(input in "([a-z]{1,12}[ ,.-]){0,40}") {
        prop_assert_eq!(redacted(&input), input);
    }

    #[test]
    fn finds_every_card_with_a_valid_check_digit(middle in prop::collection::vec(0_u8..10, 14), space in any::<bool>()) {
        let mut digits: Vec<u8> = std::iter::once(4).chain(middle).collect();
        let sum: u32 = digits.iter().rev().enumerate().map(|(at, digit)| {
            let twice = u32::from(*digit) * 2;
            if at % 2 == 0 { twice / 10 + twice % 10 } else { u32::from(*digit) }
        }).sum();
        digits.push(u8::try_from((10 - sum % 10) % 10).unwrap());
        let text: Vec<String> = digits.chunks(4).map(|group| group.iter().map(|digit| char::from(b'0' + digit)).collect()).collect();
        let text = text.join(if space { " " } else { "" });
        prop_assert_eq!(redacted(&format!("x {text} y")), "x [card:1] y");
    }
}
