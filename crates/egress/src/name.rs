//! Decides which names may be looked up. A lookup sends the name to the domain's name server, so a name can leak data.
//!
//! Policy decides which hosts may be reached. This is the second line of defence, for rules that allow every subdomain. It narrows the
//! channel but can't close it.

use std::collections::BTreeMap;

/// Maximum length of a host name.
const NAME_BYTES_MAX: usize = 128;
const LABELS_MAX: usize = 10;
/// Maximum length of a label, according to DNS.
const LABEL_BYTES_MAX: usize = 63;
/// Longer labels are checked for randomness.
const LABEL_BYTES_PLAIN: usize = 30;
/// Words and numbers have less entropy than this; random characters have more.
const BITS_PER_BYTE_MAX: f64 = 4.4;
/// A 16-byte digest is a common label; a longer one isn't.
const HEX_BYTES_MAX: usize = 32;

/// Why a name may not be looked up, or `None` if it may.
pub(crate) fn refusal(name: &str) -> Option<&'static str> {
    if name.len() > NAME_BYTES_MAX || name.split('.').count() > LABELS_MAX {
        return Some("it is longer than host names are");
    }
    name.split('.').find_map(label_refusal)
}

fn label_refusal(label: &str) -> Option<&'static str> {
    if label.len() > LABEL_BYTES_MAX {
        return Some("a label of it is longer than usual");
    }
    let is_digest = label.len() <= HEX_BYTES_MAX && label.bytes().all(|byte| byte.is_ascii_hexdigit());
    if label.len() < LABEL_BYTES_PLAIN || is_digest {
        return None;
    }
    // Labels often join several words with hyphens.
    if !label.contains('-') || bits_per_byte(label) > BITS_PER_BYTE_MAX {
        return Some("a label of it looks random, as if it encoded data");
    }
    None
}

/// Shannon entropy of the bytes.
fn bits_per_byte(label: &str) -> f64 {
    let mut counts: BTreeMap<u8, u32> = BTreeMap::new();
    for byte in label.bytes() {
        let count = counts.entry(byte).or_default();
        *count = count.saturating_add(1);
    }
    let all = label.len() as f64;
    counts
        .values()
        .map(|count| {
            let share = f64::from(*count) / all;
            -share * share.log2()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adv_047_names_that_encode_data_are_not_looked_up() {
        let long = format!("{}.evil.test", "z".repeat(30));
        let many = format!("{}evil.test", "a.".repeat(10));
        let wide = format!("{}evil.test", "abcdefghijklmnopqrstuvwxyz.".repeat(5));
        let refused = [
            long.as_str(),
            &many,
            &wide,
            "onswg4tfoqqgs4zanb2w45dfoizcazdpnzsq.evil.test",
            "mzxw6ytboi2dqnjqgq3tsobvgy4tkmzxgmyq.a.evil.test",
            "68756e746572322d68756e746572322d687.evil.test",
        ];
        for name in refused {
            assert!(refusal(name).is_some(), "{name}");
        }
        let fine = [
            "example.com",
            "a.b.c.d.example.com",
            "xn--exmple-4nf.com",
            "my-application-load-balancer-1839204718.us-east-1.elb.amazonaws.com",
            "0123456789abcdef0123456789abcdef.storage.example.com",
            "ec2-203-0-113-25.compute-1.amazonaws.com",
            "d111111abcdef8.cloudfront.net",
            "this-is-a-long-branch-name-preview.example.com",
            "example-production-logs-archive-eu-central-1.s3.amazonaws.com",
            "",
        ];
        for name in fine {
            assert_eq!(refusal(name), None, "{name}");
        }
    }
}
