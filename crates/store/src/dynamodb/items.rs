//! Records as items, and the requests about them. `p` is the partition, `k` the key, `v` the value, `n` the version, `u` the time until which it
//! is kept, and `g` puts records with an end into the index by age.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::client::required;
use crate::state::{Partition, Record, Version, Write};
use crate::{FOR_GOOD, StateError};

/// The index of records by age.
pub(super) const BY_AGE: &str = "by_age";
/// Begins the keys of records, so that the head, whose key is shorter, is before all of them.
const RECORD: u8 = 1;
const HEAD: &[u8] = &[0];

/// Where the items are.
#[derive(Debug)]
pub(super) struct Items {
    pub(super) table: String,
    pub(super) namespace: String,
}

impl Items {
    fn name(&self, partition: &Partition) -> Value {
        bytes(format!("{}/{}", self.namespace, partition.as_str()).as_bytes())
    }

    fn key(&self, partition: &Partition, key: Option<&str>) -> Value {
        json!({"p": self.name(partition), "k": key.map_or_else(|| bytes(HEAD), record_key)})
    }

    /// A read of a record, or of the head.
    pub(super) fn get(&self, partition: &Partition, key: Option<&str>) -> Value {
        json!({"TableName": self.table, "Key": self.key(partition, key)})
    }

    pub(super) fn batch_get(&self, partition: &Partition, keys: &[String]) -> Value {
        let keys: Vec<Value> = keys.iter().map(|key| self.key(partition, Some(key))).collect();
        json!({"RequestItems": {&self.table: {"Keys": keys, "ConsistentRead": true}}})
    }

    /// The items of a batch that were found. A table of which none was found may be left out.
    pub(super) fn batch_found<'a>(&self, answer: &'a Value) -> Result<&'a [Value], StateError> {
        let tables = required(answer, "/Responses")?.as_object().ok_or_else(damaged)?;
        tables
            .get(&self.table)
            .map_or(Ok(&[]), |items| items.as_array().map(Vec::as_slice).ok_or_else(damaged))
    }

    pub(super) fn query(&self, partition: &Partition, prefix: &str) -> Value {
        json!({
            "TableName": self.table,
            "ConsistentRead": true,
            "KeyConditionExpression": "p = :p AND begins_with(k, :k)",
            "ExpressionAttributeValues": {":p": self.name(partition), ":k": record_key(prefix)},
        })
    }

    /// All writes and the next head, on the condition that the head is the one that was read.
    pub(super) fn transaction<'w>(
        &self,
        partition: &Partition,
        head: u64,
        writes: impl Iterator<Item = &'w Write>,
    ) -> Result<Value, StateError> {
        let next = head.saturating_add(1);
        let mut update = json!({
            "TableName": self.table,
            "Key": self.key(partition, None),
            "UpdateExpression": "SET n = :next",
            "ConditionExpression": "attribute_not_exists(n)",
            "ExpressionAttributeValues": {":next": number(next)},
        });
        if head > 0 {
            super::add(&mut update, "ConditionExpression", json!("n = :head"));
            super::add(
                &mut update,
                "ExpressionAttributeValues",
                json!({":next": number(next), ":head": number(head)}),
            );
        }
        let mut all = vec![json!({"Update": update})];
        for write in writes {
            all.push(match write {
                Write::Put { key, value, keep_until_ms } => {
                    let mut item = self.key(partition, Some(key));
                    super::add(&mut item, "v", bytes(value));
                    super::add(&mut item, "n", number(next));
                    super::add(&mut item, "u", number(keep_until_ms));
                    if *keep_until_ms != FOR_GOOD {
                        super::add(&mut item, "g", json!({"S": self.namespace}));
                    }
                    json!({"Put": {"TableName": self.table, "Item": item}})
                }
                Write::Remove { key } => {
                    json!({"Delete": {"TableName": self.table, "Key": self.key(partition, Some(key))}})
                }
            });
        }
        let mut token = [0_u8; 16];
        getrandom::fill(&mut token).map_err(|error| StateError::Unusable(error.to_string()))?;
        let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
        // With a token, a request that is sent twice happens once.
        Ok(json!({"TransactItems": all, "ClientRequestToken": token}))
    }

    pub(super) fn due(&self, now_ms: i64, max: usize) -> Value {
        json!({
            "TableName": self.table,
            "IndexName": BY_AGE,
            "KeyConditionExpression": "g = :g AND u < :now",
            "ExpressionAttributeValues": {":g": {"S": self.namespace}, ":now": number(now_ms)},
            "Limit": max.clamp(1, 1000),
        })
    }

    pub(super) fn due_record(&self, item: &Value) -> Result<(Partition, String, Version), StateError> {
        let name = text(item, "p")?;
        let name = name.strip_prefix(&format!("{}/", self.namespace)).ok_or_else(damaged)?;
        Ok((Partition::new(name)?, key_of(item)?, Version(numeric(item, "n")?)))
    }

    /// The table and its index.
    pub(super) fn table(&self) -> Value {
        let attribute = |name: &str, kind: &str| json!({"AttributeName": name, "AttributeType": kind});
        let key = |name: &str, kind: &str| json!({"AttributeName": name, "KeyType": kind});
        json!({
            "TableName": self.table,
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [attribute("p", "B"), attribute("k", "B"), attribute("g", "S"), attribute("u", "N")],
            "KeySchema": [key("p", "HASH"), key("k", "RANGE")],
            "GlobalSecondaryIndexes": [{
                "IndexName": BY_AGE,
                "KeySchema": [key("g", "HASH"), key("u", "RANGE")],
                "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["n"]},
            }],
        })
    }
}

