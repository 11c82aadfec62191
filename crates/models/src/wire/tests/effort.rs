//! What is sent when somebody says how much a model should think, and what is marked for the cache.

use regent_kernel::{Effort, Offer, Role, ToolUse};

use super::*;
use crate::capability::{Caching, CapabilitySource, CapabilityTable, Thinking, ToolChoice};

fn question(effort: Option<Effort>) -> Inference {
    let sampling = regent_kernel::Sampling {
        temperature: Some(0.5),
        must_call: true,
        effort,
        ..regent_kernel::Sampling::default()
    };
    let tools = vec![Offer {
        name: "fs.read".to_owned(),
        description: String::new(),
        input: json!({"type": "object"}),
    }];
    let messages = vec![Message::new(Role::System, "Rules"), Message::new(Role::User, "Hi")];
    Inference { model: "m".to_owned(), messages, tools, tokens_max: 8_000, sampling }
}

/// As the built-in table has the model.
fn known(kind: &str, model: &str) -> Capability {
    let spec = CapabilityTable::compiled_in().unwrap().find(kind, model).unwrap();
    Capability {
        reasoning: spec.reasoning.unwrap(),
        tool_choice: spec.tool_choice.unwrap_or_default(),
        refused: spec.refused.unwrap_or_default(),
        caching: spec.caching.unwrap_or(Caching::None),
        window_tokens: 20_000,
        source: CapabilitySource::Table,
        ..Capability::default()
    }
}

fn sent(wire: &dyn Wire, model: &str, capability: &Capability, inference: &Inference) -> Value {
    let names = Names::from_inference(inference);
    let cache_ttl = CacheTtl::default();
    let mut body =
        wire.body(&Question { model, inference, names: &names, capability, effort: None, cache_ttl });
    parameters::adapt(&mut body, &capability.refused);
    body
}

#[test]
fn effort_is_sent_as_each_model_takes_it() {
    use Effort::{High, Low, Max, Minimal, None as Off};
    let chat = || -> Box<dyn Wire> { Box::new(OpenAiChat { compatible: false }) };
    type Case = (Box<dyn Wire>, &'static str, &'static str, Effort, Value);
    let cases: Vec<Case> = vec![
        (chat(), "openai", "gpt-5.5", Max, json!({"reasoning_effort": "xhigh"})),
        (chat(), "openai", "gpt-5.5", Off, json!({"reasoning_effort": "none"})),
        (chat(), "openai", "gpt-5-mini", Off, json!({"reasoning_effort": "minimal"})),
        (chat(), "openai", "gpt-5.6-luna", High, json!({"reasoning_effort": "none", "temperature": null})),
        (chat(), "openai", "gpt-4.1", High, json!({"reasoning_effort": null, "temperature": 0.5})),
        (
            Box::new(OpenAiResponses),
            "openai",
            "gpt-5.6-luna",
            High,
            json!({"reasoning": {"effort": "high"}, "temperature": null}),
        ),
        (Box::new(OpenAiResponses), "openai", "gpt-4.1", High, json!({"reasoning": null, "include": null})),
        (
            Box::new(Anthropic),
            "anthropic",
            "claude-sonnet-5-5",
            Low,
            json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}, "tool_choice": null}),
        ),
        (
            Box::new(Anthropic),
            "anthropic",
            "claude-sonnet-5-5",
            Off,
            json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "low"}, "tool_choice": null}),
        ),
        (
            Box::new(Anthropic),
            "anthropic",
            "claude-opus-5",
            Off,
            json!({"thinking": {"type": "disabled"}, "output_config": null, "tool_choice": {"type": "any"}}),
        ),
        (
            Box::new(Anthropic),
            "anthropic",
            "claude-haiku-4-5",
            High,
            json!({"thinking": {"type": "enabled", "budget_tokens": 4_000}, "output_config": null, "tool_choice": null}),
        ),
        (
            Box::new(Anthropic),
            "anthropic",
            "claude-haiku-4-5",
            Off,
            json!({"thinking": null, "tool_choice": {"type": "any"}}),
        ),
        (
            Box::new(Gemini),
            "gemini",
            "gemini-3.1-pro-preview",
            Minimal,
            json!({"generationConfig": {"maxOutputTokens": 8_000, "thinkingConfig": {"thinkingLevel": "low", "includeThoughts": true}}}),
        ),
        (Box::new(Ollama), "ollama", "qwen3:8b", Off, json!({"think": false})),
        (Box::new(Ollama), "ollama", "qwen3:8b", Low, json!({"think": true})),
        (Box::new(Ollama), "ollama", "gpt-oss:20b", Max, json!({"think": "high"})),
        (Box::new(Ollama), "ollama", "qwen2.5-coder", Max, json!({"think": null})),
    ];
    for (wire, kind, model, effort, expected) in cases {
        let body = sent(&*wire, model, &known(kind, model), &question(Some(effort)));
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(body.get(field).unwrap_or(&Value::Null), value, "{model} {effort:?} {field}: {body}");
        }
    }
}

