//! Which names in a command may lead to files. Pure: whether they do is looked up by the caller.
//!
//! A word too many costs a failed open. A word too few would leave a file out of what an approval is bound to. So this splits a line in
//! every way that a shell or a program might, instead of guessing the one that it will. Where names are made at run time no reading
//! finds them; [`Words::is_open`] says so.

mod open;

use std::collections::BTreeSet;

use crate::command::plain::{is_plain_argv, is_plain_line};
use crate::command::shell::{ShellLine, is_assignment};

/// Candidates that one call may have. More than this can't be bound.
pub(crate) const WORDS_MAX: usize = 4_096;
/// Fields of one word (`--a=b:c,d`) of which every range is tried. In a word with more, any range may be a name.
const FIELDS_MAX: usize = 12;
/// Letters before the value of a bundle of short options (`-sfMakefile`).
const BUNDLE_MAX: usize = 24;
/// Linux opens no longer path.
const PATH_BYTES_MAX: usize = 4_095;
/// Lines within words of lines (`sh -c "sh -c '…'"`) that are read.
const NESTED_MAX: u8 = 6;

/// The names in a command.
#[derive(Debug, Default)]
pub(crate) struct Words {
    /// Everything that may be a path.
    pub all: BTreeSet<String>,
    /// It isn't one plain command, so it may run what no word of it names.
    is_unplain: bool,
    /// The first line for a shell that isn't.
    unplain_line: Option<String>,
    /// A shell makes further names of it, or there is more than was read.
    expands: bool,
    /// A word of it would be expanded if a program took it for a shell line.
    nested_expands: bool,
    /// A command reads what another one writes.
    pipes: bool,
    /// A word of it is no plain name, so it may be a program's text.
    has_code: bool,
    /// An interpreter has an option that gives it code or a module (`-e`, `-M`).
    has_code_option: bool,
    /// A line runs a script in the shell itself (`. x`).
    sources: bool,
    /// A line has several commands.
    is_sequence: bool,
    /// What the programs are really called that words of it lead to by links.
    programs: BTreeSet<String>,
    /// It runs a file of the workspace, which may be any program.
    runs_own: bool,
}

/// Programs and builtins that take words, or what they read, for shell lines. A loader runs any file as a program.
const SHELLS: &str = "sh ash bash busybox csh dash elvish fish ksh mksh nu oksh osh posh pwsh rbash tcsh toybox xonsh yash \
    zsh at batch crontab ed emacs env ex expect flock gdb git less make gmake nvim rsync script ssh su \
    sudo tar vi vim watch alias bind complete fc mapfile readarray trap ld.so ld-linux.so.2 \
    ld-linux-x86-64.so.2 ld-linux-aarch64.so.1 ld-musl-x86_64.so.1 ld-musl-aarch64.so.1";
/// Programs that take words, or what they read, for code in a language of their own.
const INTERPRETERS: &str = "python node bun deno ruby perl php lua luajit tclsh wish R Rscript guile";
/// Programs that make names of what they find or read, whatever their words look like.
const NAME_MAKERS: &str = "awk gawk mawk nawk entr eval fd fdfind find parallel run-parts sed gsed xargs pytest unittest nose2 \
    doctest runpy";
/// Programs, and commands of git, that put files under other names or bring new ones. A later command of the same line can run those.
const FILE_MAKERS: &str = "cp mv ln link install rsync dd tee patch tar bsdtar cpio unzip 7z gunzip bunzip2 unxz unzstd curl \
    wget mount split csplit sponge checkout switch restore stash pull merge rebase apply cherry-pick \
    revert reset clone worktree";

