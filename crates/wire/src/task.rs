//! Names of tasks.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

const TASK_BYTES_MAX: usize = 64;

/// The name of a task: lower case letters, digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Cow<'_, str>", into = "String")]
pub struct TaskId(Arc<str>);

impl TaskId {
    /// The task of this name, if it can be one.
    pub fn new(name: &str) -> Option<Self> {
        let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_one = !name.is_empty() && name.len() <= TASK_BYTES_MAX && name.bytes().all(fine);
        is_one.then(|| Self(name.into()))
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<Cow<'_, str>> for TaskId {
    type Error = String;

    fn try_from(name: Cow<'_, str>) -> Result<Self, String> {
        Self::new(&name).ok_or_else(|| format!("`{}` is not the name of a task", name.escape_debug()))
    }
}

impl From<TaskId> for String {
    fn from(task: TaskId) -> Self {
        task.0.to_string()
    }
}

impl JsonSchema for TaskId {
    fn schema_name() -> Cow<'static, str> {
        "TaskId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "pattern": "^[a-z0-9-]{1,64}$", "description": "The name of a task: lower case letters, digits and `-`.",
        })
    }
}
