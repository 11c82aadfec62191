//! A JSON Schema as shapes: what of it the machine over bytes can hold to.

use serde_json::Value;

use crate::chat::spaced;

/// Shapes that one answer may have in all, and how deep a schema may go.
const SHAPES_MAX: usize = 4_096;
const DEPTH_MAX: usize = 32;
/// Places that are always there.
pub(crate) const ANY: usize = 0;
pub(super) const ANY_LIST: usize = 1;

/// What a value may look like.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// Like anything.
    Any,
    /// A string with so many characters.
    Text {
        /// At least.
        least: u32,
        /// At most.
        most: u32,
    },
    /// A number.
    Number {
        /// Without a fraction.
        is_whole: bool,
    },
    /// True or false.
    Bool,
    /// Null.
    Null,
    /// One of these, as JSON.
    OneOf(Vec<String>),
    /// One of these shapes.
    Either(Vec<usize>),
    /// An object with these members and no others.
    Object(Vec<Member>),
    /// An object with any.
    AnyObject,
    /// A list.
    List {
        /// Of these.
        of: usize,
        /// At least.
        least: u32,
        /// At most.
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
    /// Whether it has to be there.
    pub(crate) is_required: bool,
}

/// All shapes of one answer.
#[derive(Debug)]
pub(crate) struct Shapes(Vec<Shape>);

impl Default for Shapes {
    fn default() -> Self {
        Self(vec![Shape::Any, Shape::List { of: ANY, least: 0, most: u32::MAX }])
    }
}

impl Shapes {
    pub(super) fn get(&self, at: usize) -> &Shape {
        self.0.get(at).unwrap_or(&Shape::Any)
    }

    /// Adds a shape.
    pub(crate) fn add(&mut self, shape: Shape) -> usize {
        if self.0.len() >= SHAPES_MAX {
            return ANY;
        }
        self.0.push(shape);
        self.0.len() - 1
    }

    /// Adds what a schema says.
    pub(crate) fn of(&mut self, schema: &Value) -> usize {
        Reading { shapes: self, root: schema, seen: Vec::new() }.shape(schema, 0)
    }
}

struct Reading<'a> {
    shapes: &'a mut Shapes,
    root: &'a Value,
    /// Parts that are referred to, and their places: one that refers to itself is read once.
    seen: Vec<(&'a str, usize)>,
}

impl<'a> Reading<'a> {
    fn shape(&mut self, schema: &'a Value, depth: usize) -> usize {
        if depth > DEPTH_MAX {
            return ANY;
        }
        if let Some(refers) = schema.get("$ref").and_then(Value::as_str) {
            return self.referred(refers, depth);
        }
        if let Some(only) = schema.get("const") {
            return self.shapes.add(Shape::OneOf(vec![spaced(only)]));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return self.shapes.add(Shape::OneOf(values.iter().map(spaced).collect()));
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
                self.shapes.add(Shape::Either(kinds))
            }
            _ if schema.get("properties").is_some() => self.kind("object", schema, depth),
            _ => ANY,
        }
    }

    fn either(&mut self, schemas: &'a [Value], depth: usize) -> usize {
        let shapes = schemas.iter().map(|schema| self.shape(schema, depth + 1)).collect();
        self.shapes.add(Shape::Either(shapes))
    }

    fn referred(&mut self, refers: &'a str, depth: usize) -> usize {
        if let Some((_, at)) = self.seen.iter().find(|(name, _)| *name == refers) {
            return *at;
        }
        let Some(schema) = refers.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer)) else {
            return ANY;
        };
        // A place first, so that it can refer to itself. One that is nothing but itself allows nothing, and then nothing can be said.
        let at = self.shapes.add(Shape::Either(Vec::new()));
        self.seen.push((refers, at));
        let shape = self.shape(schema, depth + 1);
        let is_itself = shape == at;
        if let Some(place) = self.shapes.0.get_mut(at).filter(|_| at != ANY) {
            *place = if is_itself { Shape::Any } else { Shape::Either(vec![shape]) };
        }
        at
    }

    fn kind(&mut self, kind: &str, schema: &'a Value, depth: usize) -> usize {
        let count = |key: &str| {
            schema.get(key).and_then(Value::as_u64).map(|count| u32::try_from(count).unwrap_or(u32::MAX))
        };
        let shape = match kind {
            "string" => Shape::Text {
                least: count("minLength").unwrap_or(0),
                most: count("maxLength").unwrap_or(u32::MAX),
            },
            "integer" => Shape::Number { is_whole: true },
            "number" => Shape::Number { is_whole: false },
            "boolean" => Shape::Bool,
            "null" => Shape::Null,
            "array" => {
                let of = schema.get("items").map_or(ANY, |items| self.shape(items, depth + 1));
                Shape::List {
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

    fn object(&mut self, schema: &'a Value, depth: usize) -> Shape {
        if schema.get("properties").and_then(Value::as_object).is_none() {
            let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
            return if closed { Shape::Object(Vec::new()) } else { Shape::AnyObject };
        }
        let members = members_of(schema).into_iter().map(|(name, own, is_required)| Member {
            name: Value::String(name.to_owned()).to_string(),
            shape: self.shape(own, depth + 1),
            is_required,
        });
        Shape::Object(members.collect())
    }
}

/// The members of an object, and whether each is demanded: those that are first, in the order in which the schema demands them, then
/// the others by name. An object of JSON is sorted by name here, and a model that has to say what to write before it has said where is
/// out of its depth.
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