/// The items that a query found.
pub(super) fn found(answer: &Value) -> Result<&[Value], StateError> {
    required(answer, "/Items")?.as_array().map(Vec::as_slice).ok_or_else(damaged)
}

/// Zero, if there is no head.
pub(super) fn head_version(item: Option<&Value>) -> Result<u64, StateError> {
    match item {
        None => Ok(0),
        Some(item) if item.as_object().is_some_and(Map::is_empty) => Ok(0),
        Some(item) => numeric(item, "n"),
    }
}

pub(super) fn record(item: &Value) -> Result<Record, StateError> {
    Ok(Record {
        key: key_of(item)?,
        value: binary(item, "v")?,
        version: Version(numeric(item, "n")?),
        keep_until_ms: numeric(item, "u")?,
    })
}

fn record_key(key: &str) -> Value {
    bytes(&[&[RECORD], key.as_bytes()].concat())
}

fn key_of(item: &Value) -> Result<String, StateError> {
    let bytes = binary(item, "k")?;
    let key = bytes.strip_prefix(&[RECORD]).ok_or_else(damaged)?;
    String::from_utf8(key.to_vec()).map_err(|_| damaged())
}

fn bytes(bytes: &[u8]) -> Value {
    json!({"B": BASE64.encode(bytes)})
}

fn number(number: impl std::fmt::Display) -> Value {
    json!({"N": number.to_string()})
}

fn numeric<T: std::str::FromStr>(item: &Value, name: &str) -> Result<T, StateError> {
    let text = item.get(name).and_then(|field| field.get("N")).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).ok_or_else(damaged)
}

fn binary(item: &Value, name: &str) -> Result<Vec<u8>, StateError> {
    let text = item.get(name).and_then(|field| field.get("B")).and_then(Value::as_str);
    text.and_then(|text| BASE64.decode(text).ok()).ok_or_else(damaged)
}

fn text(item: &Value, name: &str) -> Result<String, StateError> {
    String::from_utf8(binary(item, name)?).map_err(|_| damaged())
}

fn damaged() -> StateError {
    StateError::Corrupt("an item in DynamoDB is not a record".to_owned())
}
