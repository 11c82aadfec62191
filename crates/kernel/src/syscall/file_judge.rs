//! What policy says to reading or writing files of the workspace, asked of many files at once and answered without touching any.

use std::sync::Arc;

use regent_policy::{Access, Charge, Facts, Policy};
use serde_json::{Value, json};

use super::Fault;
use crate::agent::{CallSlot, Life};
use crate::call::{Call, Op, ToolCall};
use crate::catalogue::{Tool, ToolSpec};
use crate::facts::{Sheet, Target};
use crate::kernel::Core;
use crate::principal::Principal;

/// The tools that a program's own use of files is compared with, and their capabilities.
const READ: (&str, &str) = ("fs.read", "file.read");
const WRITE: (&str, &str) = ("fs.write", "file.write");

/// Judges `fs.read` or `fs.write` of many paths for the same caller. Nothing is recorded, and no rate or approval is
/// taken: nothing is done.
#[derive(Debug)]
pub struct FileJudge {
    core: Arc<Core>,
    call: Call,
    sheet: Sheet,
    access: Access,
    /// Later effects may come from untrusted input.
    is_wary: bool,
}

impl FileJudge {
    pub(super) async fn reading(core: &Arc<Core>, nested: impl FnOnce(Op) -> Call) -> Result<Self, Fault> {
        Self::new(core, nested, READ, Access::Read).await
    }

    pub(super) async fn writing(
        core: &Arc<Core>,
        nested: impl FnOnce(Op) -> Call,
        agreed: bool,
    ) -> Result<Self, Fault> {
        let mut judge = Self::new(core, nested, WRITE, Access::Write).await?;
        // What a misled agent left in the workspace acts through every agent that runs it.
        let work = judge.call.principal.life().map(Life::work);
        judge.is_wary = !agreed
            && match work.filter(|work| work.is_begun()) {
                Some(work) => work.is_tainted() || core.was_misled().await?,
                None => false,
            };
        Ok(judge)
    }

    async fn new(
        core: &Arc<Core>,
        nested: impl FnOnce(Op) -> Call,
        (tool, capability): (&str, &str),
        access: Access,
    ) -> Result<Self, Fault> {
        let call = nested(Op::RunTool(ToolCall { tool: tool.to_owned(), args: json!({"path": "."}) }));
        let mut sheet = core.facts(&call).await?;
        // It judges files that aren't named yet, so any rate may matter.
        let rates: Vec<Charge> = core.policy().policy.all_rates().collect();
        sheet.rates = core.counted(&call, &rates).await;
        if sheet.tool.is_none() {
            // A kernel without file tools still has rules about files.
            let spec = ToolSpec {
                name: tool.to_owned(),
                input: json!({}),
                capabilities: vec![capability.to_owned()],
                ..ToolSpec::default()
            };
            sheet.tool = Tool::undriven(spec).ok().map(Arc::new);
        }
        // A judge can live as long as a program. No call is made, so it holds no place in the session's count meanwhile.
        let session = sheet.slot.session;
        sheet.slot = CallSlot::default();
        sheet.slot.session = session;
        sheet.resources = vec![Target::Path { path: ".".to_owned(), access }];
        Ok(Self { core: Arc::clone(core), call, sheet, access, is_wary: false })
    }

    /// Whether no rule asks about or denies the access to a file, by its path in the workspace.
    ///
    /// A policy file without any rule about this access hides nothing: a policy that allows the program the workspace, and has no such
    /// rule, meant it to be used. Every policy file is asked, for the caller and for every agent above it.
    pub fn allows(&mut self, path: &str) -> bool {
        if let Some(slot) = self.sheet.args.pointer_mut("/path") {
            *slot = Value::String(path.to_owned());
        } else {
            self.sheet.args = json!({"path": path});
        }
        self.sheet.resources = vec![Target::Path { path: path.to_owned(), access: self.access }];
        !self.each(|policy, facts| policy.hides(facts)).any(|hides| hides) && !self.holds_back(path)
    }

    /// Whether others may have had the idea to write this file, which runs later.
    fn holds_back(&self, path: &str) -> bool {
        self.is_wary && self.call.principal.life().is_some_and(|life| life.work().holds_back(path))
    }

    /// Whether there could be a path that isn't allowed.
    pub fn may_refuse(&self) -> bool {
        self.is_wary || self.each(|policy, facts| policy.may_hide(facts)).any(|hides| hides)
    }

