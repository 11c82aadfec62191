//! What the function takes: arguments of the call, the context, a state that the tool keeps.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::{Attribute, Error, FnArg, Ident, ItemFn, LitStr, Pat, Result, Type, TypeReference};

use crate::prose::{Prose, doc_text};

/// What `#[arg(path = …)]` may say.
const ACCESSES: &[(&str, &str)] =
    &[("read", "Read"), ("write", "Write"), ("execute", "Execute"), ("delete", "Delete"), ("list", "List")];

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
    pub(crate) kind: Option<TokenStream>,
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

    /// What is said about it: beside it, or in the list of the function's comment.
    pub(crate) fn description(&self, prose: &Prose) -> Option<String> {
        let own = Prose::read(&self.doc, &[]).description;
        if own.is_empty() { prose.arguments.get(&self.key()).cloned() } else { Some(own) }
    }
}

/// Takes the parameters apart, and takes away the attributes that are ours.
pub(crate) fn parameters(function: &mut ItemFn) -> Result<Vec<Parameter>> {
    let mut wrong: Option<Error> = None;
    let mut found = Vec::new();
    for input in &mut function.sig.inputs {
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
    let mut argument =
        Argument { name, field, lent, kind: None, passed: Vec::new(), doc: doc_text(&attributes) };
    for attribute in attributes {
        let path = attribute.path();
        if path.is_ident("arg") {
            argument.kind = Some(kind(&attribute)?);
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

/// `#[arg(path = "read")]`, `#[arg(url)]`, `#[arg(argv)]`, `#[arg(shell)]`.
fn kind(attribute: &Attribute) -> Result<TokenStream> {
    let mut found = None;
    attribute.parse_nested_meta(|meta| {
        let kind = match meta.path.get_ident().map(ToString::to_string).unwrap_or_default().as_str() {
            "path" => {
                let access: LitStr = meta.value()?.parse()?;
                let value = access.value();
                let Some((_, variant)) = ACCESSES.iter().find(|(word, _)| *word == value) else {
                    let why = "a path is for \"read\", \"write\", \"execute\", \"delete\" or \"list\"";
                    return Err(Error::new(access.span(), why));
                };
                let variant = Ident::new(variant, access.span());
                quote!(Path(::regent_tools::macros::Access::#variant))
            }
            "url" => quote!(Url),
            "argv" => quote!(Argv),
            "shell" => quote!(Shell),
            _unknown => {
                return Err(
                    meta.error("an argument is a `path = \"read\"`, a `url`, an `argv` or a `shell` line")
                );
            }
        };
        if found.replace(kind).is_some() {
            return Err(meta.error("an argument is one kind of thing"));
        }
        Ok(())
    })?;
    found.ok_or_else(|| {
        Error::new_spanned(attribute, "say what kind of thing it is: `#[arg(path = \"read\")]`")
    })
}

fn is_context(of: &Type) -> bool {
    let Type::Reference(TypeReference { elem, .. }) = of else { return false };
    is_named(elem, "Context") || is_named(elem, "Permit")
}

pub(crate) fn is_named(of: &Type, name: &str) -> bool {
    let Type::Path(path) = of else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == name)
}
