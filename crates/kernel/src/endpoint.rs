//! URLs as policy and the network must both understand them: one parse, one spelling.

use url::{Host, Url};

/// Parses a URL that may be contacted, or says why it may not be.
///
/// The parser folds odd spellings of addresses (`0x7f000001`, `127.1`, `127.0.0.1.`) and international names into one form, so a
/// rule sees the host that will be contacted.
pub fn parse(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("`{}` is not a URL: {error}", text.escape_debug()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("the scheme `{}` is not http or https", url.scheme().escape_debug()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL with a user name or password in it is refused".to_owned());
    }
    if url.host().is_none() {
        return Err("the URL has no host".to_owned());
    }
    Ok(url)
}

/// The host in the form that rules are compared with: lower case, no trailing dot, addresses in their usual spelling.
pub fn host_of(url: &Url) -> String {
    match url.host() {
        Some(Host::Domain(name)) => name.trim_end_matches('.').to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => String::new(),
    }
}
