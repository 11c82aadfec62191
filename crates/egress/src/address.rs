//! Decides which addresses may be reached: only public ones, in any spelling or tunnel.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Address, prefix length, description.
type AddressBlock<A> = (A, u32, &'static str);

/// IPv4 addresses that are not public (IANA's special-purpose registry), and a cloud metadata address that looks public.
const V4: &[AddressBlock<Ipv4Addr>] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this network"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, used by cloud metadata services"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignments"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarking"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "cloud metadata"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved or broadcast"),
];

/// IPv6 addresses inside the global block that are not public.
const V6: &[AddressBlock<Ipv6Addr>] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a tunnel or a protocol assignment"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4 tunnel"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
];
/// Contains all public IPv6 addresses.
const GLOBAL: AddressBlock<Ipv6Addr> = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, "global");
/// An IPv4 address behind a translator, in the last 32 bits.
const NAT64: AddressBlock<Ipv6Addr> = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "translated");

/// Why an address may not be reached, or `None` if it may.
pub(crate) fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => refusal_v6(address),
    }
}

/// Whether this machine itself has the address. Even a public one may belong to a local service that listens on all addresses.
///
/// A socket can only bind to a local address. If the system allows binding to any address, the address that it would send from decides.
#[expect(
    clippy::disallowed_methods,
    reason = "it sends nothing: only the system knows which addresses are its own"
)]
pub(crate) fn is_ours(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => within(v6).map_or(address, IpAddr::V4),
    };
    match UdpSocket::bind((address, 0)) {
        Ok(_) if UdpSocket::bind((nobodys(address), 0)).is_err() => true,
        Ok(_) => is_sender(address, sends_from(address)),
        Err(error) => {
            !matches!(
                error.kind(),
                // No interface has the address, or the address family is unsupported and unreachable.
                ErrorKind::AddrNotAvailable | ErrorKind::Unsupported
            ) && !is_unknown_family(&error)
        }
    }
}

/// A documentation address of the same family, which no machine has. Each family has its own setting for binding.
fn nobodys(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
        IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Undecidable addresses count as local, so that they aren't reached.
fn is_sender(address: IpAddr, from: std::io::Result<IpAddr>) -> bool {
    match from {
        Ok(from) => from == address,
        Err(_) => true,
    }
}

fn is_unknown_family(error: &std::io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.raw_os_error() == Some(EAFNOSUPPORT)
}

/// The source address of a datagram to this address. Sends nothing.
#[expect(clippy::disallowed_methods, reason = "it sends nothing: only the system knows the route")]
fn sends_from(address: IpAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((address, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// The IPv4 address that an IPv6 address embeds.
fn within(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if is_in(address, NAT64) {
        let [.., a, b, c, d] = address.octets();
        return Some(Ipv4Addr::new(a, b, c, d));
    }
    address.to_ipv4_mapped()
}

fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4.iter()
        .find(|(network, bits, _)| address.to_bits() >> (32 - bits) == network.to_bits() >> (32 - bits))
        .map(|(_, _, what)| *what)
}

fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    if let Some(v4) = within(address) {
        return refusal_v4(v4);
    }
    if !is_in(address, GLOBAL) {
        return Some("not a global address");
    }
    V6.iter().find(|block| is_in(address, **block)).map(|(_, _, what)| *what)
}

fn is_in(address: Ipv6Addr, (network, bits, _): AddressBlock<Ipv6Addr>) -> bool {
    address.to_bits() >> (128 - bits) == network.to_bits() >> (128 - bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn adv_048_only_public_addresses_may_be_reached() {
        let refused = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "168.63.129.16",
            "198.19.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:10.1.2.3",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::8.8.8.8",
            "2002:7f00:1::",
            "2002:808:808::1",
            "2001:0:1234::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
        ];
        for text in refused {
            assert!(refusal(text.parse().unwrap()).is_some(), "{text} may be reached");
        }
        let fine = [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "9.255.255.255",
            "11.0.0.0",
            "169.253.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "168.63.129.17",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ];
        for text in fine {
            assert_eq!(refusal(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn l1_recognises_addresses_of_this_machine() {
        for ours in ["127.0.0.1", "127.1.2.3", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
            assert!(is_ours(ours.parse().unwrap()), "{ours}");
        }
        for others in ["192.0.2.7", "198.51.100.1", "203.0.113.9", "2001:db8::1", "::ffff:192.0.2.7"] {
            assert!(!is_ours(others.parse().unwrap()), "{others}");
        }
        assert_eq!(sends_from("127.0.0.1".parse().unwrap()).unwrap(), "127.0.0.1".parse::<IpAddr>().unwrap());
        let (one, other) = ("192.0.2.7".parse().unwrap(), "192.0.2.8".parse().unwrap());
        assert!(is_sender(one, Ok(one)) && !is_sender(one, Ok(other)));
        assert!(is_sender(one, Err(ErrorKind::OutOfMemory.into())), "an undecidable address counts as local");
        assert!(nobodys(one).is_ipv4() && nobodys("2001:db8::7".parse().unwrap()).is_ipv6());
        // The address that this machine sends from is local, public or not.
        if let Ok(from) = sends_from("192.0.2.7".parse().unwrap()) {
            assert!(is_ours(from), "{from}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn rejects_every_spelling_of_addresses_that_std_calls_private(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            let odd = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_broadcast()
                || v4.is_documentation() || v4.is_multicast() || v4.is_unspecified();
            prop_assert!(!odd || refusal(v4.into()).is_some());
            prop_assert_eq!(refusal(v4.to_ipv6_mapped().into()), refusal(v4.into()));
        }
    }
}
