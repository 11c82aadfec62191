//! Writes the tool: the arguments as a type, the function as it was, and the two faces that the host tier asks for.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{
    Error, ForeignItemFn, GenericArgument, Ident, ItemFn, LitStr, PathArguments, Result, ReturnType, Safety,
    Signature, Type,
};

use crate::arguments::{Argument, Parameter, is_named, parameters};
use crate::declared::Declared;
use crate::prose::{Prose, doc_text};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if let Ok(ForeignItemFn { attrs, vis, mut sig, .. }) = syn::parse2(item.clone()) {
        let declared = Declared::parse(attribute, false)?;
        let (parameters, prose) = read(&mut sig, &doc_text(&attrs))?;
        let (name, spec) = (&sig.ident, manifest(&declared, &parameters, &prose)?);
        return Ok(quote! {
            #(#attrs)*
            #vis fn #name() -> ::regent_kernel::ToolSpec { #spec }
        });
    }
    let mut function: ItemFn =
        syn::parse2(item).map_err(|error| Error::new(error.span(), "#[tool] stands before a function"))?;
    let declared = Declared::parse(attribute, true)?;
    let is_raw = gives_raw_output(&function.sig.output);
    let (parameters, prose) = read(&mut function.sig, &doc_text(&function.attrs))?;
    Ok(Tool { declared, function, parameters, prose, is_raw: is_raw? }.tokens())
}

/// The parameters, and what the doc comment says about them and the tool.
fn read(signature: &mut Signature, doc: &str) -> Result<(Vec<Parameter>, Prose)> {
    if !matches!(signature.safety, Safety::Default) {
        return Err(Error::new_spanned(&signature.ident, "a tool's function is plain: not `unsafe`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a tool's function has no parameters of type or lifetime",
        ));
    }
    let parameters = parameters(signature)?;
    let names: Vec<String> = arguments(&parameters).map(Argument::key).collect();
    let prose = Prose::read(doc, &names);
    if prose.description.is_empty() {
        let why = "a tool has a doc comment: it is the description that people and models read";
        return Err(Error::new_spanned(&signature.ident, why));
    }
    Ok((parameters, prose))
}

