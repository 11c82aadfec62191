//! Signed decision receipts in the format that other systems exchange: one JSON object per decision, chained by hash, Ed25519 over RFC 8785
//! JSON.
//!
//! Receipts prove less than the ledger: a chain doesn't show that decisions were cut off its end. They exist for consumers of that format;
//! other consumers use the ledger's own proofs. Two shapes are in use. This module reads both and writes the flat one.

use serde_json::{Map, Value, json};

use crate::canonical::CanonicalJson;
use crate::digest::{Digest, hex_string};
use crate::key::{LedgerKey, PublicKey};

/// Maximum length of a receipt.
const RECEIPT_BYTES_MAX: usize = 1 << 20;
const VERSION: &str = "1.0";

/// Why a receipt, or a chain of receipts, is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// It matches neither shape.
    #[error("not a decision receipt: {0}")]
    Malformed(&'static str),
    /// The signature doesn't cover the content, or is not by the expected key.
    #[error("the receipt's signature is invalid")]
    BadSignature,
    /// It doesn't follow the previous receipt.
    #[error("receipt {0} doesn't follow the one before it")]
    BrokenChain(usize),
}

/// A decision to sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsignedDecision<'a> {
    /// Its position in the chain, from 1.
    pub sequence: u64,
    /// The tool.
    pub tool_name: &'a str,
    /// The tool's arguments; only their digest is written.
    pub tool_input: &'a Value,
    /// Allow or deny. An unanswered question counts as a denial.
    pub allowed: bool,
    /// The policy's name.
    pub policy_id: &'a str,
    /// The policy's digest.
    pub policy_digest: Digest,
    /// The time, in RFC 3339.
    pub timestamp: &'a str,
    /// The signer's name.
    pub issuer_id: &'a str,
}

/// A decision receipt, in either format.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionReceipt(Value);

impl DecisionReceipt {
    /// Signs a decision as the successor of `parent`.
    pub fn sign(
        decided: &UnsignedDecision<'_>,
        parent: Option<&Self>,
        key: &LedgerKey,
    ) -> Result<Self, ReceiptError> {
        let malformed = |_| ReceiptError::Malformed("it can't be written canonically");
        let input = CanonicalJson::encode(decided.tool_input).map_err(malformed)?;
        let mut body = json!({
            "receipt_version": VERSION,
            "issuer_id": decided.issuer_id,
            "tool_name": decided.tool_name,
            "input_hash": format!("sha256:{}", input.digest()),
            "decision": if decided.allowed { "allow" } else { "deny" },
            "policy_id": decided.policy_id,
            "policy_digest": format!("sha256:{}", decided.policy_digest),
            "timestamp": decided.timestamp,
            "sequence": decided.sequence,
            "parent_receipt_hash": parent.map(Self::hash).transpose()?,
        });
        let id = CanonicalJson::encode(&body).map_err(malformed)?.digest().to_string();
        let fields = body.as_object_mut().ok_or(ReceiptError::Malformed("no object"))?;
        fields.insert("receipt_id".to_owned(), format!("rcpt-{}", id.get(..16).unwrap_or(&id)).into());
        let signature = key.sign(signed_part(fields)?.as_str().as_bytes());
        fields.insert("public_key".to_owned(), hex_string(key.public().as_bytes()).into());
        fields.insert("signature".to_owned(), hex_string(&signature).into());
        Ok(Self(body))
    }

    /// Parses a receipt and checks its format.
    pub fn parse(text: &str) -> Result<Self, ReceiptError> {
        if text.len() > RECEIPT_BYTES_MAX {
            return Err(ReceiptError::Malformed("it is too long"));
        }
        let value =
            crate::canonical::parse(text.as_bytes()).map_err(|_| ReceiptError::Malformed("no JSON"))?;
        let receipt = Self(value);
        receipt.check_shape()?;
        Ok(receipt)
    }

    /// The receipt as JSON.
    pub fn as_json(&self) -> &Value {
        &self.0
    }

