//! Signatures, by the examples that AWS publishes.

use zeroize::Zeroizing;

use super::sign::*;

#[test]
fn a_signature_is_what_the_published_examples_say() {
    let credentials = Credentials {
        id: "AKIDEXAMPLE".to_owned(),
        secret: Zeroizing::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
        session: None,
    };
    let headers = [("host", "example.amazonaws.com"), ("x-amz-date", "20150830T123600Z")];
    for (method, expected) in [
        ("GET", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("POST", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ] {
        let request = Request { method, headers: &headers, body: b"" };
        let signed = authorization(&credentials, ("us-east-1", "service"), "20150830T123600Z", &request);
        let expected = format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, Signature={expected}"
        );
        assert_eq!(signed, expected, "{method}");
    }
    assert_eq!(format!("{credentials:?}"), "Credentials");
}

#[test]
fn a_time_is_a_date() {
    for (seconds, expected) in [
        (0, "19700101T000000Z"),
        (951_782_399, "20000228T235959Z"),
        (951_782_400, "20000229T000000Z"),
        (1_440_938_160, "20150830T123600Z"),
        (1_709_251_199, "20240229T235959Z"),
        (4_107_542_400, "21000301T000000Z"),
    ] {
        assert_eq!(timestamp(seconds), expected);
    }
}
