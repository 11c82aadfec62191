//! Parses TLS ClientHello messages strictly to find the server name.
//!
//! A TLS library could parse them too, but it doesn't report whether something hides a second name, and it is lenient where the broker must
//! not be: anything that two parsers could read differently is an error.

/// Maximum length of a ClientHello.
pub(crate) const HELLO_BYTES_MAX: usize = 16 << 10;

const RECORD_HANDSHAKE: u8 = 22;
const MESSAGE_CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
const EXTENSION_ENCRYPTED_HELLO: u16 = 0xfe0d;
const NAME_HOST: u8 = 0;

/// The result of parsing the first bytes of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// Incomplete.
    More,
    /// A complete ClientHello, with its server name if present.
    Hello(Option<String>),
    /// An invalid or unacceptable ClientHello.
    Refused(&'static str),
}

/// Parses the first bytes of a connection.
pub(crate) fn greeting(bytes: &[u8]) -> Greeting {
    match message(bytes) {
        Ok(Some(hello)) => match name(&hello) {
            Ok(name) => Greeting::Hello(name),
            Err(why) => Greeting::Refused(why),
        },
        Ok(None) if bytes.len() >= HELLO_BYTES_MAX => Greeting::Refused("its greeting is too long"),
        Ok(None) => Greeting::More,
        Err(why) => Greeting::Refused(why),
    }
}

const NOT_TLS: &str = "it doesn't speak TLS";
const MALFORMED: &str = "its greeting is malformed";

/// The body of the first handshake message, joined from its records; `None` while incomplete.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut whole = Vec::new();
    loop {
        match bytes {
            [] => return Ok(None),
            [kind, ..] if *kind != RECORD_HANDSHAKE => return Err(NOT_TLS),
            [_, major, ..] if *major != 3 => return Err(NOT_TLS),
            [_, _, _, high, low, rest @ ..] => {
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                if length == 0 || length > HELLO_BYTES_MAX {
                    return Err(MALFORMED);
                }
                let (fragment, next) = rest.split_at(length.min(rest.len()));
                whole.extend_from_slice(fragment);
                if let Some(done) = body(&whole)? {
                    return Ok(Some(done.to_vec()));
                }
                if fragment.len() < length {
                    return Ok(None);
                }
                bytes = next;
            }
            _too_few => return Ok(None),
        }
    }
}

fn body(message: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    match message {
        [kind, ..] if *kind != MESSAGE_CLIENT_HELLO => Err(NOT_TLS),
        [_, high, middle, low, rest @ ..] => {
            let length = usize::try_from(u32::from_be_bytes([0, *high, *middle, *low])).unwrap_or(usize::MAX);
            if length > HELLO_BYTES_MAX {
                return Err("its greeting is too long");
            }
            Ok(rest.get(..length))
        }
        _too_few => Ok(None),
    }
}

/// The server name in a ClientHello. Every length must match exactly.
fn name(hello: &[u8]) -> Result<Option<String>, &'static str> {
    let mut rest = HelloReader(hello);
    rest.take(2 + 32)?;
    rest.short_vector()?;
    rest.long_vector()?;
    rest.short_vector()?;
    if rest.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = HelloReader(rest.long_vector()?);
    rest.end()?;
    let (mut name, mut seen) = (None, Vec::new());
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.long_vector()?;
        if seen.contains(&kind) {
            return Err(MALFORMED);
        }
        seen.push(kind);
        match kind {
            EXTENSION_SERVER_NAME => name = Some(server_name(content)?),
            EXTENSION_ENCRYPTED_HELLO => return Err("its greeting hides a second name (encrypted hello)"),
            _other => {}
        }
    }
    Ok(name)
}

fn server_name(content: &[u8]) -> Result<String, &'static str> {
    let mut rest = HelloReader(content);
    let mut list = HelloReader(rest.long_vector()?);
    rest.end()?;
    if list.take(1)? != [NAME_HOST] {
        return Err(MALFORMED);
    }
    let name = list.long_vector()?;
    // Exactly one name: with two, another parser could pick the other.
    list.end()?;
    let name = std::str::from_utf8(name).map_err(|_| MALFORMED)?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(MALFORMED);
    }
    Ok(name.to_ascii_lowercase())
}

struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(MALFORMED)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u16, &'static str> {
        match self.take(2)? {
            [high, low] => Ok(u16::from_be_bytes([*high, *low])),
            _never => Err(MALFORMED),
        }
    }

    fn short_vector(&mut self) -> Result<&'a [u8], &'static str> {
        match self.take(1)? {
            [length] => self.take(usize::from(*length)),
            _never => Err(MALFORMED),
        }
    }

    fn long_vector(&mut self) -> Result<&'a [u8], &'static str> {
        let length = usize::from(self.number()?);
        self.take(length)
    }

    fn end(&self) -> Result<(), &'static str> {
        if self.0.is_empty() { Ok(()) } else { Err(MALFORMED) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// The first message of a real client.
    fn real(name: &str) -> Vec<u8> {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let mut client =
            ClientConnection::new(Arc::new(config), name.to_owned().try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn vector(bytes: &[u8]) -> Vec<u8> {
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
    }

    /// A ClientHello with these extensions.
    fn made(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut hello = vec![3, 3];
        hello.extend([7; 32]);
        hello.push(0);
        hello.extend(vector(&[0x13, 1]));
        hello.extend([1, 0]);
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &vector(content)].concat())
            .collect();
        hello.extend(vector(&extensions));
        let length = u32::try_from(hello.len()).unwrap().to_be_bytes();
        let message = [&[1, length[1], length[2], length[3]][..], &hello].concat();
        [&[22, 3, 1][..], &vector(&message)].concat()
    }

    fn named(names: &[&str]) -> Vec<u8> {
        let list: Vec<u8> =
            names.iter().flat_map(|name| [&[0][..], &vector(name.as_bytes())].concat()).collect();
        vector(&list)
    }

    #[test]
    fn adv_051_reads_the_server_name_of_a_client_hello() {
        assert_eq!(greeting(&real("Example.com")), Greeting::Hello(Some("example.com".to_owned())));
        assert_eq!(greeting(&real("127.0.0.1")), Greeting::Hello(None));
        let own = made(&[(0, named(&["a.test"])), (16, vec![])]);
        assert_eq!(greeting(&own), Greeting::Hello(Some("a.test".to_owned())));
        for end in 0..own.len() {
            assert_eq!(greeting(&own[..end]), Greeting::More, "{end} bytes");
        }
    }

    #[test]
    fn joins_a_fragmented_client_hello() {
        let own = made(&[(0, named(&["a.test"]))]);
        let pieces: Vec<u8> =
            own[5..].chunks(7).flat_map(|piece| [&[22, 3, 1][..], &vector(piece)].concat()).collect();
        assert_eq!(greeting(&pieces), Greeting::Hello(Some("a.test".to_owned())));
    }

    #[test]
    fn adv_051_rejects_ambiguous_client_hellos() {
        let cases: Vec<Vec<u8>> = vec![
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"SSH-2.0-x\r\n".to_vec(),
            vec![22, 2, 1, 0, 5],
            vec![22, 3, 1, 0, 0],
            vec![21, 3, 1, 0, 2, 1, 0],
            made(&[(0, named(&["a.test"])), (0, named(&["b.test"]))]),
            made(&[(0, named(&["a.test", "b.test"]))]),
            made(&[(0, named(&[""]))]),
            made(&[(0, named(&["a\0.test"]))]),
            made(&[(0, named(&[]))]),
            made(&[(0, [named(&["a.test"]), vec![0]].concat())]),
            made(&[(0, vec![0, 4, 1, 0, 1, b'a'])]),
            made(&[(0, named(&["a.test"])), (0xfe0d, vec![0])]),
            vec![22, 3, 1, 0, 4, 2, 0, 0, 1],
            vec![22, 3, 1, 0, 4, 1, 255, 255, 255],
        ];
        for bytes in cases {
            assert!(matches!(greeting(&bytes), Greeting::Refused(_)), "{bytes:?}: {:?}", greeting(&bytes));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_read_without_panic(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            greeting(&bytes);
            bytes.splice(0..0, [22, 3, 1, 1, 0, 1, 0, 0, 200]);
            greeting(&bytes);
            let mut own = made(&[(0, named(&["a.test"])), (10, vec![1, 2, 3])]);
            let at = at.index(own.len());
            own[at] = byte;
            greeting(&own);
        }
    }
}