/// Files that a program reads as its script by default, from its working folder.
const IMPLIED: &[(&str, &str)] = &[
    ("make", "GNUmakefile makefile Makefile"),
    ("gmake", "GNUmakefile makefile Makefile"),
    ("npm", "package.json .npmrc"),
    ("npx", "package.json .npmrc"),
    ("yarn", "package.json .yarnrc .yarnrc.yml"),
    ("pnpm", "package.json .npmrc pnpm-workspace.yaml .pnpmfile.cjs"),
    ("bun", "package.json bunfig.toml"),
    ("deno", "deno.json deno.jsonc"),
    ("cargo", "Cargo.toml build.rs .cargo/config.toml .cargo/config rust-toolchain.toml rust-toolchain"),
    ("just", "justfile Justfile .justfile"),
    ("task", "Taskfile.yml Taskfile.yaml"),
    ("rake", "Rakefile rakefile"),
    ("ninja", "build.ninja"),
    ("cmake", "CMakeLists.txt"),
    ("meson", "meson.build"),
    ("gradle", "build.gradle build.gradle.kts settings.gradle"),
    ("gradlew", "build.gradle build.gradle.kts settings.gradle gradle/wrapper/gradle-wrapper.properties"),
    ("mvn", "pom.xml"),
    ("go", "go.mod go.work"),
    ("pytest", "conftest.py pytest.ini pyproject.toml setup.cfg tox.ini"),
    ("tox", "tox.ini pyproject.toml setup.py setup.cfg"),
    ("nox", "noxfile.py"),
    ("pip", "setup.py pyproject.toml setup.cfg"),
    ("docker", "Dockerfile compose.yaml docker-compose.yml"),
    ("terraform", "main.tf"),
];
/// What an interpreter adds to a name.
const ENDINGS: &[(&str, &[&str])] = &[
    ("python", &[".py", "/__main__.py", "/__init__.py"]),
    ("node", &[".js", ".cjs", ".mjs", "/index.js", "/package.json"]),
    ("bun", &[".ts", ".js", "/index.ts"]),
    ("ruby", &[".rb"]),
    ("perl", &[".pm", ".pl"]),
    ("lua", &[".lua"]),
];
/// Letters of an interpreter's options that give it code, or modules to load first.
const CODE_LETTERS: &str = "ceEMrp";
const CODE_OPTIONS: &[&str] = &["--eval", "--print", "--require", "--import", "--loader", "--test", "--run"];

impl Words {
    /// An argument list. A word with blanks may be a line for a shell (`sh -c "…"`).
    pub(crate) fn add_argv(&mut self, argv: &[String]) {
        for word in argv {
            self.add_word(word, 0);
        }
        self.has_code_option |= has_code_option(argv);
        self.is_unplain |= !is_plain_argv(argv);
        self.add_implied();
    }

    /// What a word of it leads to by links: a program under its own name, outside of the workspace.
    pub(crate) fn add_program(&mut self, name: &str) {
        self.programs.insert(name.to_owned());
    }

    /// A word of it names a program in the workspace. How that program reads its words is unknown.
    pub(crate) fn add_own_program(&mut self) {
        self.runs_own = true;
    }

    /// A line for a shell.
    pub(crate) fn add_line(&mut self, line: &str) {
        self.expands |= self.read(line, 0);
        if !is_plain_line(line) {
            self.is_unplain = true;
            self.unplain_line.get_or_insert_with(|| line.to_owned());
        }
        self.add_implied();
    }

    /// Text that a program is given beside its arguments: its input, or a variable. It may be a line for a shell, or data of any size.
    pub(crate) fn add_input(&mut self, text: &str) {
        let mut own = Self::default();
        own.nested_expands |= own.read(text, 0);
        own.has_code |= text.contains(is_separator);
        if own.all.len() > WORDS_MAX / 2 {
            (own.all, self.expands) = (BTreeSet::new(), true);
        }
        self.all.append(&mut own.all);
        self.nested_expands |= own.nested_expands;
        self.expands |= own.expands;
        self.pipes |= own.pipes;
        self.has_code |= own.has_code;
        self.has_code_option |= own.has_code_option;
        self.sources |= own.sources;
        self.is_sequence |= own.is_sequence;
        self.add_implied();
    }

    /// Whether the call can reach files by names that are made at run time and unknown before.
    pub(crate) fn is_open(&self) -> bool {
        self.is_unplain || self.makes_names()
    }

    /// The program of a list that words of it name, if there is one.
    fn named_of(&self, programs: &str) -> Option<&str> {
        let mut names = self.all.iter().chain(&self.programs).map(|word| base_name(word));
        names.find(|name| is_one_of(name, programs))
    }

    /// Whether a word of it, or what it is given to read, is known to make names.
    fn makes_names(&self) -> bool {
        let runs = |programs: &str| self.named_of(programs).is_some();
        let has_shell = || self.sources || self.runs_own || runs(SHELLS);
        self.expands
            || runs(NAME_MAKERS)
            || (self.nested_expands && has_shell())
            || (self.pipes && (has_shell() || runs(INTERPRETERS)))
            || (self.is_sequence && runs(FILE_MAKERS))
            || ((self.has_code || self.has_code_option) && runs(INTERPRETERS))
    }