/// The manifest of a tool without a body. It names nothing but the kernel and `serde_json`, so that crates below `regent_tools` can have it.
fn manifest(declared: &Declared, parameters: &[Parameter], prose: &Prose) -> Result<TokenStream> {
    let kernel = quote!(::regent_kernel);
    let mut fields = Vec::new();
    for parameter in parameters {
        let Parameter::Argument(argument) = parameter else {
            return Err(Error::new(
                Span::call_site(),
                "a tool without a body takes only arguments of the call",
            ));
        };
        let schema = match (&argument.schema, argument.given_type()) {
            (Some(schema), _) => quote!(#schema),
            (None, of) if is_named(of, "String") => quote!(::serde_json::json!({"type": "string"})),
            (None, of) if is_named(of, "bool") => quote!(::serde_json::json!({"type": "boolean"})),
            (None, of) => {
                return Err(Error::new_spanned(of, "give its schema: `#[arg(schema = json!({…}))]`"));
            }
        };
        let mut added: Vec<TokenStream> = Vec::new();
        if let Some(text) = argument.description(prose) {
            added.push(quote!(("description", ::serde_json::Value::from(#text))));
        }
        if argument.kind.as_ref().is_some_and(|kind| kind.access.is_some()) {
            added.push(quote!(("minLength", 1.into()), ("maxLength", 4095.into())));
        }
        let key = argument.key();
        fields.push(quote! {{
            let mut field: ::serde_json::Value = #schema;
            if let ::std::option::Option::Some(own) = field.as_object_mut() {
                for (name, value) in [#(#added),*] as [(&str, ::serde_json::Value); _] {
                    own.entry(name).or_insert(value);
                }
            }
            properties.insert(#key.into(), field);
        }});
    }
    let required = arguments(parameters).filter(|argument| !argument.is_optional()).map(Argument::key);
    let kinds = kinds(parameters, &kernel);
    let input = quote!(::serde_json::json!({
        "type": "object",
        "additionalProperties": false,
        "required": [#(#required),*],
        "properties": properties,
    }));
    let spec = declared.spec(&prose.description, &kernel, &input);
    Ok(quote! {
        let mut properties = ::serde_json::Map::new();
        #(#fields)*
        let arguments = [#(#kinds),*].into_iter().map(|(pointer, kind): (&str, _)| (pointer.to_owned(), kind)).collect();
        #spec
    })
}

/// The kinds of the arguments, by pointer.
fn kinds(parameters: &[Parameter], names: &TokenStream) -> Vec<TokenStream> {
    let kind = |argument: &Argument| {
        let (kind, pointer) = (argument.kind.as_ref()?, format!("/{}", argument.key()));
        let variant = &kind.variant;
        let access = kind.access.as_ref().map(|access| quote!((#names::Access::#access)));
        Some(quote!((#pointer, #names::ArgumentKind::#variant #access)))
    };
    arguments(parameters).filter_map(kind).collect()
}

impl Declared {
    /// The manifest, as an expression. `names` is where the kernel's types are, `arguments` is in scope.
    fn spec(&self, description: &str, names: &TokenStream, input: &TokenStream) -> TokenStream {
        let Self { name, capabilities, idempotent, reversible, .. } = self;
        let variant = |word: &str| Ident::new(word, Span::call_site());
        let (effect, cost, driver) = (variant(self.effect), variant(self.cost), variant(self.driver));
        let tiers = self.tiers.iter().map(|tier| variant(tier));
        let version = match &self.version {
            Some(version) => quote!(#version),
            None => quote!("1.0.0"),
        };
        let output = match &self.output {
            Some(label) => quote!(#label),
            None => quote!(#names::ToolSpec::UNKNOWN_OUTPUT),
        };
        let may = match &self.may {
            Some(may) => quote!(::std::option::Option::Some(::std::vec![#(#may.into()),*])),
            None => quote!(::std::option::Option::None),
        };
        quote! {
            #names::ToolSpec {
                name: #name.into(),
                description: #description.into(),
                input: #input,
                arguments,
                capabilities: ::std::vec![#(#capabilities.into()),*],
                effect: #names::SideEffect::#effect,
                idempotent: #idempotent,
                reversible: #reversible,
                driver: #names::DriverKind::#driver,
                tiers: ::std::vec![#(#names::Tier::#tiers),*],
                output: #output,
                version: #version.into(),
                cost: #names::CostClass::#cost,
                origin: #names::Origin::BuiltIn,
                may: #may,
            }
        }
    }
}

fn arguments(parameters: &[Parameter]) -> impl Iterator<Item = &Argument> {
    parameters.iter().filter_map(|parameter| match parameter {
        Parameter::Argument(argument) => Some(&**argument),
        Parameter::Context | Parameter::State { .. } => None,
    })
}

/// An argument as the function takes it.
fn given(argument: &Argument) -> TokenStream {
    let name = &argument.name;
    if argument.lent { quote!(&#name) } else { quote!(#name) }
}

/// Whether the function gives `RawOutput` rather than something that becomes JSON. It has to give a `Result` in any case.
fn gives_raw_output(output: &ReturnType) -> Result<bool> {
    let why =
        "a tool gives a `Result`: what becomes JSON, or `RawOutput`, and an error that becomes a `ToolError`";
    if let ReturnType::Type(_, of) = output
        && let Type::Path(path) = &**of
        && let Some(last) = path.path.segments.last()
        && last.ident == "Result"
        && let PathArguments::AngleBracketed(of) = &last.arguments
        && let Some(GenericArgument::Type(done)) = of.args.first()
    {
        return Ok(is_named(done, "RawOutput"));
    }
    Err(Error::new_spanned(output, why))
}

struct Tool {
    declared: Declared,
    function: ItemFn,
    parameters: Vec<Parameter>,
    prose: Prose,
    is_raw: bool,
}

impl Tool {
    fn tokens(&self) -> TokenStream {
        let ItemFn { attrs, vis, sig, block, .. } = &self.function;
        let name = &sig.ident;
        let (make, state, keep) = self.state();
        let fields = arguments(&self.parameters).map(|argument| self.field(argument));
        let (spec, call, foresee) = (self.spec(), self.call(), self.foresee());
        let (asyncness, inputs, output) = (&sig.asyncness, &sig.inputs, &sig.output);
        quote! {
            #(#attrs)*
            #vis fn #name(#make) -> impl ::regent_tools::HostTool {
                #[derive(::regent_tools::macros::serde::Deserialize, ::regent_tools::macros::schemars::JsonSchema)]
                #[serde(crate = "::regent_tools::macros::serde", deny_unknown_fields)]
                #[schemars(crate = "::regent_tools::macros::schemars")]
                struct Arguments { #(#fields),* }

                struct Tool { #state }

                impl ::regent_tools::HostTool for Tool {
                    fn spec(&self) -> ::regent_tools::macros::ToolSpec {
                        #spec
                    }

                    fn run<'s>(
                        &'s self,
                        permit: &'s ::regent_tools::Context<'s>,
                    ) -> ::regent_tools::macros::ToolFuture<'s> {
                        ::std::boxed::Box::pin(async move { #call })
                    }

                    #foresee
                }

                #asyncness fn __body(#inputs) #output #block

                Tool { #keep }
            }
        }
    }

    /// The maker's parameter, the field, and how one becomes the other.
    fn state(&self) -> (TokenStream, TokenStream, TokenStream) {
        let kept = self.parameters.iter().filter_map(|parameter| match parameter {
            Parameter::State { name, of } => Some((name, of)),
            Parameter::Argument(_) | Parameter::Context => None,
        });
        let (names, types): (Vec<_>, Vec<_>) = kept.unzip();
        (quote!(#(#names: #types),*), quote!(#(#names: #types),*), quote!(#(#names),*))
    }

    fn field(&self, argument: &Argument) -> TokenStream {
        let Argument { name, field, passed, .. } = argument;
        let description = argument.description(&self.prose).map(|text| {
            let text = LitStr::new(&text, name.span());
            quote!(#[schemars(description = #text)])
        });
        // What has a schema of its own needs none from its type.
        let any = argument.schema.as_ref().map(|_| match argument.is_optional() {
            true => quote!(#[schemars(with = "::std::option::Option<::regent_tools::macros::Value>")]),
            false => quote!(#[schemars(with = "::regent_tools::macros::Value")]),
        });
        quote!(#description #any #(#passed)* #name: #field)
    }

    fn spec(&self) -> TokenStream {
        let names = quote!(::regent_tools::macros);
        let kinds = kinds(&self.parameters, &names);
        let schemas = arguments(&self.parameters).filter_map(|argument| {
            let (schema, key) = (argument.schema.as_ref()?, argument.key());
            Some(quote!((#key, #schema)))
        });
        let input = quote!(#names::input::<Arguments>(&arguments, ::std::vec![#(#schemas),*]));
        let spec = self.declared.spec(&self.prose.description, &names, &input);
        quote! {
            let arguments = #names::kinds(&[#(#kinds),*]);
            #spec
        }
    }

    /// What a call would do, by the function that the attribute names: it takes the arguments of the call, and what the file holds.
    fn foresee(&self) -> Option<TokenStream> {
        let foresee = self.declared.foresee.as_ref()?;
        let names = arguments(&self.parameters).map(|argument| &argument.name);
        let given = arguments(&self.parameters).map(given);
        Some(quote! {
            fn foresee(
                &self,
                args: &::regent_tools::macros::Value,
                before: ::std::option::Option<&[u8]>,
            ) -> ::std::option::Option<::regent_tools::macros::Foreseen> {
                let Arguments { #(#names),* } = ::regent_tools::macros::foreseeable(args)?;
                #foresee(#(#given,)* before)
            }
        })
    }

    fn call(&self) -> TokenStream {
        let names = arguments(&self.parameters).map(|argument| &argument.name);
        let given = self.parameters.iter().map(|parameter| match parameter {
            Parameter::Argument(argument) => given(argument),
            Parameter::Context => quote!(permit),
            Parameter::State { name, .. } => quote!(&self.#name),
        });
        let wait = self.function.sig.asyncness.map(|_| quote!(.await));
        let give = if self.is_raw {
            quote!(::std::result::Result::Ok(done))
        } else {
            quote!(::regent_tools::macros::json(&done))
        };
        quote! {
            let Arguments { #(#names),* } = ::regent_tools::macros::arguments(permit)?;
            let done = __body(#(#given),*)#wait.map_err(::regent_tools::ToolError::from)?;
            #give
        }
    }
}
