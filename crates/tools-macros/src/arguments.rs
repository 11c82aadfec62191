//! What the function takes: arguments of the call, the context, a state that the tool keeps.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::spanned::Spanned as _;
use syn::{
    Attribute, Error, Expr, FnArg, GenericArgument, Ident, LitStr, Pat, PathArguments, Result, Signature,
    Type, TypeReference,
};

use crate::prose::{Prose, doc_text};

/// What `#[arg(path = …)]` may say.
const ACCESSES: &[(&str, &str)] =
    &[("read", "Read"), ("write", "Write"), ("execute", "Execute"), ("delete", "Delete"), ("list", "List")];

/// What policy is to see of an argument.
pub(crate) struct ArgumentKind {
    pub(crate) variant: Ident,
    /// A variant of `Access`, for a path.
    pub(crate) access: Option<Ident>,
}

/// One parameter of the function.
pub(crate) enum Parameter {
    /// An argument of the call.
    Argument(Box<Argument>),
    /// The permit, under its other name.
    Context,
    /// What the tool was made with.
    State { name: Ident, of: Box<Type> },
}

/// An argument of the call.
pub(crate) struct Argument {
    pub(crate) name: Ident,
    /// What the call's JSON is read into.
    pub(crate) field: TokenStream,
    /// The function takes it by reference.
    pub(crate) lent: bool,
    /// An `ArgumentKind`, if policy is to see more than a value.
    pub(crate) kind: Option<ArgumentKind>,
    /// Its schema, if that isn't what its type says: an expression that gives JSON.
    pub(crate) schema: Option<Expr>,
    /// What the function declares.
    of: Type,
    /// `#[serde(…)]` and `#[schemars(…)]`, passed on.
    pub(crate) passed: Vec<Attribute>,
    doc: String,
}

impl Argument {
    /// The name as the call has it.
    pub(crate) fn key(&self) -> String {
        let name = self.name.to_string();
        name.strip_prefix("r#").unwrap_or(&name).to_owned()
    }

    /// Whether it may be left out.
    pub(crate) fn is_optional(&self) -> bool {
        is_named(&self.of, "Option")
    }

    /// The type that a value has where there is one.
    pub(crate) fn given_type(&self) -> &Type {
        if let Type::Path(path) = &self.of
            && let Some(last) = path.path.segments.last().filter(|last| last.ident == "Option")
            && let PathArguments::AngleBracketed(of) = &last.arguments
            && let Some(GenericArgument::Type(inner)) = of.args.first()
        {
            return inner;
        }
        &self.of
    }

    /// Its description: beside it, or in the list of the function's comment.
    pub(crate) fn description(&self, prose: &Prose) -> Option<String> {
        let own = Prose::read(&self.doc, &[]).description;
        if own.is_empty() { prose.arguments.get(&self.key()).cloned() } else { Some(own) }
    }
}

/// Takes the parameters apart, and takes away the attributes that are ours.
pub(crate) fn parameters(signature: &mut Signature) -> Result<Vec<Parameter>> {
    let mut wrong: Option<Error> = None;
    let mut found = Vec::new();
    for input in &mut signature.inputs {
        match parameter(input) {
            Ok(parameter) => found.push(parameter),
            Err(error) => match &mut wrong {
                Some(all) => all.combine(error),
                None => wrong = Some(error),
            },
        }
    }
    match wrong {
        None => Ok(found),
        Some(error) => Err(error),
    }
}

