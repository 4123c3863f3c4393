//! What programs take their instructions from: interpreters and their options,
//! build tools and the files that they look for by themselves.

use std::collections::BTreeSet;

use super::super::analysis::Arg;
use super::super::mentions::{Language, Lookup};
use super::super::wrappers::is_shell;

/// Interpreters, and their options that take the next word. The options of one
/// that is not listed may each take one.
static VALUE_OPTIONS: &[(&str, &[&str])] = &[
    ("python", &["-W", "-X", "-Q", "--check-hash-based-pycs"]),
    ("pypy", &["-W", "-X"]),
    ("perl", &["-I"]),
    (
        "node",
        &[
            "-r",
            "--require",
            "--import",
            "--loader",
            "--experimental-loader",
            "-C",
            "--conditions",
            "--env-file",
        ],
    ),
    ("ruby", &["-I", "-r", "-C", "-E"]),
    ("php", &["-d", "-c", "-f", "-z", "-t"]),
    ("lua", &["-l"]),
    ("gdb", &["-x", "--command", "-d", "-p"]),
];

/// Options after which code follows instead of a script.
static CODE_OPTIONS: &[(&str, &[&str])] = &[
    ("python", &["-c"]),
    ("pypy", &["-c"]),
    ("perl", &["-e", "-E"]),
    ("node", &["-e", "--eval", "-p", "--print"]),
    ("ruby", &["-e"]),
    ("php", &["-r", "-B", "-R", "-E"]),
    ("lua", &["-e"]),
    ("Rscript", &["-e"]),
    ("deno", &["eval"]),
];

/// Interpreters of what stands on a terminal: their operands are texts to edit.
const EDITORS: &[&str] = &[
    "vim", "vi", "nvim", "view", "ex", "ed", "rvim", "pico", "nano", "joe", "mc", "less", "more", "most",
    "pg", "emacs",
];

/// Options whose value is a file to be read, whatever the program.
const FILE_OPTIONS: &[&str] = &[
    "-f",
    "-c",
    "-s",
    "-r",
    "--file",
    "--filename",
    "--from-file",
    "--config",
    "--config-file",
    "--script",
    "--require",
    "--import",
    "--loader",
    "--playbook",
    "--values",
    "--env-file",
    "--rcfile",
    "--init-file",
    "--manifest",
    "--manifest-path",
    "--makefile",
    "--justfile",
    "--taskfile",
    "--project",
    "--spec",
    "--template",
    "--expression-file",
    "--requirement",
    "--requirements",
];

/// Whether the next word, or what is attached, is a file that is read.
pub(super) fn is_file_option(option: &str) -> bool {
    FILE_OPTIONS.contains(&option)
}

/// What is attached to an option, with the option's own name: `--x=VALUE`,
/// `-fVALUE`.
pub(super) fn attached_values(option: &str) -> Vec<(&str, &str)> {
    let mut out = Vec::new();
    if let Some((name, value)) = option.split_once('=') {
        out.push((value.trim_start_matches('@'), name));
    }
    if !option.starts_with("--")
        && let (Some(name), Some(value)) = (option.get(..2), option.get(2..))
        && !value.is_empty()
    {
        out.push((value, name));
    }
    out
}

fn family(name: &str) -> &str {
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if matches!(family, "nodejs") { "node" } else { family }
}

/// The language of an interpreter's script.
pub(super) fn language(name: &str) -> Language {
    match family(name) {
        "python" | "pypy" | "ipython" => Language::Script("python"),
        "perl" => Language::Script("perl"),
        "ruby" | "jruby" => Language::Script("ruby"),
        "node" | "deno" | "bun" | "tsx" => Language::Script("node"),
        "php" => Language::Script("php"),
        _ => Language::Script("other"),
    }
}

/// What an interpreter runs, by its words.
#[derive(Default)]
pub(super) struct Scripts {
    /// Words that name the script, or may.
    pub(super) scripts: Vec<Arg>,
    /// `python -m`.
    pub(super) modules: Vec<String>,
}

