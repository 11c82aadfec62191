//! URLs as policy and the network must both understand them: one parse, one spelling.

use url::{Host, Url};

/// No honest URL is longer.
const URL_BYTES_MAX: usize = 8192;

/// Parses a URL, or says why it may not be contacted.
///
/// The parser folds odd spellings of addresses (`0x7f000001`, `127.1`, `127.0.0.1.`) and international names into one form, and the
/// dot at the end of a name is taken off, so a rule sees the host that will be contacted. The fragment, which never leaves the
/// caller, is dropped.
pub fn parse(text: &str) -> Result<Url, String> {
    if text.len() > URL_BYTES_MAX {
        return Err(format!("the URL is longer than {URL_BYTES_MAX} bytes"));
    }
    // The parser would skip these silently, and what people see would not be what is contacted.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("the URL has a space or a control character in it".to_owned());
    }
    let mut url =
        Url::parse(text).map_err(|error| format!("`{}` is not a URL: {error}", text.escape_debug()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme `{}` is not http or https", url.scheme().escape_debug()));
    }
    if !url.username().is_empty() || url.password().is_some() || authority_has_at(text) {
        return Err("a URL may not contain a user name or password".to_owned());
    }
    let host = host_of(&url);
    if host.is_empty() || host.split('.').any(str::is_empty) {
        return Err("the URL has no host, or an empty part in its host".to_owned());
    }
    if url.port() == Some(0) {
        return Err("port 0 can't be contacted".to_owned());
    }
    if matches!(url.host(), Some(Host::Domain(_))) {
        url.set_host(Some(&host)).map_err(|error| format!("invalid host `{host}`: {error}"))?;
    }
    url.set_fragment(None);
    Ok(url)
}

/// The host in the form that rules match: lower case, no trailing dot, addresses in their usual spelling.
pub fn host_of(url: &Url) -> String {
    match url.host() {
        Some(Host::Domain(name)) => name.strip_suffix('.').unwrap_or(name).to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => String::new(),
    }
}

/// The parser drops an empty user name (`http://@host`); such a URL misleads its reader, so it is refused as well.
fn authority_has_at(text: &str) -> bool {
    let after_scheme = text.split_once(':').map_or("", |(_, rest)| rest).trim_start_matches(['/', '\\']);
    after_scheme.split(['/', '\\', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn adv_048_every_spelling_of_a_host_is_one() {
        let cases = [
            ("http://0x7f000001/", "127.0.0.1"),
            ("http://127.1/", "127.0.0.1"),
            ("http://2130706433/", "127.0.0.1"),
            ("http://0177.0.0.1/", "127.0.0.1"),
            ("http://127.0.0.1./", "127.0.0.1"),
            ("http://①②⑦.⓪.⓪.①/", "127.0.0.1"),
            ("http://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1"),
            ("http://[0:0::1]/", "::1"),
            ("http://LOCALHOST./", "localhost"),
            ("http://ｌocalhost/", "localhost"),
            ("http://exаmple.com/", "xn--exmple-4nf.com"),
            ("http://example.com%2eevil.test/", "example.com.evil.test"),
            ("http:\\\\example.com\\x", "example.com"),
            ("http://example.com:80/", "example.com"),
        ];
        for (text, host) in cases {
            let url = parse(text).unwrap();
            assert_eq!(host_of(&url), host, "for {text}");
            assert_eq!(parse(url.as_str()).unwrap(), url, "not a fixed point: {text}");
        }
    }

    #[test]
    fn adv_048_tricks_are_refused() {
        let cases = [
            "http://good.test@evil.test/",
            "http://user:pass@evil.test/",
            "http://@evil.test/",
            "http://good.test\t@evil.test/",
            "http:\\\\good.test@evil.test/",
            "http:good.test@evil.test",
            "file:///etc/passwd",
            "gopher://evil.test/",
            "javascript:alert(1)",
            "data:text/plain,x",
            "HTTP://",
            "http://./",
            "http://../",
            "http://a..b/",
            "http://evil.test../",
            "http://evil.test:0/",
            "http://evil.test:99999/",
            "http://evil.test/\r\nX: y",
            " http://evil.test/",
            "//evil.test/",
            "evil.test",
            "",
        ];
        for text in cases {
            assert!(parse(text).is_err(), "accepted {text:?}: {:?}", parse(text));
        }
        assert!(parse(&format!("http://a.test/{}", "x".repeat(9000))).is_err());
    }

    #[test]
    fn dots_in_the_path_are_gone_before_policy_looks() {
        assert_eq!(parse("http://a.test/x/../admin").unwrap().path(), "/admin");
        assert_eq!(parse("http://a.test/x/%2e%2E/admin#part").unwrap().as_str(), "http://a.test/admin");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_accepted_is_accepted_in_its_own_spelling(text in "\\PC*", host in "[a-z0-9.:@\\[\\]%-]{0,20}") {
            for text in [text, format!("http://{host}/")] {
                if let Ok(url) = parse(&text) {
                    prop_assert_eq!(parse(url.as_str()), Ok(url.clone()));
                    prop_assert!(!host_of(&url).is_empty() && url.username().is_empty());
                }
            }
        }
    }
}
