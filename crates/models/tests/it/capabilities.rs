//! What the hub says that its models can do.

use std::sync::Arc;

use regent_kernel::SystemClock;
use regent_models::{
    Caching, Capability, CapabilitySource, CapabilityTable, Hub, Settings, Thinking, ToolChoice,
};

const SETTINGS: &str = r#"
[models.claude]
kind = "anthropic"
models = ["claude-sonnet-5-5"]

[models.qwen]
kind = "ollama"
models = ["qwen2.5-coder:7b", "llama3.1"]

[models.lab]
kind = "compatible"
url = "http://127.0.0.1:9/v1"
models = ["own"]
capabilities.own = { window_tokens = 16384, images = true, tool_choice = "auto" }
capabilities."openai/gpt-5.5" = { answer_tokens = 1000 }
"#;

fn hub(settings: &str, table: Option<&str>) -> Hub {
    let mut settings = Settings::parse(settings).unwrap();
    settings.table = table.map(|text| CapabilityTable::parse(text).unwrap());
    Hub::from_settings(settings, None, Arc::new(SystemClock::default())).unwrap()
}

fn limits(capability: &Capability) -> (u64, u64, CapabilitySource) {
    (capability.window_tokens, capability.answer_tokens, capability.source)
}

#[test]
fn every_name_has_limits() {
    use CapabilitySource::{Default, Settings, Table};
    let hub = hub(SETTINGS, None);
    let cases = [
        ("claude/claude-sonnet-5-5", 1_000_000, 128_000, Table),
        ("claude", 1_000_000, 128_000, Table),
        ("claude/claude-next", 32_768, 4_096, Default),
        ("qwen/qwen2.5-coder:7b", 32_768, 8_192, Table),
        ("qwen/llama3.1", 32_768, 8_192, Table),
        ("lab/own", 16_384, 4_096, Settings),
        ("lab/openai/gpt-5.5", 1_050_000, 1_000, Settings),
        ("lab/unknown", 32_768, 4_096, Default),
        ("nobody/m", 32_768, 4_096, Default),
        ("auto", 16_384, 4_096, Table),
        ("auto:code", 16_384, 4_096, Table),
    ];
    for (model, window, answer, source) in cases {
        assert_eq!(limits(&hub.capability(model)), (window, answer, source), "{model}");
    }
    let claude = hub.capability("claude");
    assert_eq!((claude.caching, claude.tool_choice), (Caching::Breakpoints, ToolChoice::Auto));
    assert!(claude.images && claude.files && matches!(claude.reasoning, Thinking::Adaptive(_)));
    let qwen = hub.capability("qwen");
    assert!(!qwen.images && qwen.reasoning == Thinking::None && qwen.price.is_none());
    assert!(hub.capability("lab/own").images);
    assert!(hub.capability("lab/openai/gpt-5.5").price.is_none(), "a gateway has its own prices");
}

#[test]
fn a_newer_file_counts_and_the_settings_count_more() {
    let table = |date: &str| {
        format!(
            "date = \"{date}\"\nnote = \"mine\"\n[model.\"anthropic/claude-sonnet-5-5\"]\nwindow_tokens = 500000\n\
             [model.\"compatible/own\"]\nwindow_tokens = 9000\nanswer_tokens = 2000\n"
        )
    };
    for (date, window) in [("2020-01-01", 1_000_000), ("2999-01-01", 500_000)] {
        let hub = hub(SETTINGS, Some(&table(date)));
        assert_eq!(hub.capability("claude").window_tokens, window, "{date}");
        assert_eq!(limits(&hub.capability("lab/own")), (16_384, 2_000, CapabilitySource::Settings));
    }
}

#[test]
fn without_models_auto_is_cautious() {
    assert_eq!(hub("", None).capability("auto"), Capability::default());
}