    /// Verifies the signature with the key that it names, which must be `expected` if given.
    pub fn verify(&self, expected: Option<&PublicKey>) -> Result<(), ReceiptError> {
        self.check_shape()?;
        let fields = self.fields()?;
        let named = fields.get("public_key").or(fields.get("pubkey")).and_then(Value::as_str);
        let key = named.and_then(unhex).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let key = key.and_then(|bytes| PublicKey::from_bytes(&bytes)).ok_or(ReceiptError::BadSignature)?;
        if expected.is_some_and(|expected| *expected != key) {
            return Err(ReceiptError::BadSignature);
        }
        let signature = fields.get("signature").and_then(Value::as_str).and_then(unhex);
        let message = match fields.get("payload") {
            Some(payload) => CanonicalJson::encode(payload).map_err(|_| ReceiptError::BadSignature)?,
            None => signed_part(fields)?,
        };
        let holds = signature.is_some_and(|signature| key.verifies(message.as_str().as_bytes(), &signature));
        if holds { Ok(()) } else { Err(ReceiptError::BadSignature) }
    }

    /// Verifies a chain: sequence numbers, parent hashes and signatures.
    pub fn verify_chain(receipts: &[Self], expected: Option<&PublicKey>) -> Result<(), ReceiptError> {
        let mut parent: Option<String> = None;
        for (at, receipt) in receipts.iter().enumerate() {
            receipt.verify(expected)?;
            let fields = receipt.fields()?;
            let payload = fields.get("payload").and_then(Value::as_object);
            let said = payload.unwrap_or(fields);
            let named = said.get("parent_receipt_hash").or(said.get("prev_hash")).and_then(Value::as_str);
            let first = if payload.is_some() { 0 } else { 1 };
            let number = said.get("sequence").and_then(Value::as_u64);
            if number != u64::try_from(at + first).ok()
                || named.filter(|text| !text.is_empty()) != parent.as_deref()
            {
                return Err(ReceiptError::BrokenChain(at));
            }
            parent = Some(receipt.hash()?);
        }
        Ok(())
    }

    /// The hash that the next receipt contains as its parent hash.
    pub fn hash(&self) -> Result<String, ReceiptError> {
        let fields = self.fields()?;
        let message = match fields.get("payload") {
            Some(payload) => {
                CanonicalJson::encode(payload).map_err(|_| ReceiptError::Malformed("no payload"))?
            }
            None => signed_part(fields)?,
        };
        Ok(format!("sha256:{}", message.digest()))
    }

    fn fields(&self) -> Result<&Map<String, Value>, ReceiptError> {
        self.0.as_object().ok_or(ReceiptError::Malformed("no object"))
    }

    fn check_shape(&self) -> Result<(), ReceiptError> {
        let fields = self.fields()?;
        let text = |fields: &Map<String, Value>, key: &str| {
            fields.get(key).and_then(Value::as_str).map(str::to_owned)
        };
        let decision = |fields: &Map<String, Value>| {
            matches!(text(fields, "decision").as_deref(), Some("allow" | "deny"))
        };
        let long = |key: &str| text(fields, key).is_some_and(|text| text.len() >= 32);
        if let Some(payload) = fields.get("payload").and_then(Value::as_object) {
            let typed = text(payload, "type").is_some_and(|text| text.starts_with("scopeblind.receipt.v"));
            let action = payload.get("action").is_some_and(|action| {
                ["kind", "target"].iter().all(|key| action.get(key).is_some_and(Value::is_string))
            });
            let whole = typed && action && decision(payload) && text(payload, "timestamp").is_some();
            return if whole && long("signature") && long("pubkey") {
                Ok(())
            } else {
                Err(ReceiptError::Malformed("an envelope lacks something"))
            };
        }
        let id =
            text(fields, "receipt_id").is_some_and(|id| id.starts_with("rcpt-") || id.starts_with("rec_"));
        let texts = ["tool_name", "policy_id", "timestamp"].iter().all(|key| text(fields, key).is_some());
        let version = text(fields, "receipt_version").as_deref() == Some(VERSION);
        if id && texts && version && decision(fields) && long("public_key") && long("signature") {
            Ok(())
        } else {
            Err(ReceiptError::Malformed("a flat receipt lacks something"))
        }
    }
}

/// All fields except the signature and its key.
fn signed_part(fields: &Map<String, Value>) -> Result<CanonicalJson, ReceiptError> {
    let signed: Map<String, Value> = fields
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "signature" | "public_key"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    CanonicalJson::encode(&signed).map_err(|_| ReceiptError::Malformed("it can't be written canonically"))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if !text.len().is_multiple_of(2) || text.len() > 1024 {
        return None;
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            [..] => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