    /// Reads a line, and the lines within it, and says whether a shell would expand it.
    fn read(&mut self, text: &str, depth: u8) -> bool {
        let line = ShellLine::read(text);
        self.pipes |= line.pipes;
        self.is_sequence |= line.commands.len() > 1;
        let runs_a_file =
            |command: &Vec<String>| matches!(command.first().map(String::as_str), Some("." | "source"));
        self.sources |= line.commands.iter().any(runs_a_file);
        self.has_code_option |= has_code_option(&line.words);
        for word in line.words.iter().filter(|word| *word != text) {
            if self.all.len() > WORDS_MAX {
                break;
            }
            self.add_word(word, depth);
        }
        self.add(text);
        self.add_pieces(text);
        line.is_open()
    }

    fn add_word(&mut self, word: &str, depth: u8) {
        self.add(word);
        self.has_code |= word.contains(is_separator);
        if !word.contains(|letter| is_separator(letter) || "*?[~".contains(letter)) {
            return;
        }
        if depth >= NESTED_MAX || self.read(word, depth.saturating_add(1)) {
            self.nested_expands = true;
            // Shells expand what some variables hold (`PS4`, `PS1`, `ENV`).
            self.expands |= is_assignment(word);
        }
    }

    /// Every run of characters between separators, whatever a shell makes of the quotes around it.
    fn add_pieces(&mut self, line: &str) {
        for piece in line.split(is_separator) {
            self.add(piece);
        }
        // What follows a variable, without its name.
        for after in line.split('$').skip(1) {
            let after =
                after.trim_start_matches(|letter: char| letter.is_alphanumeric() || "_{}".contains(letter));
            self.add(after.split(is_separator).next().unwrap_or_default());
        }
    }

    fn add(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        self.insert(word);
        self.add_bundle(word);
        let ends: Vec<usize> = word.match_indices(['=', ':', ',', '@']).map(|(at, _)| at).collect();
        if ends.is_empty() {
            return;
        }
        let begins: Vec<usize> =
            std::iter::once(0).chain(ends.iter().map(|at| at.saturating_add(1))).collect();
        let ends: Vec<usize> = ends.into_iter().chain([word.len()]).collect();
        let is_known = begins.len() <= FIELDS_MAX;
        self.expands |= !is_known;
        let reach = if is_known { begins.len() } else { 1 };
        for (field, begin) in begins.iter().enumerate() {
            for end in ends.iter().skip(field).take(reach) {
                let range = word.get(*begin..*end).unwrap_or_default();
                self.insert(range);
                if field == 0 {
                    self.add_bundle(range);
                }
            }
        }
    }

    /// `-fscript`, `-sfscript` and `+x`: options that carry a value without a separator.
    fn add_bundle(&mut self, word: &str) {
        let mut letters = word.chars();
        if !matches!(letters.next(), Some('-' | '+')) || letters.as_str().starts_with('-') {
            return;
        }
        for _ in 0..BUNDLE_MAX {
            let is_letter = letters.next().is_some_and(char::is_alphanumeric);
            if letters.as_str().is_empty() {
                return;
            }
            self.insert(letters.as_str());
            if !is_letter {
                return;
            }
        }
        // It is unknown where the value begins.
        self.expands = true;
    }

    fn insert(&mut self, word: &str) {
        // One more than fits, so that the caller sees that it doesn't. No program can open a longer path.
        if word.is_empty() || word.len() > PATH_BYTES_MAX || self.all.len() > WORDS_MAX {
            return;
        }
        self.all.insert(word.to_owned());
        // What follows a variable (`$DIR/run.sh`) looks absolute and isn't.
        let below = word.trim_start_matches('/');
        if below.len() < word.len() && !below.is_empty() {
            self.all.insert(below.to_owned());
        }
    }

    fn add_implied(&mut self) {
        let programs: Vec<String> = self.all.iter().map(|word| base_name(word).to_owned()).collect();
        for (program, files) in IMPLIED {
            if programs.iter().any(|one| one == program) {
                files.split(' ').for_each(|file| self.insert(file));
            }
        }
        for (program, endings) in ENDINGS {
            if !programs.iter().any(|one| is_one_of(one, program)) {
                continue;
            }
            for word in self.all.clone() {
                for ending in *endings {
                    self.insert(&format!("{word}{ending}"));
                    // `-m package.module`, `-MPackage::Module`
                    for separator in [".", "::"] {
                        if word.contains(separator) && !word.contains('/') {
                            self.insert(&format!("{}{ending}", word.replace(separator, "/")));
                        }
                    }
                }
            }
        }
    }
}

