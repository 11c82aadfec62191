//! Which names in a command may lead to files. Pure: whether they do is looked up by the caller.
//!
//! A word too many costs a failed open. A word too few would leave a file out of what an approval is bound to. So this splits a line in
//! every way that a shell or a program might, instead of guessing the one that it will.

use std::collections::BTreeSet;

/// Candidates that one call may have. More than this can't be bound.
pub const WORDS_MAX: usize = 4_096;
/// Fields of one word (`--a=b:c,d`) of which every range is tried; of longer ones, each field alone.
const FIELDS_MAX: usize = 6;

/// The names in a command.
#[derive(Debug, Default)]
pub struct Words {
    /// Everything that may be a path.
    pub all: BTreeSet<String>,
    /// The shell makes further names at run time (`$X`, `*`, `~`), which nobody can know before.
    pub is_open: bool,
}

/// Files that a program reads as its script without being told, from the folder it runs in.
const IMPLIED: &[(&str, &[&str])] = &[
    ("make", &["GNUmakefile", "makefile", "Makefile"]),
    ("gmake", &["GNUmakefile", "makefile", "Makefile"]),
    ("npm", &["package.json", ".npmrc"]),
    ("npx", &["package.json", ".npmrc"]),
    ("yarn", &["package.json", ".yarnrc", ".yarnrc.yml"]),
    ("pnpm", &["package.json", ".npmrc", "pnpm-workspace.yaml", ".pnpmfile.cjs"]),
    ("bun", &["package.json", "bunfig.toml"]),
    ("deno", &["deno.json", "deno.jsonc"]),
    (
        "cargo",
        &[
            "Cargo.toml",
            "build.rs",
            ".cargo/config.toml",
            ".cargo/config",
            "rust-toolchain.toml",
            "rust-toolchain",
        ],
    ),
    ("just", &["justfile", "Justfile", ".justfile"]),
    ("task", &["Taskfile.yml", "Taskfile.yaml"]),
    ("rake", &["Rakefile", "rakefile"]),
    ("ninja", &["build.ninja"]),
    ("cmake", &["CMakeLists.txt"]),
    ("meson", &["meson.build"]),
    ("gradle", &["build.gradle", "build.gradle.kts", "settings.gradle"]),
    (
        "gradlew",
        &["build.gradle", "build.gradle.kts", "settings.gradle", "gradle/wrapper/gradle-wrapper.properties"],
    ),
    ("mvn", &["pom.xml"]),
    ("go", &["go.mod", "go.work"]),
    ("pytest", &["conftest.py", "pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini"]),
    ("tox", &["tox.ini", "pyproject.toml", "setup.py", "setup.cfg"]),
    ("nox", &["noxfile.py"]),
    ("pip", &["setup.py", "pyproject.toml", "setup.cfg"]),
    ("docker", &["Dockerfile", "compose.yaml", "docker-compose.yml"]),
    ("terraform", &["main.tf"]),
];
/// What an interpreter adds to a name.
const ENDINGS: &[(&str, &[&str])] = &[
    ("python", &[".py", "/__main__.py", "/__init__.py"]),
    ("node", &[".js", ".cjs", ".mjs", "/index.js", "/package.json"]),
    ("bun", &[".ts", ".js", "/index.ts"]),
    ("ruby", &[".rb"]),
];

impl Words {
    /// An argument list. A word with blanks may be a line for a shell (`sh -c "…"`).
    pub fn add_argv(&mut self, argv: &[String]) {
        for word in argv {
            self.add(word);
        }
        let runs_shell = argv.iter().any(|word| is_shell(base_name(word)));
        for word in argv.iter().filter(|word| word.contains(is_separator)) {
            self.add_pieces(word);
            self.is_open |= runs_shell && is_expanded(word);
        }
        self.add_implied();
    }

    /// A line for a shell.
    pub fn add_line(&mut self, line: &str) {
        self.is_open |= is_expanded(line);
        for word in unquoted(line) {
            self.add(&word);
        }
        self.add_pieces(line);
        self.add_implied();
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
        // `-fscript` and `+x`: an option that carries its value without a separator.
        let mut letters = word.chars();
        if matches!(letters.next(), Some('-' | '+')) && letters.next().is_some_and(|next| next != '-') {
            self.insert(letters.as_str());
        }
        let ends: Vec<usize> = word.match_indices(['=', ':', ',', '@']).map(|(at, _)| at).collect();
        if ends.is_empty() {
            return;
        }
        let begins: Vec<usize> =
            std::iter::once(0).chain(ends.iter().map(|at| at.saturating_add(1))).collect();
        let ends: Vec<usize> = ends.into_iter().chain([word.len()]).collect();
        let reach = if begins.len() <= FIELDS_MAX { begins.len() } else { 1 };
        for (field, begin) in begins.iter().enumerate() {
            for end in ends.iter().skip(field).take(reach) {
                self.insert(word.get(*begin..*end).unwrap_or_default());
            }
        }
    }

    fn insert(&mut self, word: &str) {
        // One more than fits, so that the caller sees that it doesn't.
        if word.is_empty() || self.all.len() > WORDS_MAX {
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
                files.iter().for_each(|file| self.insert(file));
            }
        }
        for (program, endings) in ENDINGS {
            // `python3.12` is a `python`.
            let is_one = |one: &String| {
                one.strip_prefix(program)
                    .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
            };
            if !programs.iter().any(is_one) {
                continue;
            }
            for word in self.all.clone() {
                for ending in *endings {
                    self.insert(&format!("{word}{ending}"));
                    // `-m package.module`
                    if word.contains('.') && !word.contains('/') {
                        self.insert(&format!("{}{ending}", word.replace('.', "/")));
                    }
                }
            }
        }
    }
}

/// The words of a line as a shell sees them: quotes and backslashes taken out.
fn unquoted(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\'', Some('\'')) | ('"', Some('"')) => quote = None,
            ('\'' | '"', None) => quote = Some(letter),
            ('\\', None | Some('"')) => word.extend(letters.next().filter(|next| *next != '\n')),
            (letter, None) if letter.is_whitespace() || ";&|<>()`".contains(letter) => {
                words.push(std::mem::take(&mut word));
            }
            (letter, _) => word.push(letter),
        }
    }
    words.push(word);
    words
}

fn is_separator(letter: char) -> bool {
    letter.is_whitespace() || ";&|<>()`'\"${}\\".contains(letter)
}

fn is_expanded(line: &str) -> bool {
    line.contains(['$', '`', '*', '?', '[', '~', '{'])
}

fn is_shell(program: &str) -> bool {
    matches!(program, "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "busybox" | "fish")
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
        assert!(argv.all.contains("./deploy.sh") && !argv.is_open);
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
    fn h3_names_made_at_run_time_are_known_to_be_unknown() {
        for text in ["sh $X", "sh *.sh", "sh ~/x", "sh `cat name`", "sh {a,b}.sh"] {
            assert!(line(text).is_open, "{text}");
        }
        assert!(!line("sh deploy.sh; echo done").is_open);
    }

    #[test]
    fn h3_a_flood_of_words_ends() {
        let many: String = (0..100_000).map(|number| format!("w{number} ")).collect();
        assert!(line(&many).all.len() > WORDS_MAX);
        assert!(line(&many).all.len() < WORDS_MAX + 10);
    }
}
