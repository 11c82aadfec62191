//! What the attribute says about the tool.

use proc_macro2::{Span, TokenStream};
use syn::meta::ParseNestedMeta;
use syn::parse::Parser;
use syn::{Error, Expr, ExprArray, ExprLit, Lit, LitStr, Result};

/// Words of the attribute, with the variant that each stands for.
const EFFECTS: &[(&str, &str)] =
    &[("none", "None"), ("read", "Read"), ("write", "Write"), ("delete", "Delete"), ("network", "Network")];
const COSTS: &[(&str, &str)] =
    &[("free", "Free"), ("cheap", "Cheap"), ("moderate", "Moderate"), ("expensive", "Expensive")];
const DRIVERS: &[(&str, &str)] = &[
    ("host", "Host"),
    ("process", "Process"),
    ("wasm", "Wasm"),
    ("microvm", "Microvm"),
    ("remote", "Remote"),
];
const TIERS: &[(&str, &str)] =
    &[("host", "Host"), ("process", "Process"), ("wasm", "Wasm"), ("microvm", "Microvm")];
const KEYS: &str = "name, effect, capabilities, idempotent, reversible, cost, driver, tiers, version, output, may and foresee";

/// The attribute's settings, checked.
pub(crate) struct Declared {
    pub(crate) name: LitStr,
    /// A variant of `SideEffect`.
    pub(crate) effect: &'static str,
    pub(crate) capabilities: Vec<LitStr>,
    pub(crate) idempotent: bool,
    pub(crate) reversible: bool,
    /// A variant of `CostClass`.
    pub(crate) cost: &'static str,
    pub(crate) version: Option<LitStr>,
    /// An expression that gives the label of the output.
    pub(crate) output: Option<Expr>,
    /// A variant of `DriverKind`.
    pub(crate) driver: &'static str,
    /// Variants of `Tier`.
    pub(crate) tiers: Vec<&'static str>,
    /// What its own calls may use.
    pub(crate) may: Option<Vec<LitStr>>,
    /// A function that says what a call would do.
    pub(crate) foresee: Option<Expr>,
}

#[derive(Default)]
struct ToolAttributes {
    name: Option<LitStr>,
    effect: Option<&'static str>,
    capabilities: Vec<LitStr>,
    idempotent: bool,
    reversible: bool,
    cost: Option<&'static str>,
    version: Option<LitStr>,
    output: Option<Expr>,
    driver: Option<(&'static str, Span)>,
    tiers: Vec<(&'static str, Span)>,
    may: Option<Vec<LitStr>>,
    foresee: Option<Expr>,
    seen: Vec<String>,
}

impl Declared {
    /// What the attribute says. `is_body` is whether there is a function to run, or only a manifest to make.
    pub(crate) fn parse(attribute: TokenStream, is_body: bool) -> Result<Self> {
        let mut found = ToolAttributes::default();
        syn::meta::parser(|meta| found.key(&meta)).parse2(attribute)?;
        let missing = |what: &str| Error::new(Span::call_site(), what);
        let elsewhere = found.driver.iter().chain(&found.tiers).find(|(word, _)| *word != "Host");
        if let Some((_, span)) = elsewhere.filter(|_| is_body) {
            let why = "a Rust function runs in this process, so its only tier is \"host\"; what something else performs has no body: `fn name(…);`";
            return Err(Error::new(*span, why));
        }
        let driver = found.driver.map_or("Host", |(word, _)| word);
        if driver != "Host" && found.tiers.is_empty() {
            return Err(missing("a driver other than \"host\" needs `tiers`: `tiers = [\"process\"]`"));
        }
        if let Some(foresee) = found.foresee.as_ref().filter(|_| !is_body) {
            return Err(Error::new_spanned(foresee, "only a tool with a body foresees something"));
        }
        let tiers: Vec<_> = found.tiers.iter().map(|(word, _)| *word).collect();
        Ok(Self {
            name: found.name.ok_or_else(|| missing("a tool has a name: `name = \"text.count\"`"))?,
            effect: found.effect.ok_or_else(|| {
                missing("a tool says what it does to the world: `effect = \"none\"`, \"read\", \"write\", \"delete\" or \"network\"")
            })?,
            capabilities: found.capabilities,
            idempotent: found.idempotent,
            reversible: found.reversible,
            cost: found.cost.unwrap_or("Cheap"),
            version: found.version,
            output: found.output,
            driver,
            tiers: if tiers.is_empty() { vec!["Host"] } else { tiers },
            may: found.may,
            foresee: found.foresee,
        })
    }
}

impl ToolAttributes {
    fn key(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        if self.seen.contains(&key) {
            return Err(meta.error(format!("duplicate `{key}`")));
        }
        match key.as_str() {
            "name" => self.name = Some(dotted(meta.value()?.parse()?, "a tool's name")?),
            "effect" => self.effect = Some(word(&meta.value()?.parse()?, "effect", EFFECTS)?),
            "cost" => self.cost = Some(word(&meta.value()?.parse()?, "cost", COSTS)?),
            "capabilities" => {
                for text in texts(&meta.value()?.parse()?)? {
                    self.capabilities.push(dotted(text, "a capability")?);
                }
            }
            "idempotent" => self.idempotent = true,
            "reversible" => self.reversible = true,
            "driver" => {
                let text: LitStr = meta.value()?.parse()?;
                self.driver = Some((word(&text, "driver", DRIVERS)?, text.span()));
            }
            "tiers" => {
                for tier in texts(&meta.value()?.parse()?)? {
                    self.tiers.push((word(&tier, "tiers", TIERS)?, tier.span()));
                }
            }
            "may" => self.may = Some(texts(&meta.value()?.parse()?)?),
            "foresee" => self.foresee = Some(meta.value()?.parse()?),
            "version" => self.version = Some(version(meta.value()?.parse()?)?),
            "output" => self.output = Some(meta.value()?.parse()?),
            _unknown => return Err(meta.error(format!("not a word of #[tool]; there are {KEYS}"))),
        }
        self.seen.push(key);
        Ok(())
    }
}

fn word(text: &LitStr, key: &str, words: &'static [(&str, &'static str)]) -> Result<&'static str> {
    let value = text.value();
    words.iter().find(|(word, _)| *word == value).map(|(_, variant)| *variant).ok_or_else(|| {
        let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        Error::new(text.span(), format!("`{key}` is one of {}", known.join(", ")))
    })
}

/// Lower case words with dots between them, as the catalogue wants names.
fn dotted(text: LitStr, what: &str) -> Result<LitStr> {
    let value = text.value();
    let fine = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c))
    };
    if value.len() <= 128 && value.split('.').all(fine) {
        return Ok(text);
    }
    Err(Error::new(
        text.span(),
        format!("{what} is lower case words with dots between them, such as \"file.read\""),
    ))
}

fn version(text: LitStr) -> Result<LitStr> {
    let value = text.value();
    let numbers: Vec<&str> = value.split('.').collect();
    let fine =
        |part: &&str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|byte| byte.is_ascii_digit());
    if numbers.len() == 3 && numbers.iter().all(fine) {
        return Ok(text);
    }
    Err(Error::new(text.span(), "a version is three numbers: \"1.0.0\""))
}

fn texts(array: &ExprArray) -> Result<Vec<LitStr>> {
    let text = |element: &Expr| {
        let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = element else {
            return Err(Error::new_spanned(element, "a text in quotes belongs here"));
        };
        Ok(text.clone())
    };
    array.elems.iter().map(text).collect()
}
