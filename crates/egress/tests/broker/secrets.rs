//! Programs hold placeholders. The broker fills in values and scrubs them from responses.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::Secret;
use regent_ledger::Reader;
use regent_vault::{Scope, Short, Vault};

use crate::fixture::{BrokerFixture, Setup, reaching};
use crate::servers::{Server, ok};

const VALUE: &str = "tok-Zk3/9+qLw7xR2mVn";

const POLICY: &str = "
version: 1
limits: { wall: 20s, output: 1MiB }
rules:
  - { id: everything, effect: allow }
  - { id: the-token, effect: allow, match: { tool: net.request, host: 127.0.0.1, secret: api } }
";

/// A vault with one secret, scoped to one host.
fn vault(folder: &tempfile::TempDir, hosts: &[&str]) -> Arc<Vault> {
    let vault = Vault::new(folder.path(), None);
    let scope = Scope { hosts: hosts.iter().map(|&host| host.to_owned()).collect(), ..Scope::default() };
    vault.add("api", Secret::new(VALUE.as_bytes().to_vec()), scope, Short::Refused, 1).unwrap();
    Arc::new(vault)
}

fn forms() -> Vec<String> {
    let hex: String = VALUE.bytes().map(|byte| format!("{byte:02x}")).collect();
    let url = VALUE.replace('/', "%2F").replace('+', "%2B");
    vec![VALUE.to_owned(), STANDARD.encode(VALUE), hex.to_uppercase(), hex, url]
}

#[tokio::test(flavor = "multi_thread")]
async fn fills_in_placeholders_and_scrubs_the_value_from_responses() {
    // The server echoes the request, and the value in every encoding.
    let server = Server::new(|request| ok(&format!("{request}\n{}", forms().join("\n"))));
    let at = server.address();
    let folder = tempfile::tempdir().unwrap();
    let secrets = vault(&folder, &["127.0.0.1"]);
    let world =
        BrokerFixture::new(Setup { policy: POLICY, network: reaching(&[&at]), secrets, ..Setup::default() })
            .await;
    let lines = [
        // The script assembles the handle itself, so that it isn't an argument of its call.
        format!("H=secret:; curl -sSi -H \"Authorization: Bearer $H//api\" http://{at}/"),
        format!("H=secret:; curl -sSi -u \"ada:$H//api\" http://{at}/"),
        format!(
            "H=secret:; curl -sSi -H 'Content-Type: application/json' -d '{{\"a\": [\"k='$H'//api\"]}}' http://{at}/"
        ),
    ];
    for line in &lines {
        let said = world.out(line).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{line}: {said}");
        for form in forms() {
            assert!(!said.contains(&form), "{form} came back: {said}");
        }
    }
    let heard = server.requests();
    assert!(heard[0].contains(&format!("Bearer {VALUE}\r\n")), "{heard:?}");
    assert!(heard[1].contains(&STANDARD.encode(format!("ada:{VALUE}"))), "{heard:?}");
    assert!(heard[2].ends_with(&format!("{{\"a\":[\"k={VALUE}\"]}}")), "{heard:?}");
    // The value is in neither the ledger nor the payloads.
    let recorded = world.recorded().await;
    let text = format!("{recorded:?}");
    assert!(forms().iter().all(|form| !text.contains(form.as_str())), "{text}");
    let told: Vec<String> = recorded.iter().map(|(_, body)| world.payload_of(body).to_string()).collect();
    assert!(forms().iter().all(|form| !told.concat().contains(form.as_str())), "{told:?}");
    assert!(Reader::on(world.kernel.ledger().storage()).entries().is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_is_judged_and_limited_to_its_hosts() {
    let server = Server::new(|_| ok("hello"));
    let (at, named) = (server.address(), format!("localhost:{}", server.port));
    let folder = tempfile::tempdir().unwrap();
    let secrets = vault(&folder, &["example.com"]);
    let setup = Setup { policy: POLICY, network: reaching(&[&at, &named]), secrets, ..Setup::default() };
    let world = BrokerFixture::new(setup).await;
    let send = |to: &str| format!("H=secret:; curl -sSi -H \"X-Key: $H//api\" http://{to}/");
    // Policy allows the secret only for 127.0.0.1, its scope only for example.com.
    let said = world.out(&send(&named)).await;
    assert!(said.contains("403") && said.contains("x-regent-verdict: deny"), "{said}");
    let said = world.out(&send(&at)).await;
    assert!(said.contains("502") && said.contains("secret.out_of_scope"), "{said}");
    assert_eq!(server.requests(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn adv_052_a_revealed_value_does_not_leave_otherwise() {
    let server = Server::new(|_| ok("hello"));
    let at = server.address();
    let folder = tempfile::tempdir().unwrap();
    let secrets = vault(&folder, &[]);
    let world =
        BrokerFixture::new(Setup { policy: POLICY, network: reaching(&[&at]), secrets, ..Setup::default() })
            .await;
    // Revealed once, legitimately.
    let said = world.out(&format!("H=secret:; curl -sS -H \"X-Key: $H//api\" http://{at}/")).await;
    assert_eq!(said, "hello");
    for form in forms() {
        let lines = [
            format!("curl -sSi 'http://{at}/?q={form}'"),
            format!("curl -sSi -H 'X-Note: {form}' http://{at}/"),
            format!("curl -sSi -d 'note={form}' http://{at}/"),
            // In a stream, across piece boundaries.
            format!(
                "(head -c 5000 /dev/zero; printf '%s' '{}'; sleep 0.2; printf '%s' '{}'; head -c 5000 /dev/zero) | \
                 curl -sSi -T - -H 'Expect:' http://{at}/",
                &form[..8],
                &form[8..]
            ),
        ];
        for line in lines {
            let said = world.out(&line).await;
            assert!(said.contains("403") && said.contains("net.secret_leaving"), "{line}: {said}");
        }
    }
    assert_eq!(server.requests().len(), 1, "{:?}", server.requests());
}