/// Finds the script among the words of a shell or interpreter.
pub(super) fn script_operands(name: &str, args: &[Arg]) -> Scripts {
    let mut found = Scripts::default();
    let family = family(name);
    if EDITORS.contains(&family) {
        return found;
    }
    let shell = is_shell(name);
    let of = |table: &'static [(&str, &'static [&str])]| {
        table.iter().find(|(one, _)| *one == family).map(|(_, options)| *options)
    };
    let code = of(CODE_OPTIONS).unwrap_or(&[]);
    let values = of(VALUE_OPTIONS);
    let mut rest = args.iter();
    let mut maybe_value = false;
    while let Some(arg) = rest.next() {
        let text = arg.text.as_str();
        let is_option = text.len() > 1 && text.starts_with(['-', '+']) && !arg.unknown_start;
        if text == "--" {
            maybe_value = false;
            continue;
        }
        if !is_option {
            // `deno run x.ts`, `bun test x.ts`
            let subcommand = matches!(family, "deno" | "bun" | "tsx")
                && matches!(text, "run" | "test" | "bench" | "task" | "x" | "exec" | "watch");
            if subcommand {
                continue;
            }
            if text != "-" {
                found.scripts.push(arg.clone());
            }
            if !maybe_value {
                return found;
            }
            maybe_value = false;
            continue;
        }
        if shell {
            match text {
                "--rcfile" | "--init-file" => found.scripts.extend(rest.next().cloned()),
                _ if text.starts_with("--") => {}
                _ if text.starts_with('-') && text.contains('c') => return found,
                _ => {
                    // -o and -O take the next word.
                    for _ in text.chars().filter(|c| matches!(c, 'o' | 'O')) {
                        rest.next();
                    }
                }
            }
            continue;
        }
        if family == "python" || family == "pypy" {
            let cluster = text.strip_prefix('-').filter(|cluster| !cluster.starts_with('-')).unwrap_or("");
            if let Some(at) = cluster.find(['m', 'c'])
                && !cluster[..at].contains(['W', 'X', 'Q'])
            {
                let attached = &cluster[at + 1..];
                if cluster[at..].starts_with('m') {
                    let next = rest.next().filter(|arg| !arg.unknown).map(|arg| arg.text.as_str());
                    let module = if attached.is_empty() { next.unwrap_or_default() } else { attached };
                    found.modules.extend((!module.is_empty()).then(|| module.to_owned()));
                }
                return found;
            }
        }
        if code.contains(&text) || (family == "perl" && is_perl_code(text)) {
            // What follows the code are its arguments; a shell's script stands nowhere.
            if !matches!(family, "node" | "ruby" | "php") {
                return found;
            }
            rest.next();
            continue;
        }
        match values {
            Some(values) => {
                if values.contains(&text) {
                    found.scripts.extend(rest.next().cloned());
                }
            }
            None => maybe_value = !text.contains('='),
        }
    }
    found
}

/// `-e` at the end of perl's bundled switches, as in `-ne`.
fn is_perl_code(text: &str) -> bool {
    text.len() <= 6 && !text.starts_with("-I") && !text.starts_with("-M") && text.ends_with(['e', 'E'])
}

/// Where a tool finds its instructions.
pub(super) struct Tool {
    pub(super) files: Vec<(String, Language, Lookup)>,
    /// The directory that it enters first.
    pub(super) directory: Option<String>,
    pub(super) not_covered: Vec<String>,
    /// Its task is one that changes those files: `npm install x`, `cargo add x`.
    pub(super) may_write: bool,
}

/// Words by which package managers are told to change their own files.
const CHANGING: &[&str] = &[
    "add",
    "install",
    "i",
    "remove",
    "rm",
    "uninstall",
    "un",
    "update",
    "up",
    "upgrade",
    "version",
    "init",
    "new",
    "require",
    "get",
    "set",
    "unset",
    "tidy",
    "mod",
    "edit",
    "pkg",
    "config",
    "dedupe",
    "audit",
    "fix",
    "lock",
    "sync",
    "work",
    "use",
    "bump",
    "release",
    "publish",
    "migrate",
    "fmt",
    "format",
];