fn is_separator(letter: char) -> bool {
    letter.is_whitespace() || ";&|<>()`'\"${}\\".contains(letter)
}

/// Whether a name is one of these, with or without a version (`python3.12`).
fn is_one_of(name: &str, programs: &str) -> bool {
    let plain =
        name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.' || letter == '-');
    programs.split(' ').any(|program| program == name || program == plain)
}

/// Whether an interpreter among the words has an option before its script that gives it code.
fn has_code_option(words: &[String]) -> bool {
    let gives_code = |word: &str| match word.strip_prefix('-') {
        Some(long) if long.starts_with('-') => CODE_OPTIONS.iter().any(|option| word.starts_with(option)),
        Some(letters) => letters.contains(|letter| CODE_LETTERS.contains(letter)),
        None => false,
    };
    words.iter().enumerate().filter(|(_, word)| is_one_of(base_name(word), INTERPRETERS)).any(|(at, _)| {
        let mut after_option = false;
        let mut options = words.iter().skip(at.saturating_add(1)).take_while(|word| {
            // The word after a short option may be its value.
            let is_option = word.starts_with('-');
            let goes_on = is_option || after_option;
            after_option = is_option && word.len() == 2;
            goes_on
        });
        options.any(|word| gives_code(word))
    })
}

fn base_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Words {
        let mut words = Words::default();
        words.add_line(text);
        words
    }

    #[test]
    fn h3_every_spelling_of_a_script_in_a_line_is_found() {
        for text in [
            "sh deploy.sh",
            "sh ./deploy.sh; true",
            "sh 'deploy.sh'",
            "sh \"deploy.sh\"",
            "sh dep\"lo\"y.sh",
            "sh dep\\loy.sh",
            "sh <deploy.sh",
            "cat x|sh deploy.sh&&true",
            "run --file=deploy.sh",
            "run -fdeploy.sh",
            "x=$(sh deploy.sh)",
            "echo \"$(sh deploy.sh)\"",
            "echo `sh deploy.sh`",
            "(sh deploy.sh)",
            "{ sh deploy.sh; }",
            "sh $HERE/deploy.sh",
            "sh ${HERE}/deploy.sh",
            "docker run -v deploy.sh:/x img",
            "curl -d @deploy.sh",
            ". deploy.sh",
            "sh -c 'sh deploy.sh'",
            "if true\nthen sh deploy.sh\nfi",
        ] {
            let found = line(text).all;
            assert!(found.contains("deploy.sh") || found.contains("./deploy.sh"), "{text}: {found:?}");
        }
        let mut argv = Words::default();
        argv.add_argv(&["env", "bash", "-lc", "sh ./deploy.sh; true"].map(str::to_owned));
        assert!(argv.all.contains("./deploy.sh") && !argv.makes_names());
    }

    #[test]
    fn h3_scripts_that_a_program_finds_by_itself_are_found() {
        for (text, file) in [
            ("make test", "Makefile"),
            ("/usr/bin/make test", "Makefile"),
            ("cd sub && npm run build", "package.json"),
            ("cargo build", "build.rs"),
            ("python3 -m tools.run", "tools/run.py"),
            ("python3 app", "app/__main__.py"),
            ("node server", "server.js"),
        ] {
            let found = line(text).all;
            assert!(found.contains(file), "{text}: {found:?}");
        }
        assert!(!line("echo hi").all.contains("Makefile"));
    }

    #[test]
    fn h3_a_line_within_a_word_is_read_like_a_line() {
        for argv in [
            ["sh", "-c", "sh dep''loy.sh"],
            ["sh", "-c", "dep\\loy.sh"],
            ["bash", "-c", "bash -c 'sh dep\"lo\"y.sh'"],
        ] {
            let mut words = Words::default();
            words.add_argv(&argv.map(str::to_owned));
            assert!(words.all.contains("deploy.sh"), "{argv:?}: {:?}", words.all);
            assert!(!words.makes_names(), "{argv:?}");
        }
        let mut quoted = Words::default();
        quoted.add_argv(&["sh", "-c", "sh 'my script.sh'"].map(str::to_owned));
        assert!(quoted.all.contains("my script.sh"));
        let mut input = Words::default();
        input.add_argv(&["sh".to_owned()]);
        input.add_input("sh dep''loy.sh\n");
        assert!(input.all.contains("deploy.sh") && !input.makes_names());
    }

    #[test]
    fn h3_names_made_at_run_time_are_known_to_be_unknown() {
        for text in [
            "sh $X",
            "sh *.sh",
            "sh ~/x",
            "sh `cat name`",
            "sh {a,b}.sh",
            "sh -c 'sh dep*'",
            "find . -name deploy.sh -exec sh {} +",
            "eval sh deploy.sh",
            "echo c2ggZGVwbG95LnNo | base64 -d | sh",
            "python3 -c 'exec(open(\"dep\" + \"loy.py\").read())'",
            "sh <<END\nsh deploy.sh\nEND",
            "trap '. ./dep*' EXIT",
            "alias x='. ./dep*'\nx",
            "PS4='$(. ./dep*)'; set -x; true",
            "true ''#; . ./dep*",
            "true \u{a0}#; . ./dep*",
            "sh [{d]eploy.sh",
            "bash -c 'sh [{d]eploy.sh'",
            "bash -c 'bash <(printf %s.sh \"sh deplo\"y)'",
            "cp -r dir other; sh other/x.sh",
            "ln -s dir lnk; sh lnk/x.sh",
            "sh -c 'mv dir other && sh other/x.sh'",
            "git checkout other && make",
            "printf 'sh dep%s' loy.sh > t; . ./t",
            "sh -c 'printf x > f; sh f'",
            "make --file=a,b,c,d,e,f,g,h,i,j,k,l,m,n.mk",
            "perl -I. -MEvil -e1",
            "perl -I . -edo+evil",
            "python3 -m unittest",
        ] {
            assert!(line(text).makes_names(), "{text}");
        }
        for text in [
            "sh deploy.sh; echo done",
            "grep 'a.*b' src",
            "ls | wc -l",
            "python3 app.py --port=1",
            "python3 app.py -c x",
            "cp a b",
            "git add -A && git commit -m done",
            "make > log 2>&1",
            "cargo test > /dev/null && sh deploy.sh",
        ] {
            assert!(!line(text).makes_names(), "{text}");
        }
        let mut argv = Words::default();
        argv.add_argv(&["curl", "https://example.org/?a=1"].map(str::to_owned));
        assert!(!argv.makes_names());
        let mut input = Words::default();
        input.add_argv(&["python3".to_owned()]);
        input.add_input("exec(open('x').read())");
        assert!(input.makes_names());
        let mut data = Words::default();
        data.add_argv(&["jq".to_owned()]);
        data.add_input(&(0..100_000).map(|number| format!("w{number} ")).collect::<String>());
        assert!(data.makes_names() && data.all.len() < 10, "what is too much to read is unknown");
    }

    #[test]
    fn h3_values_of_bundled_options_and_of_many_fields_are_found() {
        for (text, file) in [
            ("make -sfMk", "Mk"),
            ("make -sCdir", "dir"),
            ("make --file=a,b,c,d,e,f,g.mk", "a,b,c,d,e,f,g.mk"),
            ("python3 -Bmmod", "mod.py"),
            ("perl -MOne::Two x", "One/Two.pm"),
            ("sh my\u{a0}script''.sh", "my\u{a0}script.sh"),
        ] {
            let found = line(text).all;
            assert!(found.contains(file), "{text}: {found:?}");
        }
    }

    #[test]
    fn h3_a_shell_under_another_name_is_a_shell() {
        let mut words = Words::default();
        words.add_argv(&["./run", "-c", ". ./dep*"].map(str::to_owned));
        // The line sources a script.
        assert!(words.makes_names());
        let argv = || {
            let mut words = Words::default();
            words.add_argv(&["./run", "-c", "./dep*"].map(str::to_owned));
            words
        };
        assert!(!argv().makes_names());
        let (mut linked, mut copied) = (argv(), argv());
        linked.add_program("dash");
        copied.add_own_program();
        assert!(linked.makes_names() && copied.makes_names());
    }

    #[test]
    fn h3_a_flood_of_words_ends() {
        let many: String = (0..100_000).map(|number| format!("w{number} ")).collect();
        assert!(line(&many).all.len() > WORDS_MAX);
        assert!(line(&many).all.len() < WORDS_MAX + 10);
    }
}
