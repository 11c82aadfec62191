//! Who may ask for an operation at all: one table, as data. It is looked at before policy, and policy can only narrow it.

use regent_policy::{Class, Reason};
pub use regent_wire::PersonRole;

use crate::facts::refusal;
use crate::principal::Principal;

/// Who may ask for one operation.
struct Access {
    /// The roles of people.
    people: &'static [PersonRole],
    /// The classes of programs.
    programs: &'static [Class],
}

const fn access(people: &'static [PersonRole], programs: &'static [Class]) -> Access {
    Access { people, programs }
}

const EVERYBODY: &[PersonRole] = PersonRole::ALL;
const RUNS: &[PersonRole] = &[PersonRole::Operator, PersonRole::Admin];
const APPROVES: &[PersonRole] = &[PersonRole::Approver, PersonRole::Admin];
const ADMIN: &[PersonRole] = &[PersonRole::Admin];
const NO_ROLE: &[PersonRole] = &[];

const NO_PROGRAM: &[Class] = &[];
const AGENTS: &[Class] = &[Class::Agent];
const AGENTS_AND_SERVICES: &[Class] = &[Class::Agent, Class::Service];
const PROGRAMS: &[Class] = &[Class::Agent, Class::Service, Class::Peer];

/// Every operation. One that isn't in here is refused to everybody, and a test finds it.
const ACCESS: &[(&str, Access)] = &[
    ("tool.run", access(RUNS, PROGRAMS)),
    ("tool.elsewhere", access(RUNS, AGENTS)),
    // A service begins requests for agents that it started itself; `rules.rs` sees to that.
    ("request.begin", access(RUNS, &[Class::Service])),
    ("label.declassify", access(APPROVES, NO_PROGRAM)),
    ("model.infer", access(RUNS, AGENTS_AND_SERVICES)),
    ("memory.remember", access(RUNS, AGENTS)),
    ("memory.recall", access(RUNS, AGENTS)),
    ("vfs.open", access(RUNS, AGENTS)),
    ("vfs.close", access(RUNS, AGENTS)),
    ("vfs.read", access(RUNS, AGENTS)),
    ("vfs.write", access(RUNS, AGENTS)),
    ("vfs.stat", access(EVERYBODY, AGENTS)),
    ("vfs.list", access(EVERYBODY, AGENTS)),
    ("vfs.mount", access(RUNS, AGENTS)),
    ("vfs.unmount", access(RUNS, AGENTS)),
    ("agent.spawn", access(RUNS, AGENTS_AND_SERVICES)),
    ("agent.wait", access(RUNS, AGENTS_AND_SERVICES)),
    ("agent.exit", access(NO_ROLE, AGENTS)),
    ("agent.list", access(EVERYBODY, AGENTS_AND_SERVICES)),
    ("pipe.open", access(RUNS, AGENTS)),
    ("pipe.send", access(RUNS, AGENTS)),
    ("pipe.recv", access(RUNS, AGENTS)),
    ("signal.send", access(RUNS, AGENTS_AND_SERVICES)),
    ("signal.action", access(NO_ROLE, AGENTS)),
    ("signal.mask", access(NO_ROLE, AGENTS)),
    ("signal.pending", access(NO_ROLE, AGENTS)),
    ("policy.get", access(EVERYBODY, PROGRAMS)),
    ("policy.check", access(EVERYBODY, PROGRAMS)),
    ("approval.answer", access(APPROVES, NO_PROGRAM)),
    ("approval.list", access(EVERYBODY, NO_PROGRAM)),
    ("budget.set", access(ADMIN, NO_PROGRAM)),
    ("token.create", access(ADMIN, NO_PROGRAM)),
    ("token.list", access(ADMIN, NO_PROGRAM)),
    ("token.revoke", access(ADMIN, NO_PROGRAM)),
    // Who isn't an admin rotates the token that they have presented; `rules.rs` sees to that.
    ("token.rotate", access(EVERYBODY, PROGRAMS)),
    ("auth.whoami", access(EVERYBODY, PROGRAMS)),
];

impl Principal {
    /// Whether this is a person whose answer to a question counts.
    pub fn may_approve(&self) -> bool {
        self.class() == Class::Operator && refuses(self, "approval.answer").is_none()
    }
}

/// Why a caller may not ask for an operation, whatever policy says.
pub(crate) fn refuses(who: &Principal, op: &str) -> Option<Reason> {
    let Some((_, access)) = ACCESS.iter().find(|(name, _)| *name == op) else {
        return Some(refusal("auth.unlisted", format!("nobody may ask for `{op}`: it is in no role"), ""));
    };
    match who.class() {
        // The kernel acts on its own account, and no caller can present its identity.
        Class::Kernel => None,
        Class::Operator => {
            let role = who.role();
            if role.is_some_and(|role| access.people.contains(&role)) {
                return None;
            }
            let needed: Vec<&str> = access.people.iter().map(|role| role.as_str()).collect();
            let (name, role) = (who.sponsor(), role.map_or("nobody", PersonRole::as_str));
            let message = format!("`{}` has the role `{role}`, which may not do `{op}`", name.escape_debug());
            Some(refusal("auth.role", message, &format!("requires the role {}", needed.join(" or "))))
        }
        Class::Agent | Class::Service | Class::Peer => {
            let fine = access.programs.contains(&who.class());
            let message = || format!("`{op}` is not for callers of the class `{}`", who.class());
            (!fine).then(|| refusal("auth.class", message(), ""))
        }
    }
}

/// What only an admin may do, beside the operations above.
pub(crate) fn demands_admin(who: &Principal, what: &str) -> Option<Reason> {
    let fine = who.class() == Class::Operator && who.role() == Some(PersonRole::Admin);
    let message = || format!("{what} is for an admin");
    (!fine).then(|| refusal("auth.role", message(), "requires the role admin"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Op;

    #[test]
    fn every_operation_is_in_the_table_once() {
        let sorted = |mut names: Vec<&'static str>| {
            names.sort_unstable();
            names
        };
        let listed = ACCESS.iter().map(|(name, _)| *name).collect();
        assert_eq!(sorted(listed), sorted(Op::NAMES.to_vec()));
    }

    #[test]
    fn no_program_approves_sets_budgets_or_manages_tokens() {
        for (name, access) in ACCESS {
            let is_for_people = name.starts_with("approval.")
                || ["budget.set", "label.declassify", "token.create", "token.list", "token.revoke"]
                    .contains(name);
            assert!(!is_for_people || access.programs.is_empty(), "{name}");
            let may_all = access.people.is_empty() || access.people.contains(&PersonRole::Admin);
            assert!(may_all, "an admin may do what anybody may: {name}");
        }
    }
}