/// Tools with fixed names of files: those, and what else they run or load.
static TOOLS: &[(&[&str], &[&str], &str)] = &[
    (
        &["cargo"],
        &["Cargo.toml", "build.rs", ".cargo/config.toml", "rust-toolchain.toml"],
        "the sources and dependencies that cargo builds and runs",
    ),
    (&["go"], &["go.mod", "go.work"], "the sources and dependencies that go builds and runs"),
    (
        &["gradle", "gradlew"],
        &["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.properties"],
        "the sources and plugins that gradle builds and runs",
    ),
    (
        &["mvn", "mvnw"],
        &["pom.xml", ".mvn/maven.config", ".mvn/jvm.config"],
        "the sources and plugins that mvn runs",
    ),
    (&["ant"], &["build.xml"], "what build.xml includes and runs"),
    (&["rake"], &["Rakefile", "rakefile", "Rakefile.rb"], "what the Rakefile loads"),
    (&["bundle", "bundler"], &["Gemfile", "Gemfile.lock", ".bundle/config"], "the gems that bundle loads"),
    (&["composer"], &["composer.json"], "the packages below vendor"),
    (&["cmake"], &["CMakeLists.txt", "CMakePresets.json"], "what CMakeLists.txt includes and runs"),
    (&["ninja"], &["build.ninja"], "what build.ninja includes and runs"),
    (&["meson"], &["meson.build"], "the meson.build files of other directories"),
    (
        &["bazel", "bazelisk"],
        &["WORKSPACE", "MODULE.bazel", "BUILD", "BUILD.bazel", ".bazelrc"],
        "what bazel builds",
    ),
    (
        &["pytest", "py.test"],
        &["conftest.py", "pytest.ini", "pyproject.toml", "setup.cfg", "tox.ini"],
        "the tests and modules that pytest loads",
    ),
    (&["tox"], &["tox.ini", "pyproject.toml", "setup.cfg"], "what tox runs"),
    (&["nox"], &["noxfile.py"], "what noxfile.py loads"),
    (
        &["pip", "pip3", "uv", "uvx", "poetry", "pipenv", "hatch", "pdm"],
        &["pyproject.toml", "setup.py", "setup.cfg", "Pipfile"],
        "the packages that are installed or loaded",
    ),
    (&["task"], &["Taskfile.yml", "Taskfile.yaml"], "what the Taskfile includes and runs"),
    (&["invoke", "inv"], &["tasks.py"], "what tasks.py loads"),
    (&["fab"], &["fabfile.py"], "what fabfile.py loads"),
    (&["mise", "rtx"], &["mise.toml", ".mise.toml"], "what mise runs"),
    (
        &["docker", "podman", "nerdctl"],
        &[
            "Dockerfile",
            "Containerfile",
            ".dockerignore",
            "compose.yaml",
            "compose.yml",
            "docker-compose.yml",
            "docker-compose.yaml",
        ],
        "what images and build contexts hold",
    ),
    (
        &["docker-compose"],
        &["compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml", ".env"],
        "what images and build contexts hold",
    ),
    (&["terraform", "tofu"], &["main.tf", "terraform.tfvars"], "the other *.tf files, modules and providers"),
    (&["ansible-playbook", "ansible"], &["ansible.cfg"], "the roles and files that a playbook includes"),
    (&["vagrant"], &["Vagrantfile"], "what the Vagrantfile loads"),
    (
        &["jest"],
        &["jest.config.js", "jest.config.ts", "package.json"],
        "the tests and modules that jest loads",
    ),
    (
        &["vitest", "vite"],
        &["vite.config.js", "vite.config.ts", "vitest.config.ts"],
        "the modules that are loaded",
    ),
    (&["tsc"], &["tsconfig.json"], "the sources that tsc reads"),
    (
        &["eslint"],
        &["eslint.config.js", "eslint.config.mjs", ".eslintrc.js", ".eslintrc.json"],
        "plugins of eslint",
    ),
    (&["prettier"], &[".prettierrc", "prettier.config.js", ".prettierrc.json"], "plugins of prettier"),
    (&["direnv"], &[".envrc"], "what .envrc sources"),
];

/// Hooks that git runs, by subcommand.
const HOOKING: &[&str] = &[
    "commit",
    "push",
    "merge",
    "checkout",
    "switch",
    "rebase",
    "am",
    "pull",
    "cherry-pick",
    "revert",
    "gc",
    "worktree",
];
const HOOKS: &[&str] = &[
    "applypatch-msg",
    "pre-applypatch",
    "post-applypatch",
    "pre-commit",
    "pre-merge-commit",
    "prepare-commit-msg",
    "commit-msg",
    "post-commit",
    "pre-rebase",
    "post-checkout",
    "post-merge",
    "pre-push",
    "pre-auto-gc",
    "post-rewrite",
    "reference-transaction",
    "post-index-change",
];

fn option_value(args: &[Arg], options: &[&str]) -> Vec<String> {
    super::super::touches::flag_values(args, options)
        .into_iter()
        .filter(|v| !v.unknown)
        .map(|v| v.text)
        .collect()
}

