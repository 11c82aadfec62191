//! Signatures of requests to AWS (Signature Version 4).

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Who signs.
#[derive(Clone)]
pub(super) struct Credentials {
    pub(super) id: String,
    pub(super) secret: Zeroizing<String>,
    /// For credentials that were lent.
    pub(super) session: Option<Zeroizing<String>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials")
    }
}

/// A request as its signature sees it: the path is `/` and there is no query.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// In order of names, which are in lower case.
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a [u8],
}

/// The value of the header `authorization`. `time` is like `20150830T123600Z`.
pub(super) fn authorization(
    credentials: &Credentials,
    (region, service): (&str, &str),
    time: &str,
    request: &Request<'_>,
) -> String {
    let day = time.get(..8).unwrap_or_default();
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let headers: String =
        request.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical =
        format!("{}\n/\n\n{headers}\n{names}\n{}", request.method, hex(&Sha256::digest(request.body)));
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&Sha256::digest(canonical.as_bytes())));
    let first = Zeroizing::new(format!("AWS4{}", *credentials.secret).into_bytes());
    let key =
        [day, region, service, "aws4_request"].iter().fold(first, |key, part| mac(&key, part.as_bytes()));
    let signature = hex(&mac(&key, text.as_bytes()));
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
        credentials.id
    )
}

/// Seconds since 1970 as `20150830T123600Z`.
pub(super) fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days are counted from the first of March of the year 0, so that leap days are the last of their year.
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

fn mac(key: &[u8], text: &[u8]) -> Zeroizing<Vec<u8>> {
    // A key of any length is accepted.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Zeroizing::default() };
    mac.update(text);
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
