//! What policy asks about or denies to `fs.write`, and a program that writes it.

use std::fs;
use std::path::PathBuf;

use regent_kernel::{BoxFuture, ExecuteError, Executor, Permit, RawOutput, Status, tier};
use regent_policy::DEFAULT_POLICY;
use regent_sandbox::{Bind, Floor, ProcessTier, WorkspaceMount};
use serde_json::json;

use super::tier::SandboxFixture;

/// Writes files of the host, folders included.
fn put(world: &SandboxFixture, files: &[(&str, &str)]) {
    for (file, text) in files {
        let path = world.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

#[tokio::test]
async fn m10_no_program_writes_what_policy_asks_about_for_fs_write() {
    let world = SandboxFixture::with(DEFAULT_POLICY).await;
    put(&world, &[("AGENTS.md", "ours"), ("app/CLAUDE.md", "ours"), ("src/main.rs", "ours")]);
    let lines = [
        "mkdir -p .github/workflows && echo evil > .github/workflows/ci.yml",
        "mkdir .husky; echo evil > .husky/pre-commit",
        "echo evil > AGENTS.md",
        "echo evil >> app/CLAUDE.md",
        "python3 -c 'import os; os.truncate(\"AGENTS.md\", 0)'",
        "chmod 777 AGENTS.md",
        "rm AGENTS.md",
        "echo evil > x; mv x AGENTS.md; ln -f x AGENTS.md; ln -sf x AGENTS.md",
        "mkdir -p w/workflows; echo evil > w/workflows/ci.yml; mv w .github2; mv .github2 .github",
        "ln -s .github2 .github",
        "echo TOKEN=1 > .env",
        "mv app/CLAUDE.md moved",
    ];
    for line in lines {
        let outcome = world.sh(&format!("{line}; exit 0")).await;
        assert_eq!(outcome.status, Status::Ok, "{line}");
    }
    let is = |file: &str| fs::read_to_string(world.path().join(file)).unwrap_or_default();
    assert_eq!((is("AGENTS.md").as_str(), is("app/CLAUDE.md").as_str()), ("ours", "ours"));
    for absent in [".github/workflows", ".husky", ".env", "moved"] {
        assert!(!world.path().join(absent).exists(), "{absent}");
    }
    let work = "echo new > src/main.rs; mkdir -p .github/ISSUE_TEMPLATE; echo x > Makefile; echo y > .env.example; \
                mkdir -p a/b; echo z > a/b/c; mv a d; cat d/b/c";
    assert_eq!(world.sh(work).await.output.text(), "z\n");
}

#[tokio::test]
async fn a_moved_folder_takes_nothing_to_or_from_where_policy_refuses_it() {
    let world = SandboxFixture::with(DEFAULT_POLICY).await;
    put(
        &world,
        &[
            (".github/workflows/ci.yml", "ours"),
            ("third/x/.github/workflows/ci.yml", "theirs"),
            ("third/y/.circleci/config.yml", "theirs"),
            ("app/AGENTS.md", "ours"),
            ("third/z/.cargo/config.toml", "theirs"),
        ],
    );
    let is = |file: &str| fs::read_to_string(world.path().join(file)).unwrap_or_default();
    for line in ["mv .github gh2", "mv third/y y2", "mv app app2", "mv third t2"] {
        world.sh(&format!("{line}; exit 0")).await;
    }
    // What the first run moved would be nobody's file in the second one.
    world.sh("for f in gh2/workflows/ci.yml y2/.circleci/config.yml app2/AGENTS.md; do echo evil > $f; done; exit 0").await;
    assert_eq!((is(".github/workflows/ci.yml").as_str(), is("app/AGENTS.md").as_str()), ("ours", "ours"));
    fs::remove_dir_all(world.path().join(".github")).unwrap();
    let swap = "python3 -c 'import ctypes; ctypes.CDLL(None).renameat2(-100, b\"third/x/.github\", -100, b\".github\", 2)'";
    for line in [
        "mv third/x/.github .github",
        "mv third/x x",
        &format!("mkdir .github; {swap}; rmdir .github"),
        "mv third/z/.cargo .cargo",
    ] {
        let said = world.sh(&format!("{line}; exit 3")).await;
        assert!(!world.path().join(".github/workflows").exists(), "{line}: {said:?}");
        assert!(!world.path().join("x").exists() && !world.path().join(".cargo").exists(), "{line}");
    }
    assert_eq!(is("third/x/.github/workflows/ci.yml"), "theirs");
}

#[tokio::test]
async fn links_that_policy_refuses_to_write_guard_what_they_lead_to() {
    let world = SandboxFixture::with(DEFAULT_POLICY).await;
    put(&world, &[("docs/instr.md", "ours"), ("scripts/pc", "ours"), (".husky/keep", "ours")]);
    std::os::unix::fs::symlink("docs/instr.md", world.path().join("CLAUDE.md")).unwrap();
    std::os::unix::fs::symlink("docs/absent.md", world.path().join("GEMINI.md")).unwrap();
    std::os::unix::fs::symlink("../scripts/pc", world.path().join(".husky/pre-commit")).unwrap();
    let line = "echo evil > docs/instr.md; echo evil > docs/absent.md; echo evil > scripts/pc; mv docs d2; mv scripts s2; \
                rm -f CLAUDE.md; echo evil > CLAUDE.md; ln -s /tmp CLAUDE.md; echo fine > docs/other; exit 0";
    world.sh(line).await;
    let is = |file: &str| fs::read_to_string(world.path().join(file)).unwrap_or_default();
    assert_eq!((is("docs/instr.md").as_str(), is("scripts/pc").as_str()), ("ours", "ours"));
    assert_eq!((is("docs/absent.md").as_str(), is("docs/other").as_str()), ("", "fine\n"));
    assert!(!world.path().join("CLAUDE.md").exists());
}

#[tokio::test]
async fn no_link_stands_for_a_folder_that_a_rule_of_the_users_speaks_of() {
    let world = SandboxFixture::with(
        "\
version: 1
rules:
  - { id: everything, effect: allow }
  - { id: prod, effect: deny, match: { tool: fs.write, path: [\"deploy/prod.yml\", \"infra/*/live/**\", \"**/keys/*.txt\"] } }
",
    )
    .await;
    put(&world, &[("deploy/prod.yml", "ours"), ("evil/prod.yml", "evil"), ("evil/a.txt", "evil")]);
    let lines = [
        "mv deploy d2; ln -s evil deploy",
        "ln -s evil infra",
        "mkdir infra; ln -s ../evil infra/a",
        "ln -s evil keys",
        "ln -s evil l; mv l keys",
        "mkdir f; ln -s ../evil f/keys; mv f g",
        "mkdir h; ln -s ../evil h/live; mv h infra/b",
    ];
    for line in lines {
        world.sh(&format!("{line}; exit 0")).await;
    }
    let is = |file: &str| fs::read_to_string(world.path().join(file)).unwrap_or_default();
    assert_eq!(is("deploy/prod.yml"), "ours");
    for absent in ["infra/a", "keys", "f/keys", "g/keys", "infra/b"] {
        assert!(!world.path().join(absent).is_symlink() && !world.path().join(absent).exists(), "{absent}");
    }
    assert_eq!(world.sh("ln -s evil free; cat free/prod.yml").await.output.text(), "evil");
}

#[tokio::test]
async fn a_folder_that_cannot_be_searched_is_not_called_policys() {
    let world = SandboxFixture::with(DEFAULT_POLICY).await;
    let deep = "import os\nfor i in range(140): os.mkdir('d'); os.chdir('d')\n";
    world.sh(&format!("python3 -c \"{deep}\"")).await;
    let outcome = world.sh("python3 -c \"import os; os.rename('d', 'e')\"; mv d f && ls").await;
    assert!(outcome.output.text().contains("Invalid cross-device link"), "{outcome:?}");
    assert!(world.path().join("f").exists() && !world.path().join("d").exists(), "`mv` copied it");
    let receipt = outcome.obtained.unwrap();
    assert_eq!(receipt["ended"]["refused_by_policy"], json!([]));
    assert_eq!(receipt["ended"]["refused_unsearched"], json!([world.path().join("d")]));
}

#[tokio::test]
async fn where_no_rule_is_about_writing_no_folder_is_searched() {
    let world = SandboxFixture::with("version: 1\nrules:\n  - { id: everything, effect: allow }\n").await;
    let deep = "import os\nfor i in range(140): os.mkdir('d'); os.chdir('d')\n";
    let line = format!("python3 -c \"{deep}\"; python3 -c \"import os; os.rename('d', 'e')\" && ls");
    assert_eq!(world.sh(&line).await.output.text(), "e\nsub\n");
}

#[tokio::test]
async fn m10_the_receipt_says_which_call_to_make_instead() {
    let world = SandboxFixture::with(DEFAULT_POLICY).await;
    let outcome = world.sh("mkdir -p ci && cd ci && echo evil > Jenkinsfile; exit 3").await;
    let Status::Failed(failure) = &outcome.status else { panic!("{outcome:?}") };
    assert!(
        failure.message.contains("`ci/Jenkinsfile`") && failure.message.contains("`fs.write`"),
        "{failure:?}"
    );
    let receipt = outcome.obtained.unwrap();
    assert_eq!(receipt["ended"]["refused_by_policy"], json!(["ci/Jenkinsfile"]));
    assert_eq!(receipt["ended"]["refused"], json!([]));
}

#[tokio::test]
async fn m10_git_works_under_a_policy_that_denies_its_folder_to_fs_write() {
    let world = SandboxFixture::with(DEFAULT_POLICY).await;
    fs::create_dir_all(world.path().join(".git/objects")).unwrap();
    fs::create_dir_all(world.path().join(".git/refs/heads")).unwrap();
    fs::write(world.path().join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(world.path().join(".git/config"), "[core]\nrepositoryformatversion = 0\n").unwrap();
    let line = "echo a > a && git add a && git -c user.name=a -c user.email=a@b commit -qm one && git log --format=%s";
    assert_eq!(world.sh(line).await.output.text(), "one\n");
}

#[tokio::test]
async fn m10_rules_of_a_user_hold_for_programs_too() {
    let world = SandboxFixture::with(
        "\
version: 1
rules:
  - { id: everything, effect: allow }
  - { id: schema, effect: ask, match: { tool: fs.write, path: \"db/migrations/*.sql\" } }
",
    )
    .await;
    put(&world, &[("db/migrations/1.sql", "ours")]);
    let line = "echo evil > db/migrations/1.sql; echo evil > db/migrations/2.sql; \
                mkdir -p new/migrations; echo evil > new/migrations/3.sql; mv db old; mv new db; echo x > plain";
    world.sh(line).await;
    let is = |file: &str| fs::read_to_string(world.path().join(file)).unwrap_or_default();
    assert!(!is("db/migrations/1.sql").contains("evil"));
    assert_eq!((is("db/migrations/2.sql"), is("db/migrations/3.sql")), (String::new(), String::new()));
    assert_eq!(is("plain"), "x\n");
}

#[tokio::test]
async fn m10_a_policy_that_asks_about_every_write_makes_the_workspace_read_only() {
    let world = SandboxFixture::with(
        "\
version: 1
rules:
  - { id: everything, effect: allow }
  - { id: all, effect: ask, match: { tool: fs.write, path: \"**\" } }
",
    )
    .await;
    for at in 0..1100 {
        put(&world, &[(&format!("many/{at}"), "ours")]);
    }
    world.sh("echo evil > many/1; echo evil > new; rm many/2").await;
    assert_eq!(fs::read_to_string(world.path().join("many/1")).unwrap(), "ours");
    assert!(world.path().join("many/2").exists() && !world.path().join("new").exists());
}

/// Shows files and folders of the workspace one by one, as a skill's grants do.
struct Grants(ProcessTier);

impl Executor<tier::Process> for Grants {
    fn execute<'s>(
        &'s self,
        permit: Permit<'s, tier::Process>,
    ) -> BoxFuture<'s, Result<RawOutput, ExecuteError>> {
        let root = permit.workspace().root().to_path_buf();
        Box::pin(self.0.run(permit, false, move |spec| {
            let at = |name: &str| -> PathBuf { root.join(name) };
            spec.argv = ["/bin/sh", "-c", "cat ../notes.txt ../dir/notes.txt ../plain; exit 0"]
                .map(Into::into)
                .into();
            spec.binds = ["notes.txt", "dir", "plain"].map(|name| Bind::same(at(name))).into();
            spec.workspace = Some(WorkspaceMount::new(at("out"), true));
            spec.cwd = at("out");
        }))
    }
}

#[tokio::test]
async fn h6_a_skill_reads_no_file_that_policy_denies() {
    let policy = "\
version: 1
rules:
  - { id: everything, effect: allow }
  - { id: notes, effect: deny, match: { tool: fs.read, path: \"**/notes.txt\" } }
";
    let world =
        SandboxFixture::made(policy, std::sync::Arc::new(Grants(ProcessTier::new(Floor::Full)))).await;
    put(&world, &[("notes.txt", "secret"), ("dir/notes.txt", "secret"), ("plain", "shown"), ("out/x", "")]);
    let said = world.sh("anything").await.output.text().into_owned();
    assert!(said.contains("shown") && !said.contains("secret"), "{said}");
}