/// What `name` takes its instructions from, if it is a tool that is known to.
pub(super) fn tool(name: &str, args: &[Arg]) -> Option<Tool> {
    let here = |files: &[&str], language: &Language, lookup| -> Vec<(String, Language, Lookup)> {
        files.iter().map(|file| ((*file).to_owned(), language.clone(), lookup)).collect()
    };
    let named = |options: &[&str], language: &Language| -> Vec<(String, Language, Lookup)> {
        let values = option_value(args, options).into_iter();
        values.map(|file| (file, language.clone(), Lookup::File)).collect()
    };
    let mut not_covered = Vec::new();
    let mut directory = None;
    let base = family(name);
    let files = match base {
        "make" | "gmake" | "bmake" => {
            directory = option_value(args, &["-C", "--directory"]).pop();
            let mut files = here(&["GNUmakefile", "makefile", "Makefile"], &Language::Make, Lookup::File);
            files.extend(named(&["-f", "--file", "--makefile"], &Language::Make));
            files
        }
        "just" => {
            directory = option_value(args, &["-d", "--working-directory"]).pop();
            let mut files = here(&["justfile", "Justfile", ".justfile"], &Language::Just, Lookup::Upward);
            files.extend(named(&["-f", "--justfile"], &Language::Just));
            files
        }
        "npm" | "pnpm" | "yarn" | "npx" | "bunx" | "bun" => {
            directory = option_value(args, &["--prefix", "--cwd", "--dir"]).pop();
            not_covered.push(format!("the packages below node_modules, as far as {name} loads them"));
            let language = Language::Package(package_scripts(base, args));
            let mut files = here(&["package.json"], &language, Lookup::Upward);
            files.extend(here(&[".npmrc", ".yarnrc", ".yarnrc.yml"], &Language::Data, Lookup::Upward));
            for arg in args.iter().filter(|arg| !arg.unknown && !arg.text.starts_with('-')) {
                if !arg.text.contains('/') {
                    let tool = format!("node_modules/.bin/{}", arg.text);
                    files.push((tool, Language::Unknown, Lookup::Upward));
                }
            }
            files
        }
        "sed" | "gsed" | "awk" | "gawk" | "mawk" | "nawk" | "jq" | "yq" | "bc" | "dc" | "m4" => {
            let files = named(&["-f", "--file", "--from-file"], &Language::Data);
            if files.is_empty() {
                return None;
            }
            files
        }
        "git" => {
            let hooks = args.iter().any(|arg| HOOKING.contains(&arg.text.as_str()));
            if !hooks {
                return None;
            }
            let hooks: Vec<String> = HOOKS.iter().map(|hook| format!(".git/hooks/{hook}")).collect();
            let hooks: Vec<&str> = hooks.iter().map(String::as_str).collect();
            directory = option_value(args, &["-C"]).pop();
            here(&hooks, &Language::Unknown, Lookup::Upward)
        }
        _ => {
            let (_, files, more) =
                TOOLS.iter().find(|(names, ..)| names.contains(&name) || names.contains(&base))?;
            not_covered.push((*more).to_owned());
            here(files, &Language::Data, Lookup::File)
        }
    };
    let may_write = !matches!(base, "make" | "gmake" | "bmake" | "just" | "git")
        && args.iter().any(|arg| CHANGING.contains(&arg.text.as_str()));
    Some(Tool { files, directory, not_covered, may_write })
}

/// The scripts of `package.json` that the words would run.
fn package_scripts(tool: &str, args: &[Arg]) -> BTreeSet<String> {
    let mut words = args.iter().filter(|arg| !arg.text.starts_with('-'));
    let Some(first) = words.next().filter(|arg| !arg.unknown) else { return BTreeSet::new() };
    let with_hooks = |name: &str| [format!("pre{name}"), name.to_owned(), format!("post{name}")];
    match first.text.as_str() {
        "run" | "run-script" | "rum" | "urn" => match words.next().filter(|arg| !arg.unknown) {
            Some(name) => with_hooks(&name.text).into(),
            None => BTreeSet::new(),
        },
        "t" | "tst" => with_hooks("test").into(),
        "test" | "start" | "stop" | "restart" | "publish" | "pack" | "version" => {
            with_hooks(&first.text).into()
        }
        "ci" | "install" | "i" | "add" | "install-ci-test" | "it" | "cit" | "update" | "up" => {
            ["install", "prepare", "publish", "test"].into_iter().flat_map(with_hooks).collect()
        }
        // What npx runs is a program; its name is no script.
        _ if matches!(tool, "npx" | "bunx") => ["npx has no scripts".to_owned()].into(),
        name if tool != "npm" => with_hooks(name).into(),
        _ => BTreeSet::new(),
    }
}
