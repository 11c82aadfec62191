//! Models as people set them up and try them.

use crate::world::World;

fn set_up(world: &World, more: &str) {
    let script = world.home("turns.json");
    std::fs::write(&script, r#"{"turns":[{"text":"ready"}]}"#).unwrap();
    let text = format!(
        "[models.play]\nkind = 'scripted'\nfile = '{}'\nmodels = ['m']\n\n[models.far]\nkind = 'anthropic'\nkey = 'secret://a'\nmodels = ['claude-sonnet-5-5', 'x']\n{more}",
        script.display()
    );
    std::fs::write(world.home(".config/regent/config.toml"), text).unwrap();
}

#[test]
fn models_are_listed_chosen_and_tested_under_policy_and_ledger() {
    let world = World::ready();
    assert!(world.run(&["model", "list"]).stdout.contains("No models are set up"));
    assert_eq!(world.run(&["--json", "model", "test"]).error_code(), "model.none");
    set_up(&world, "");
    let listed = world.run(&["--json", "model", "list"]).json();
    let models: Vec<(&str, bool, bool)> = listed["data"]["models"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (one["model"].as_str().unwrap(), one["remote"].is_string(), one["priced"].as_bool().unwrap())
        })
        .collect();
    assert_eq!(
        models,
        [("far/claude-sonnet-5-5", true, true), ("far/x", true, false), ("play/m", false, true)]
    );
    let tested = world.run(&["model", "test", "auto"]);
    assert_eq!(tested.code, 0, "{tested:?}");
    assert!(tested.stdout.starts_with("play/m answered \"ready\""), "{tested:?}");
    let why = world.run(&["model", "why"]);
    assert!(why.stdout.starts_with("play/m") && why.stdout.contains("on this machine"), "{why:?}");
    assert_eq!(world.run(&["audit", "verify"]).code, 0);
    let tail = world.run(&["audit", "tail"]);
    assert!(tail.stdout.contains("model.infer"), "{tail:?}");
}

#[test]
fn mistakes_are_named_with_their_line_and_a_project_has_no_say() {
    let world = World::ready();
    set_up(&world, "colour = 'red'\n");
    let ended = world.run(&["--json", "model", "list"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "config.invalid"), "{ended:?}");
    assert!(ended.stdout.contains("colour"), "{ended:?}");
    set_up(&world, "");
    let unknown = world.run(&["--json", "model", "test", "nobody/m"]);
    assert_eq!((unknown.code, unknown.error_code().as_str()), (5, "model.unknown"), "{unknown:?}");
    let denied = world.run(&["--json", "model", "test", "far"]);
    assert_eq!(denied.error_code(), "secret.not_found", "{denied:?}");
    world.write(".regent/config.toml", "[models.mine]\nkind = 'ollama'\nurl = 'http://evil.example'\n");
    assert_eq!(world.run(&["trust"]).code, 0);
    let ended = world.run(&["--json", "model", "list"]);
    assert_eq!((ended.code, ended.error_code().as_str()), (3, "config.invalid"), "{ended:?}");
    assert!(ended.stdout.contains("can't be set by a project"), "{ended:?}");
}
