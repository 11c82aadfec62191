//! Commands whose words are the names of all that they run. Everything else may run files that it doesn't name, so it is
//! better to list what is plain than what isn't: a shell has more ways to make a name than any list has.

/// Programs that run the file that they are given first, unless an option says otherwise.
const INTERPRETERS: &str = "ash bash bun csh dash deno elvish fish guile ksh lua luajit mksh node nu oksh osh perl php posh pwsh \
    python R rbash Rscript ruby sh tclsh tcsh wish xonsh yash zsh";
/// Programs that run other programs, lines, or names that they make. Where one of them is at work the names of files don't tell much.
pub(crate) const RUNNERS: &str = ". alias at awk batch builtin busybox chroot command cp crontab doas ed emacs entr env eval ex exec \
    expect fd fdfind find flock gawk gdb gsed install ionice less ln ltrace mawk mv nawk nice nohup \
    nsenter nvim parallel rsync run-parts script sed setarch setpriv setsid source ssh stdbuf strace su \
    sudo tar taskset time timeout toybox trap unshare vi view vim watch xargs";
/// What git does without running what its words or other files say, beside the hooks that no agent can write.
const GIT_COMMANDS: &[&str] = &[
    "add", "branch", "checkout", "clone", "commit", "diff", "fetch", "init", "log", "merge", "mv", "pull",
    "push", "remote", "reset", "restore", "rm", "show", "stash", "status", "switch", "tag",
];

/// Whether a line for a shell is one plain command, perhaps after a change of folder: no quotes, no variables, nothing that a shell
/// would expand, and no second command that could make what the first one runs.
pub(crate) fn is_plain_line(line: &str) -> bool {
    let mut rest = line.trim_matches([' ', '\t', '\n']);
    while let Some((folder, command)) = rest.strip_prefix("cd ").and_then(|rest| rest.split_once("&&")) {
        if !is_plain_word(folder.trim_matches([' ', '\t'])) {
            return false;
        }
        rest = command.trim_start_matches([' ', '\t']);
    }
    let words: Vec<&str> = rest.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    words.iter().all(|word| is_plain_word(word)) && is_plain_command(&words)
}

/// The same for a list of arguments, which no shell reads.
pub(crate) fn is_plain_argv(argv: &[String]) -> bool {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let is_path = words.first().is_some_and(|program| program.contains('/'));
    // A program of the workspace may be anything under another name.
    (!is_path || words.iter().all(|word| is_plain_word(word))) && is_plain_command(&words)
}

fn is_plain_command(words: &[&str]) -> bool {
    let [program, rest @ ..] = words else { return false };
    let name = program.rsplit('/').next().unwrap_or(program);
    let plain = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || ".-".contains(letter));
    let is_one_of = |list: &str| list.split(' ').any(|one| one == name || one == plain);
    if program.contains('=') || is_one_of(RUNNERS) {
        return false;
    }
    if is_one_of(INTERPRETERS) {
        return rest.first().is_some_and(|file| !file.starts_with(['-', '+']));
    }
    match name {
        "make" | "gmake" => !rest.iter().any(|word| word.starts_with('-') || word.contains('=')),
        "git" => rest.first().is_some_and(|command| GIT_COMMANDS.contains(command)),
        _another => true,
    }
}

/// A word that means itself to every shell.
fn is_plain_word(word: &str) -> bool {
    !word.is_empty()
        && word.chars().all(|letter| letter.is_ascii_alphanumeric() || "_./=:,@%+-".contains(letter))
}

#[cfg(test)]
mod tests {
    use super::{is_plain_argv, is_plain_line};

    #[test]
    fn h3_a_plain_line_names_all_that_it_runs() {
        for line in [
            "sh deploy.sh",
            "  ./deploy.sh --to=prod  ",
            "cd a && cd b && sh x.sh",
            "python3.12 tools/run.py a b",
            "make test",
            "git push origin main",
            "cargo test --workspace",
            "npm run build",
        ] {
            assert!(is_plain_line(line), "{line}");
        }
    }

    #[test]
    fn h3_whatever_makes_names_is_not_plain() {
        for line in [
            "",
            "cd a &&",
            "trap '. ./dep*' EXIT",
            "alias x='. ./dep*'\nx",
            "true ''#; . ./dep*",
            "true \u{a0}#; sh deploy.sh",
            "sh my\u{a0}script.sh",
            "sh [{d]eploy.sh",
            "sh {deploy,x[}.sh",
            "cp -r dir other; sh other/x.sh",
            "ln -s dir lnk && sh lnk/x.sh",
            "mv dir other\nsh other/x.sh",
            "printf x > t; . ./t",
            "bash <(printf x)",
            "sh -c deploy.sh",
            "sh",
            "python3 -Bmmod",
            "python3 -m unittest",
            "perl -I. -MEvil -e1",
            "make -sfMk",
            "make MAKEFILES=x.mk",
            "make --file=a.mk",
            "git -c core.pager=x log",
            "git submodule foreach x",
            "env sh x",
            "X=1 sh x",
            "sh $X",
            "ls | sh",
            "sh ~/x",
        ] {
            assert!(!is_plain_line(line), "{line}");
        }
    }

    #[test]
    fn h3_arguments_are_plain_by_their_program() {
        let plain =
            |words: &[&str]| is_plain_argv(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(plain(&["git", "commit", "-m", "fix: a typo"]));
        assert!(plain(&["psql", "-c", "select 1"]));
        assert!(plain(&["sh", "my script.sh"]));
        assert!(!plain(&["./run", "-c", ". ./dep*"]));
        assert!(!plain(&["bash", "-c", "sh x"]));
        assert!(!plain(&["env", "sh", "x"]));
        assert!(!plain(&[]));
    }
}
