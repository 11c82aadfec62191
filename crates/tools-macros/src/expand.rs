//! Writes the tool: the arguments as a type, the function as it was, and the two faces that the host tier asks for.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::{Error, GenericArgument, Ident, ItemFn, LitStr, PathArguments, Result, ReturnType, Safety, Type};

use crate::arguments::{Argument, Parameter, is_named, parameters};
use crate::declared::Declared;
use crate::prose::{Prose, doc_text};

pub(crate) fn expand(attribute: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut function: ItemFn =
        syn::parse2(item).map_err(|error| Error::new(error.span(), "#[tool] stands before a function"))?;
    let declared = Declared::parse(attribute)?;
    let signature = &function.sig;
    if !matches!(signature.safety, Safety::Default) {
        return Err(Error::new_spanned(&signature.ident, "a tool's function is plain: not `unsafe`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a tool's function has no parameters of type or lifetime",
        ));
    }
    let is_raw = gives_raw_output(&signature.output)?;
    let parameters = parameters(&mut function)?;
    let names: Vec<String> = arguments(&parameters).map(Argument::key).collect();
    let prose = Prose::read(&doc_text(&function.attrs), &names);
    if prose.description.is_empty() {
        let why = "a tool has a doc comment: it is the description that people and models read";
        return Err(Error::new_spanned(&function.sig.ident, why));
    }
    Ok(Tool { declared, function, parameters, prose, is_raw }.tokens())
}

fn arguments(parameters: &[Parameter]) -> impl Iterator<Item = &Argument> {
    parameters.iter().filter_map(|parameter| match parameter {
        Parameter::Argument(argument) => Some(&**argument),
        Parameter::Context | Parameter::State { .. } => None,
    })
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
        let (spec, call) = (self.spec(), self.call());
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
                    ) -> ::regent_tools::macros::Running<'s> {
                        ::std::boxed::Box::pin(async move { #call })
                    }
                }

                #asyncness fn body(#inputs) #output #block

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
        quote!(#description #(#passed)* #name: #field)
    }

    fn spec(&self) -> TokenStream {
        let Declared { name, capabilities, idempotent, reversible, .. } = &self.declared;
        let variant = |word: &str| Ident::new(word, Span::call_site());
        let (effect, cost) = (variant(self.declared.effect), variant(self.declared.cost));
        let description = &self.prose.description;
        let version = match &self.declared.version {
            Some(version) => quote!(#version),
            None => quote!("1.0.0"),
        };
        let output = match &self.declared.output {
            Some(label) => quote!(#label),
            None => quote!(::regent_tools::macros::ToolSpec::UNKNOWN_OUTPUT),
        };
        let kinds = arguments(&self.parameters).filter_map(|argument| {
            let (kind, pointer) = (argument.kind.as_ref()?, format!("/{}", argument.key()));
            Some(quote!((#pointer, ::regent_tools::macros::ArgumentKind::#kind)))
        });
        quote! {
            let arguments = ::regent_tools::macros::kinds(&[#(#kinds),*]);
            ::regent_tools::macros::ToolSpec {
                name: #name.into(),
                description: #description.into(),
                input: ::regent_tools::macros::input::<Arguments>(&arguments),
                arguments,
                capabilities: ::std::vec![#(#capabilities.into()),*],
                effect: ::regent_tools::macros::SideEffect::#effect,
                idempotent: #idempotent,
                reversible: #reversible,
                driver: ::regent_tools::macros::DriverKind::Host,
                tiers: ::std::vec![::regent_tools::macros::Tier::Host],
                output: #output,
                version: #version.into(),
                cost: ::regent_tools::macros::CostClass::#cost,
                origin: ::regent_tools::macros::Origin::BuiltIn,
                may: ::std::option::Option::None,
            }
        }
    }

    fn call(&self) -> TokenStream {
        let names = arguments(&self.parameters).map(|argument| &argument.name);
        let given = self.parameters.iter().map(|parameter| match parameter {
            Parameter::Argument(argument) => {
                let name = &argument.name;
                if argument.lent { quote!(&#name) } else { quote!(#name) }
            }
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
            let done = body(#(#given),*)#wait.map_err(::regent_tools::ToolError::from)?;
            #give
        }
    }
}