#[test]
fn without_effort_nothing_is_said_of_thinking() {
    let cases: [(Box<dyn Wire>, &str, &str); 4] = [
        (Box::new(OpenAiResponses), "openai", "gpt-5.6-sol"),
        (Box::new(Anthropic), "anthropic", "claude-opus-5"),
        (Box::new(Gemini), "gemini", "gemini-3.5-flash"),
        (Box::new(Ollama), "ollama", "qwen3"),
    ];
    for (wire, kind, model) in cases {
        let body = sent(&*wire, model, &known(kind, model), &question(None)).to_string();
        for word in ["reasoning\":", "thinking", "effort", "think\""] {
            assert!(!body.contains(word), "{model}: {body}");
        }
    }
    let capability = known("openai", "gpt-5.5");
    let (names, inference) = (Names::default(), question(None));
    let asked = Question {
        model: "gpt-5.5",
        inference: &inference,
        names: &names,
        capability: &capability,
        effort: Some(Effort::Low),
        cache_ttl: CacheTtl::default(),
    };
    assert_eq!(OpenAiResponses.body(&asked)["reasoning"], json!({"effort": "low"}), "the provider's own");
}

#[test]
fn a_fixed_budget_fits_into_the_answer_and_needs_its_thoughts_back() {
    let capability = Capability { reasoning: Thinking::Budget(32_000), ..Capability::default() };
    let mut asked = question(Some(Effort::Max));
    assert_eq!(sent(&Anthropic, "m", &capability, &asked)["thinking"]["budget_tokens"], 4_000);
    asked.tokens_max = 2_000;
    assert_eq!(sent(&Anthropic, "m", &capability, &asked).get("thinking"), None, "less than the least");
    asked.tokens_max = 100_000;
    assert_eq!(sent(&Anthropic, "m", &capability, &asked)["thinking"]["budget_tokens"], 32_000);
    // A turn of another model, without a thought before its call.
    let call = ToolUse { id: "c".to_owned(), tool: "fs.read".to_owned(), args: json!({}) };
    asked.messages.push(Message::asking("", [call]));
    let result = Part::ToolResult { answers: "c".to_owned(), parts: vec![Part::text("x")] };
    asked.messages.push(Message { role: Role::Tool, parts: vec![result] });
    assert_eq!(sent(&Anthropic, "m", &capability, &asked).get("thinking"), None);
    assert_eq!(
        sent(&Anthropic, "m", &known("anthropic", "claude-opus-5"), &asked)["thinking"]["type"],
        "adaptive"
    );
}

#[test]
fn tools_are_forced_only_where_they_can_be() {
    for tool_choice in [ToolChoice::Auto, ToolChoice::Forced] {
        let capability = Capability { tool_choice, ..Capability::default() };
        for wire in ["openai_chat", "openai_responses", "anthropic", "gemini"] {
            let body = sent(&*wire_of(wire), "m", &capability, &question(None));
            let is_forced = body.get("tool_choice").or_else(|| body.get("toolConfig")).is_some();
            assert_eq!(is_forced, tool_choice == ToolChoice::Forced, "{wire}");
        }
    }
}