fn parameter(input: &mut FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(
            input,
            "a tool is a free function; give it what it keeps with `#[state] name: &Type`",
        ));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new_spanned(
            &typed.pat,
            "an argument of a tool has a name, which is its name in the call's JSON",
        ));
    };
    let name = pattern.ident.clone();
    let attributes = std::mem::take(&mut typed.attrs);
    if attributes.iter().any(|attribute| attribute.path().is_ident("state")) {
        let Type::Reference(TypeReference { elem, mutability: None, .. }) = &*typed.ty else {
            return Err(Error::new_spanned(
                &typed.ty,
                "a tool's state is shared by its calls: take it as `&Type`",
            ));
        };
        return Ok(Parameter::State { name, of: elem.clone() });
    }
    if is_context(&typed.ty) {
        return Ok(Parameter::Context);
    }
    if let Type::ImplTrait(_) = &*typed.ty {
        return Err(Error::new_spanned(&typed.ty, "an argument of a tool has one type"));
    }
    let (field, lent) = if let Type::Reference(TypeReference { elem, mutability, .. }) = &*typed.ty {
        if mutability.is_some() || !is_named(elem, "str") {
            let why = "take it by value: arguments are read from JSON (`&str` and `&Context<'_>` are fine)";
            return Err(Error::new_spanned(&typed.ty, why));
        }
        (quote!(::std::string::String), true)
    } else {
        (typed.ty.to_token_stream(), false)
    };
    let (of, doc) = ((*typed.ty).clone(), doc_text(&attributes));
    let mut argument = Argument { name, field, lent, kind: None, schema: None, of, passed: Vec::new(), doc };
    for attribute in attributes {
        let path = attribute.path();
        if path.is_ident("arg") {
            (argument.kind, argument.schema) = described(&attribute)?;
        } else if path.is_ident("serde") || path.is_ident("schemars") {
            argument.passed.push(attribute);
        } else if !path.is_ident("doc") {
            let why =
                "not an attribute of a tool's argument; there are #[arg], #[state], #[serde] and #[schemars]";
            return Err(Error::new_spanned(attribute, why));
        }
    }
    Ok(Parameter::Argument(Box::new(argument)))
}

/// `#[arg(path = "read")]`, `#[arg(url)]`, `#[arg(argv)]`, `#[arg(shell)]`; and `#[arg(schema = json!({…}))]`, alone or beside one of these.
fn described(attribute: &Attribute) -> Result<(Option<ArgumentKind>, Option<Expr>)> {
    let (mut found, mut schema) = (None, None);
    attribute.parse_nested_meta(|meta| {
        let word = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        let span = meta.path.span();
        let plain = |variant: &str| ArgumentKind { variant: Ident::new(variant, span), access: None };
        let kind = match word.as_str() {
            "schema" => {
                if schema.replace(meta.value()?.parse()?).is_some() {
                    return Err(meta.error("an argument has one schema"));
                }
                return Ok(());
            }
            "path" => {
                let access: LitStr = meta.value()?.parse()?;
                let value = access.value();
                let Some((_, variant)) = ACCESSES.iter().find(|(word, _)| *word == value) else {
                    let why = "a path is for \"read\", \"write\", \"execute\", \"delete\" or \"list\"";
                    return Err(Error::new(access.span(), why));
                };
                ArgumentKind { access: Some(Ident::new(variant, access.span())), ..plain("Path") }
            }
            "url" => plain("Url"),
            "argv" => plain("Argv"),
            "shell" => plain("Shell"),
            _unknown => {
                return Err(meta.error(
                    "an argument is a `path = \"read\"`, a `url`, an `argv` or a `shell` line, or has a `schema`",
                ));
            }
        };
        if found.replace(kind).is_some() {
            return Err(meta.error("an argument is one kind of thing"));
        }
        Ok(())
    })?;
    if found.is_none() && schema.is_none() {
        let why = "say what kind of thing it is: `#[arg(path = \"read\")]`";
        return Err(Error::new_spanned(attribute, why));
    }
    Ok((found, schema))
}

fn is_context(of: &Type) -> bool {
    let Type::Reference(TypeReference { elem, .. }) = of else { return false };
    is_named(elem, "Context") || is_named(elem, "Permit")
}

pub(crate) fn is_named(of: &Type, name: &str) -> bool {
    let Type::Path(path) = of else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == name)
}
