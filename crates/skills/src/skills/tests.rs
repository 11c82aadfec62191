//! Installing, checking, updating and removing skills, and files that change in between.

use super::*;

struct SkillsFixture {
    folder: tempfile::TempDir,
}

impl SkillsFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join(".regent")).unwrap();
        Self { folder }
    }

    fn skills(&self) -> Skills {
        let root = self.folder.path();
        Skills::open(&root.join(".regent"), &root.join("staged"), &self.pins(), Vec::new()).unwrap()
    }

    fn pins(&self) -> PathBuf {
        self.folder.path().join("state/pins.json")
    }

    fn file(&self, path: &str) -> PathBuf {
        let place = self.folder.path().join(".regent/skills/pdf");
        if path.is_empty() { place } else { place.join(path) }
    }
}

fn package(version: &str, permissions: &str) -> Package {
    let head = format!(
        "---\nname: pdf\ndescription: Reads PDFs.\nversion: {version}\nruntime: process\nentrypoint: run.sh\n{permissions}---\nHow.\n"
    );
    Package::default().with_file("SKILL.md", head.into_bytes()).with_file("run.sh", b"cat\n".to_vec())
}

fn install(skills: &Skills, package: &Package, granted: &[&str]) -> Result<Plan, SkillError> {
    let granted: Permissions = granted.iter().map(|one| one.parse().unwrap()).collect();
    let digest = Manifest::from_package(package).digest().unwrap();
    let agreed = InstallApproval {
        digest,
        source: "test",
        granted: &granted,
        findings_accepted: false,
        by_agent: false,
    };
    skills.install(package, &agreed)
}

#[test]
fn the_next_process_sees_installed_skills() {
    let world = SkillsFixture::new();
    install(&world.skills(), &package("1.0.0", "permissions: {filesystem: {read: [docs]}}\n"), &["read:."])
        .unwrap();
    let checked = world.skills().check("pdf").unwrap();
    let granted: Vec<String> = checked.granted.iter().map(ToString::to_string).collect();
    assert_eq!(granted, ["read:docs"], "what it asked for, not all that was offered");
    let spec = checked.spec().unwrap();
    assert_eq!((spec.name.as_str(), spec.tiers.as_slice()), ("skill.pdf", &[Tier::Process][..]));
    assert_eq!(spec.capabilities, ["skill.run", "skill.community", "file.read"]);
    assert!(spec.version.starts_with("1.0.0+"), "{}", spec.version);
    world.skills().remove("pdf").unwrap();
    assert!(!world.file("").exists());
    assert!(matches!(world.skills().check("pdf"), Err(SkillError::Unknown(_))));
    assert!(matches!(world.skills().remove("../../etc"), Err(SkillError::Unknown(_))));
}