/// Everything up to and with the last block that is marked, without the marks: what the provider keeps.
fn prefixes(body: &Value) -> Vec<String> {
    let (mut prefix, mut kept) = (String::new(), Vec::new());
    let blocks = ["tools", "system"].iter().flat_map(|field| list_at(body, &format!("/{field}")).to_vec());
    let turns = list_at(body, "/messages").iter().flat_map(|turn| list_at(turn, "/content").to_vec());
    for mut block in blocks.chain(turns) {
        let mark = block.as_object_mut().unwrap().remove("cache_control");
        prefix.push_str(&block.to_string());
        kept.extend(mark.map(|_| prefix.clone()));
    }
    kept
}

#[test]
fn the_next_question_begins_with_what_is_kept() {
    let capability = known("anthropic", "claude-opus-5");
    let mut asked = question(None);
    let mut kept: Vec<String> = Vec::new();
    for turn in 0..30 {
        let body = sent(&Anthropic, "m", &capability, &asked);
        assert_eq!(body, sent(&Anthropic, "m", &capability, &asked), "the same bytes");
        let marks = prefixes(&body);
        assert!(marks.len() <= 4 && marks.len() >= 3, "{turn}: {}", marks.len());
        if let Some(last) = kept.last() {
            assert!(marks.contains(last), "{turn}: the end of the last question is found");
        }
        kept = marks;
        let id = format!("c{turn}");
        let call = ToolUse { id: id.clone(), tool: "fs.read".to_owned(), args: json!({"n": turn}) };
        asked.messages.push(Message::asking("", [call]));
        let result = Part::ToolResult { answers: id, parts: vec![Part::text(format!("text {turn}"))] };
        asked.messages.push(Message { role: Role::Tool, parts: vec![result] });
    }
    let names = Names::default();
    let hour = Question {
        model: "m",
        inference: &asked,
        names: &names,
        capability: &capability,
        effort: None,
        cache_ttl: CacheTtl::Hour,
    };
    let body = Anthropic.body(&hour);
    assert_eq!(body["system"][0]["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}));
}

#[test]
fn a_conversation_keeps_its_cache_key() {
    let capability = known("openai", "gpt-5.5");
    let key = |inference: &Inference| {
        sent(&OpenAiResponses, "m", &capability, inference)["prompt_cache_key"].as_str().unwrap().to_owned()
    };
    let mut asked = question(None);
    let first = key(&asked);
    asked.messages.push(Message::new(Role::Assistant, "Hello"));
    asked.messages.push(Message::new(Role::User, "More"));
    assert_eq!((key(&asked), first.len()), (first.clone(), 32));
    asked.messages[1] = Message::new(Role::User, "Else");
    assert_ne!(key(&asked), first);
    let compatible = sent(&OpenAiChat { compatible: true }, "m", &capability, &asked);
    assert_eq!(compatible.get("prompt_cache_key"), None);
}

#[test]
fn answers_are_asked_for_with_schemas_that_strict_modes_take() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "object"}}, "required": ["a"]});
    let mut asked = question(None);
    asked.sampling.schema = Some(schema.clone());
    asked.tools[0].input =
        json!({"type": "object", "properties": {"t": {"type": "string", "maxLength": 8_388_608}}});
    let places = [
        ("openai_chat", "/response_format/json_schema/schema"),
        ("openai_responses", "/text/format/schema"),
        ("anthropic", "/output_config/format/schema"),
    ];
    for (wire, place) in places {
        let body = sent(&*wire_of(wire), "m", &Capability::default(), &asked);
        assert_eq!(schema::strict_problem(body.pointer(place).unwrap()), None, "{wire}");
        assert!(!body.to_string().contains("8388608"), "{wire}");
    }
    asked.sampling.schema = Some(json!({"type": "object"}));
    let body = sent(&OpenAiResponses, "m", &Capability::default(), &asked);
    assert_eq!(body["text"]["format"]["strict"], false, "{body}");
}