    /// Example paths below this one that rules may match because of its location. Each still has to be judged.
    pub fn examples_below(&self, path: &str) -> Vec<String> {
        self.each(|policy, facts| policy.examples_below(facts, path)).flatten().collect()
    }

    /// What policy says for the caller, and for every agent above it.
    fn each<R>(&self, ask: impl Fn(&Policy, &Facts<'_>) -> R) -> impl Iterator<Item = R> {
        let Self { core, call, sheet, .. } = self;
        let said = core.with_facts(call, sheet, |policy, facts| {
            let above = call.principal.agents_above();
            let of_above = |above: &Principal| {
                ask(policy, &Facts { caller: above.as_caller(core.society.agents.trust(above)), ..facts })
            };
            let said: Vec<R> = [ask(policy, &facts)].into_iter().chain(above.map(of_above)).collect();
            said
        });
        said.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use regent_policy::{Layer, Policy, Source};
    use regent_store::MemoryState;

    use super::*;
    use crate::tests::shared::{ProjectFixture, policy_of};

    const USER: &str = "version: 1\nrules:\n  - { id: all, effect: allow }\n  - { id: env, effect: ask, match: { tool: fs.read, path: '**/.env' } }\n";
    const PROGRAMS: &str =
        "version: 1\nmode: strict\nrules:\n  - { id: p, effect: allow, match: { tool: [shell.exec] } }\n";

    async fn may_read(world: &ProjectFixture, caller: &Principal, path: &str) -> bool {
        let principal = caller.clone();
        let nested = |op| Call { principal, op, parent: None, depth: 1, within: Vec::new(), listener: None };
        FileJudge::reading(&world.kernel.0, nested).await.unwrap().allows(path)
    }

    async fn world(user: &str, project: Option<&str>) -> ProjectFixture {
        let world = ProjectFixture::new(user, Arc::new(MemoryState::default())).await;
        let project =
            project.map(|text| regent_policy::load(text, &Source::new("project", Layer::Project)).unwrap());
        world.kernel.replace_policy(Policy::layered(policy_of(user), project)).await.unwrap();
        world
    }

    #[tokio::test]
    async fn h6_a_strict_project_policy_does_not_open_what_the_user_asks_about() {
        let world = world(USER, Some(PROGRAMS)).await;
        let me = world.kernel.operator();
        assert!(!may_read(&world, &me, ".env").await);
        assert!(may_read(&world, &me, "plan.txt").await, "the project says nothing about reading");
    }

    #[tokio::test]
    async fn h6_a_policy_with_rules_about_reading_hides_what_none_of_them_allows() {
        for rule in [
            "{ id: src, effect: allow, match: { tool: fs.read, path: 'src/**' } }",
            "{ id: src, effect: allow, match: { path: 'src/**', access: read } }",
            "{ id: src, effect: allow, match: { any: [{ capability: file.read, path: 'src/**' }, { tool: x }] } }",
        ] {
            let world = world(&format!("{PROGRAMS}  - {rule}\n"), None).await;
            let me = world.kernel.operator();
            assert!(may_read(&world, &me, "src/main.rs").await, "{rule}");
            assert!(!may_read(&world, &me, "plan.txt").await, "{rule}");
        }
        let written = "  - { id: out, effect: allow, match: { path: 'out/**', access: write } }\n";
        let world = world(&format!("{PROGRAMS}{written}"), None).await;
        assert!(may_read(&world, &world.kernel.operator(), "plan.txt").await, "a rule about writing");
    }

    #[tokio::test]
    async fn h6_a_program_sees_no_more_than_every_agent_above_may_read() {
        let policy = "version: 1\nrules:\n  - { id: all, effect: allow, unless: { agent: boss, tool: fs.read } }\n  - { id: src, effect: allow, match: { agent: boss, tool: fs.read, path: 'src/**' } }\n";
        let world = world(policy, Some(PROGRAMS)).await;
        // The project's rules don't matter here; starting agents needs only the user's.
        world.kernel.replace_policy(policy_of(policy)).await.unwrap();
        let boss = world.agent(&world.kernel.operator(), "boss", None).await;
        let child = world.agent(&boss, "child", None).await;
        let both = Policy::layered(policy_of(policy), Some(policy_of(PROGRAMS)));
        world.kernel.replace_policy(both).await.unwrap();
        assert!(may_read(&world, &child, "src/main.rs").await);
        assert!(!may_read(&world, &child, "plan.txt").await);
        assert!(may_read(&world, &world.kernel.operator(), "plan.txt").await);
    }
}
