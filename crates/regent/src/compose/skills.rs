//! The skills of a project, and the tools that they bring.

use std::sync::Arc;

use regent_kernel::{Catalogue, ToolSpec};
use regent_skills::{SkillTiers, SkillTools, Skills};
use regent_tools::tool_set;

use super::ToolTiers;
use crate::context::Context;
use crate::failure::Failure;
use crate::paths::Project;
use crate::term;
use crate::trust::Trust;

/// Tools of projects that are trusted, and one of each family that grows: a rule may speak of them wherever it is read.
const ELSEWHERE: &[&str] = &[
    "audit.erase",
    "gc.remove",
    "model.pull",
    "package.download",
    "skill.list",
    "skill.read",
    "skill.install",
    "skill.remove",
    "skill.any",
    "tool.generate",
    "tool.rollback",
    "tool.remove",
    "gen.any",
];

/// The skills of a project. The caller has checked that it is trusted.
pub(crate) fn open(context: &Context, project: &Project) -> Result<Skills, Failure> {
    let staging = context.paths.state.join("staged");
    let pins = context.paths.skill_pins(&project.root);
    Ok(Skills::open(&project.folder(), &staging, &pins, context.settings.trusted_keys())?)
}

/// The skills' own tools, and a tool for each that has something to run. One that isn't what was installed is left out, loudly.
pub(super) fn admit(
    context: &Context,
    catalogue: &Catalogue,
    tools: &Arc<SkillTools>,
) -> Result<(), Failure> {
    super::admit(catalogue, tool_set("skills", regent_skills::host_tools(tools)))?;
    for (name, _) in tools.skills().all() {
        if let Err(error) = tools.admit(catalogue, &name) {
            let (why, name) = (error.to_string(), term::inline(&name).into_owned());
            context.screen.say(&format!(
                "regent: {}; for details run `regent skill verify {name}`\n",
                term::inline(&why)
            ));
        }
    }
    Ok(())
}

/// What can be called in this project: the built-in tools, and those of its skills if the folder is trusted.
pub(crate) fn specs(context: &Context) -> Result<Vec<ToolSpec>, Failure> {
    let mut specs = regent_tools::specs();
    specs.push(regent_runtime::snapshot::restore_spec());
    if let Ok(project) = context.project()
        && Trust::demand(&context.paths, &project).is_ok()
    {
        let skills = Arc::new(open(context, &project)?);
        let tools = Arc::new(SkillTools::new(Arc::clone(&skills), SkillTiers::default()));
        specs.extend(regent_skills::host_tools(&tools).iter().map(|tool| tool.spec()));
        specs.extend(skills.specs());
        if let Some(generated) = super::generated::open(context, &project, &ToolTiers::new(context)) {
            specs.extend(regent_tools::generated::host_tools(&generated).iter().map(|tool| tool.spec()));
            specs.extend(generated.specs());
        }
    }
    Ok(specs)
}

/// The names that a rule may speak of: what can be called here, and one of each family that grows.
pub(crate) fn tool_names(context: &Context) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = specs(context)?.into_iter().map(|spec| spec.name).collect();
    names.extend(ELSEWHERE.iter().map(|name| (*name).to_owned()));
    Ok(names)
}