#[test]
fn rejects_tampering_and_names_the_file() {
    use std::os::unix::fs::PermissionsExt as _;
    type Tamper = fn(&SkillsFixture);
    let cases: [(&str, Tamper); 6] = [
        ("`run.sh` has changed", |world| {
            let path = world.file("run.sh");
            let times = std::fs::metadata(&path).unwrap().modified().unwrap();
            std::fs::write(&path, "sh\n\n").unwrap();
            // Same size, same time: the check has no shortcut.
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
        }),
        ("`run.sh` has changed", |world| {
            std::fs::set_permissions(world.file("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        }),
        ("`extra.sh` was added", |world| std::fs::write(world.file("extra.sh"), "x").unwrap()),
        ("`run.sh` is missing", |world| std::fs::remove_file(world.file("run.sh")).unwrap()),
        ("neither a file nor a folder", |world| {
            std::fs::remove_file(world.file("run.sh")).unwrap();
            std::os::unix::fs::symlink("/bin/cat", world.file("run.sh")).unwrap();
        }),
        ("is a link", |world| {
            std::fs::rename(world.file(""), world.folder.path().join("moved")).unwrap();
            std::os::unix::fs::symlink(world.folder.path().join("moved"), world.file("")).unwrap();
        }),
    ];
    for (why, tamper) in cases {
        let world = SkillsFixture::new();
        let skills = world.skills();
        install(&skills, &package("1.0.0", ""), &[]).unwrap();
        skills.check("pdf").unwrap();
        tamper(&world);
        let error = skills.check("pdf").unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(skills.specs().is_empty(), "{why}");
    }
}

#[test]
fn adv_070_an_update_with_new_permissions_needs_new_grants() {
    let world = SkillsFixture::new();
    let skills = world.skills();
    let narrow = package("1.0.0", "permissions: {filesystem: {read: [docs]}}\n");
    let wide = package(
        "1.1.0",
        "permissions: {filesystem: {read: [docs]}, network: allow, shell: {default: allow}}\n",
    );
    assert!(
        matches!(install(&skills, &narrow, &[]), Err(SkillError::NotGranted { wanted, .. }) if wanted == "read:docs")
    );
    assert!(!world.file("").exists(), "nothing is written before it is granted");
    install(&skills, &narrow, &["read:docs"]).unwrap();
    let plan = skills.plan(&wide).unwrap();
    let new: Vec<String> = plan.new_permissions.iter().map(ToString::to_string).collect();
    assert_eq!(new, ["network:*", "shell"]);
    assert!(
        matches!(install(&skills, &wide, &["shell"]), Err(SkillError::NotGranted { wanted, .. }) if wanted == "network:*")
    );
    assert_eq!(skills.check("pdf").unwrap().skill.version, "1.0.0", "the old one is still in force");
    install(&skills, &wide, &["shell", "network:*"]).unwrap();
    assert_eq!(skills.check("pdf").unwrap().skill.version, "1.1.0");
    // A narrower update drops the grant; requesting it later needs a new approval.
    install(&skills, &narrow, &[]).unwrap();
    assert!(install(&skills, &wide, &[]).is_err());
    // `allowed-tools: *` is an ordinary request, and the scan reports it.
    let all = package("2.0.0", "allowed-tools: '*'\n");
    assert!(matches!(install(&skills, &all, &["tool:*"]), Err(SkillError::Blocked(_))));
}

#[test]
fn installs_only_the_reviewed_package() {
    let world = SkillsFixture::new();
    let granted = Permissions::new();
    let agreed = InstallApproval {
        digest: Manifest::from_package(&package("1.0.0", "")).digest().unwrap(),
        source: "test",
        granted: &granted,
        findings_accepted: true,
        by_agent: true,
    };
    let swapped = package("1.0.0", "").with_file("run.sh", b"evil\n".to_vec());
    assert!(matches!(world.skills().install(&swapped, &agreed), Err(SkillError::Swapped { .. })));
    let plan = world.skills().install(&package("1.0.0", ""), &agreed).unwrap();
    assert_eq!(plan.trust, Trust::Generated, "an agent brought it");
}

#[test]
fn reports_a_damaged_lock() {
    let world = SkillsFixture::new();
    let lock = world.folder.path().join(".regent/skills.lock");
    for text in [
        "",
        "{",
        "[]",
        "{\"schema\":\"other\",\"skills\":{}}",
        "{\"schema\":\"regent.skills/v1\",\"skills\":{},\"x\":1}",
        "{\"schema\":\"regent.skills/v1\",\"schema\":\"regent.skills/v1\",\"skills\":{}}",
    ] {
        std::fs::write(&lock, text).unwrap();
        let root = world.folder.path();
        let opened = Skills::open(&root.join(".regent"), root, &world.pins(), Vec::new());
        assert!(matches!(opened, Err(SkillError::Lock(_))), "{text}");
    }
}

#[test]
fn concurrent_installations_lose_nothing() {
    let world = SkillsFixture::new();
    let names: Vec<String> = (0..8).map(|index| format!("s{index}")).collect();
    std::thread::scope(|scope| {
        for name in &names {
            let skills = world.skills();
            scope.spawn(move || {
                let text = format!("---\nname: {name}\ndescription: x\n---\n");
                install(&skills, &Package::default().with_file("SKILL.md", text.into_bytes()), &[]).unwrap();
            });
        }
    });
    assert_eq!(world.skills().all().into_iter().map(|(name, _)| name).collect::<Vec<_>>(), names);
    assert!(world.skills().check_all().iter().all(|(_, checked)| checked.is_ok()));
    let left = std::fs::read_dir(world.folder.path().join(".regent/skills")).unwrap().count();
    assert_eq!(left, names.len(), "no drafts are left");
}

#[test]
fn c4_a_lock_that_came_with_the_project_grants_nothing() {
    let world = SkillsFixture::new();
    install(
        &world.skills(),
        &package("1.0.0", "permissions: {filesystem: {write: [.]}, shell: {default: allow}}\n"),
        &["write:.", "shell"],
    )
    .unwrap();
    // The project as another user receives it, with the claims of an older lock.
    std::fs::remove_file(world.pins()).unwrap();
    let lock = world.folder.path().join(".regent/skills.lock");
    let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(&lock).unwrap()).unwrap();
    value["schema"] = json!("regent.skills/v1");
    value["skills"]["pdf"]["trust"] = json!("verified");
    value["skills"]["pdf"]["signer"] = json!("Somebody Else");
    value["skills"]["pdf"]["granted"] = json!(["shell", "write:."]);
    std::fs::write(&lock, value.to_string()).unwrap();

    let skills = world.skills();
    assert!(matches!(skills.check("pdf"), Err(SkillError::Unagreed(_))));
    assert!(skills.specs().is_empty());
    let plan = skills.plan(&package("1.0.0", "permissions: {shell: {default: allow}}\n")).unwrap();
    assert_eq!(plan.new_permissions.len(), 1, "what a lock says was granted is not granted");

    let offered: Vec<Offered> = skills.offered().into_iter().map(|(_, one)| one.unwrap()).collect();
    let wants: Vec<String> = offered[0].wants.iter().map(ToString::to_string).collect();
    assert_eq!((wants.join(" ").as_str(), offered[0].is_agreed), ("write:. shell", false));
    skills.agree(&offered).unwrap();
    let checked = world.skills().check("pdf").unwrap();
    assert_eq!((checked.trust, checked.signer), (Trust::Community, None), "trust is computed");
    assert!(world.skills().offered()[0].1.as_ref().unwrap().is_agreed);
}

#[test]
fn c4_rejects_files_and_lock_changed_together() {
    let world = SkillsFixture::new();
    let skills = world.skills();
    install(&skills, &package("1.0.0", ""), &[]).unwrap();
    // Another user installs other content under the same name, and this project receives files and lock.
    let other = SkillsFixture::new();
    install(&other.skills(), &package("1.0.0", "permissions: {shell: {default: allow}}\n"), &["shell"])
        .unwrap();
    for name in ["skills.lock", "skills/pdf/SKILL.md", "skills/pdf/run.sh"] {
        let from = other.folder.path().join(".regent").join(name);
        std::fs::copy(from, world.folder.path().join(".regent").join(name)).unwrap();
    }
    assert!(matches!(world.skills().check("pdf"), Err(SkillError::NotAgreed { .. })));
}

#[test]
fn c4_the_signature_is_checked_at_each_load() {
    let world = SkillsFixture::new();
    let key = regent_ledger::LedgerKey::from_seed(&[7; 32]);
    let signed = package("1.0.0", "");
    let note = crate::sign(&signed, "ada", &key).unwrap();
    let signed = signed.with_file(crate::SIGNATURE_FILE, note.into_bytes());
    install(&world.skills(), &signed, &[]).unwrap();
    assert_eq!(world.skills().check("pdf").unwrap().trust, Trust::Community, "the key is not trusted yet");
    let trusted = TrustedKey::parse(&key.public().vkey("ada")).unwrap();
    let root = world.folder.path();
    let open = |keys| Skills::open(&root.join(".regent"), &root.join("staged"), &world.pins(), keys).unwrap();
    let checked = open(vec![trusted]).check("pdf").unwrap();
    assert_eq!((checked.trust, checked.signer.as_deref()), (Trust::Verified, Some("ada")));
    assert_eq!(open(Vec::new()).check("pdf").unwrap().trust, Trust::Community, "a key that is taken back");
}
