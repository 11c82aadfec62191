//! Protocols as other clouds host them: another header for the key, another address, a slightly other body.

use regent_kernel::Part;
use serde_json::{Value, json};

use super::{Anthropic, Decoder, Gemini, OpenAiChat, Question, Wire, put};
use crate::lines::Framing;

/// The version of Anthropic's messages on Vertex AI.
const VERTEX_VERSION: &str = "vertex-2023-10-16";
const BEARER: (&str, &str) = ("authorization", "Bearer ");

/// A protocol at another host.
#[derive(Debug)]
pub struct Hosted {
    wire: Box<dyn Wire>,
    key_header: (&'static str, &'static str),
    /// The model stands in the address, and the version in the body.
    is_raw: bool,
}

impl Hosted {
    /// OpenAI's chat completions on Azure: the key has a header of its own.
    pub fn azure() -> Self {
        Self { wire: Box::new(OpenAiChat { compatible: false }), key_header: ("api-key", ""), is_raw: false }
    }

    /// Google's generateContent on Vertex AI, with an access token.
    pub fn vertex() -> Self {
        Self { wire: Box::new(Gemini), key_header: BEARER, is_raw: false }
    }

    /// Anthropic's messages on Vertex AI, with an access token.
    pub fn vertex_anthropic() -> Self {
        Self { wire: Box::new(Anthropic), key_header: BEARER, is_raw: true }
    }
}

impl Wire for Hosted {
    fn path(&self, model: &str) -> String {
        if self.is_raw { format!("/models/{model}:streamRawPredict") } else { self.wire.path(model) }
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        self.key_header
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        if self.is_raw { &[] } else { self.wire.headers() }
    }

    fn body(&self, question: &Question<'_>) -> Value {
        let mut body = self.wire.body(question);
        if self.is_raw {
            if let Some(fields) = body.as_object_mut() {
                fields.remove("model");
            }
            put(&mut body, "anthropic_version", Some(json!(VERTEX_VERSION)));
        }
        body
    }

    fn takes(&self, part: &Part) -> bool {
        self.wire.takes(part)
    }

    fn framing(&self) -> Framing {
        self.wire.framing()
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        self.wire.decoder()
    }
}
