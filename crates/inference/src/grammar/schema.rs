//! Compiles a JSON Schema to the shapes that the grammar can enforce.

use serde_json::Value;

use crate::chat::spaced;

/// Maximum shapes of one answer, and maximum depth of a schema.
const SHAPES_MAX: usize = 4_096;
const DEPTH_MAX: usize = 32;
/// Indices of predefined shapes.
pub(crate) const ANY: usize = 0;
pub(super) const ANY_LIST: usize = 1;

/// The shape of a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SchemaShape {
    /// Any value.
    Any,
    /// A string of bounded length.
    Text {
        /// Minimum characters.
        least: u32,
        /// Maximum characters.
        most: u32,
    },
    /// A number.
    Number {
        /// Whether it is an integer.
        is_whole: bool,
    },
    /// True or false.
    Bool,
    /// Null.
    Null,
    /// One of these values, as JSON.
    OneOf(Vec<String>),
    /// One of these shapes.
    Either(Vec<usize>),
    /// An object with exactly these members.
    Object(Vec<Member>),
    /// Any object.
    AnyObject,
    /// A list.
    List {
        /// The shape of its items.
        of: usize,
        /// Minimum items.
        least: u32,
        /// Maximum items.
        most: u32,
    },
}

/// A member of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    /// Its name, as JSON.
    pub(crate) name: String,
    /// Its value.
    pub(crate) shape: usize,
    /// Whether it is required.
    pub(crate) is_required: bool,
}

/// All shapes of one answer.
#[derive(Debug)]
pub(crate) struct Shapes(Vec<SchemaShape>);

impl Default for Shapes {
    fn default() -> Self {
        Self(vec![SchemaShape::Any, SchemaShape::List { of: ANY, least: 0, most: u32::MAX }])
    }
}

impl Shapes {
    pub(super) fn get(&self, at: usize) -> &SchemaShape {
        self.0.get(at).unwrap_or(&SchemaShape::Any)
    }

    /// Adds a shape.
    pub(crate) fn add(&mut self, shape: SchemaShape) -> usize {
        if self.0.len() >= SHAPES_MAX {
            return ANY;
        }
        self.0.push(shape);
        self.0.len() - 1
    }

    /// Compiles a schema.
    pub(crate) fn compile(&mut self, schema: &Value) -> usize {
        SchemaReading { shapes: self, root: schema, seen: Vec::new() }.shape(schema, 0)
    }
}

struct SchemaReading<'a> {
    shapes: &'a mut Shapes,
    root: &'a Value,
    /// Referenced parts and their indices; a recursive part is compiled once.
    seen: Vec<(&'a str, usize)>,
}

impl<'a> SchemaReading<'a> {
    fn shape(&mut self, schema: &'a Value, depth: usize) -> usize {
        if depth > DEPTH_MAX {
            return ANY;
        }
        if let Some(refers) = schema.get("$ref").and_then(Value::as_str) {
            return self.referred(refers, depth);
        }
        if let Some(only) = schema.get("const") {
            return self.shapes.add(SchemaShape::OneOf(vec![spaced(only)]));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return self.shapes.add(SchemaShape::OneOf(values.iter().map(spaced).collect()));
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(schemas)) = schema.get(key) {
                return self.either(schemas, depth);
            }
        }
        if let Some(Value::Array(schemas)) = schema.get("allOf") {
            return if let [only] = schemas.as_slice() { self.shape(only, depth + 1) } else { ANY };
        }
        match schema.get("type") {
            Some(Value::String(kind)) => self.kind(kind, schema, depth),
            Some(Value::Array(kinds)) => {
                let kinds: Vec<usize> = kinds
                    .iter()
                    .filter_map(Value::as_str)
                    .map(|kind| self.kind(kind, schema, depth))
                    .collect();
                self.shapes.add(SchemaShape::Either(kinds))
            }
            _ if schema.get("properties").is_some() => self.kind("object", schema, depth),
            _ => ANY,
        }
    }

    fn either(&mut self, schemas: &'a [Value], depth: usize) -> usize {
        let shapes = schemas.iter().map(|schema| self.shape(schema, depth + 1)).collect();
        self.shapes.add(SchemaShape::Either(shapes))
    }

    fn referred(&mut self, refers: &'a str, depth: usize) -> usize {
        if let Some((_, at)) = self.seen.iter().find(|(name, _)| *name == refers) {
            return *at;
        }
        let Some(schema) = refers.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) else {
            return ANY;
        };
        // The index comes first, so that the part can refer to itself. A part that is only itself allows nothing.
        let at = self.shapes.add(SchemaShape::Either(Vec::new()));
        self.seen.push((refers, at));
        let shape = self.shape(schema, depth + 1);
        let is_itself = shape == at;
        if let Some(place) = self.shapes.0.get_mut(at).filter(|_| at != ANY) {
            *place = if is_itself { SchemaShape::Any } else { SchemaShape::Either(vec![shape]) };
        }
        at
    }

    fn kind(&mut self, kind: &str, schema: &'a Value, depth: usize) -> usize {
        let count = |key: &str| {
            schema.get(key).and_then(Value::as_u64).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
        };
        let shape = match kind {
            "string" => SchemaShape::Text {
                least: count("minLength").unwrap_or(0),
                most: count("maxLength").unwrap_or(u32::MAX),
            },
            "integer" => SchemaShape::Number { is_whole: true },
            "number" => SchemaShape::Number { is_whole: false },
            "boolean" => SchemaShape::Bool,
            "null" => SchemaShape::Null,
            "array" => {
                let of = schema.get("items").map_or(ANY, |items| self.shape(items, depth + 1));
                SchemaShape::List {
                    of,
                    least: count("minItems").unwrap_or(0),
                    most: count("maxItems").unwrap_or(u32::MAX),
                }
            }
            "object" => self.object(schema, depth),
            _ => return ANY,
        };
        self.shapes.add(shape)
    }

    fn object(&mut self, schema: &'a Value, depth: usize) -> SchemaShape {
        if schema.get("properties").and_then(Value::as_object).is_none() {
            let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
            return if closed { SchemaShape::Object(Vec::new()) } else { SchemaShape::AnyObject };
        }
        let members = members_of(schema).into_iter().map(|(name, own, is_required)| Member {
            name: Value::String(name.to_owned()).to_string(),
            shape: self.shape(own, depth + 1),
            is_required,
        });
        SchemaShape::Object(members.collect())
    }
}

/// The members of an object, and whether each is required: required ones in the schema's order, then the others by name. JSON objects are
/// sorted by name here, but a small model fails if it must write the content before the path.
pub(crate) fn members_of(schema: &Value) -> Vec<(&str, &Value, bool)> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let required = schema.get("required").and_then(Value::as_array);
    let mut members: Vec<(&str, &Value, bool)> = Vec::new();
    for name in required.into_iter().flatten().filter_map(Value::as_str) {
        if let Some(own) = properties.and_then(|all| all.get(name))
            && !members.iter().any(|(seen, ..)| *seen == name)
        {
            members.push((name, own, true));
        }
    }
    let demanded = members.len();
    for (name, own) in properties.into_iter().flatten() {
        if !members.iter().take(demanded).any(|(seen, ..)| seen == name) {
            members.push((name, own, false));
        }
    }
    members
}
