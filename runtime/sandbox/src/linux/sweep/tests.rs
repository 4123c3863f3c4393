//! Walks of random trees with random patterns give the same result as testing the patterns on each file, even
//! after the trees were changed.

use std::os::unix::net::UnixListener;

use super::*;
use lobster_base::glob::glob_match;

const NAMES: [&str; 14] = [
    ".env",
    ".env.local",
    ".env.example",
    "a",
    "b",
    "c",
    "src",
    "key.pem",
    "k1",
    "secrets.d",
    ".git",
    "HEAD",
    "objects",
    "refs",
];

const PATTERNS: [&str; 16] = [
    "**/.env",
    "**/.env.*",
    "!**/.env.example",
    "**/*.pem",
    "**/k?",
    "**/k[0-9]",
    "**/secrets.d",
    "!**/secrets.d/a",
    "!**/secrets.d/src/**",
    "ROOT/a/*/c",
    "ROOT/b/**/a",
    "!ROOT/**/b/key.pem",
    "**/a/b",
    "**/src/**",
    "!**/src",
    "**/*",
];

/// A small random number generator, so that a seed determines the whole test.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }

    fn pick<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn place(&mut self, root: &Path) -> PathBuf {
        (0..=self.below(4)).fold(root.to_owned(), |path, _| path.join(self.pick(&NAMES)))
    }
}

/// Makes one change of a tree; many fail.
fn change(random: &mut Random, root: &Path) {
    let (place, other) = (random.place(root), random.place(root));
    match random.below(12) {
        0..5 => {
            let _ = fs::create_dir_all(place.parent().unwrap());
            let _ = fs::write(place, "x");
        }
        5..7 => drop(fs::create_dir_all(place)),
        7 => drop(fs::rename(place, other)),
        8 => drop(fs::remove_file(place)),
        9 => drop(fs::remove_dir_all(place)),
        10 => drop(UnixListener::bind(place)),
        // Another directory has replaced that of a walk, with the same names.
        _ => {
            let _ = rustix::fs::renameat_with(CWD, &place, CWD, &other, rustix::fs::RenameFlags::EXCHANGE);
        }
    }
}

/// True if a pattern covers these names or some of the first of them.
fn covers(pattern: &[&str], names: &[&str]) -> bool {
    match pattern {
        [] => true,
        ["**", rest @ ..] => (0..=names.len()).any(|skipped| covers(rest, &names[skipped..])),
        [part, rest @ ..] => {
            names.split_first().is_some_and(|(name, names)| glob_match(part, name) && covers(rest, names))
        }
    }
}

fn is_denied(patterns: &[String], path: &Path) -> bool {
    let names: Vec<&str> = path.to_str().unwrap().split('/').filter(|name| !name.is_empty()).collect();
    let last = patterns.iter().rev().find(|pattern| {
        let parts: Vec<&str> =
            pattern.trim_start_matches('!').split('/').filter(|part| !part.is_empty()).collect();
        covers(&parts, &names)
    });
    last.is_some_and(|pattern| !pattern.starts_with('!'))
}

fn files_below(directory: &Path, files: &mut Vec<PathBuf>, repositories: &mut Vec<PathBuf>) {
    let entries: Vec<fs::DirEntry> = fs::read_dir(directory).unwrap().map(Result::unwrap).collect();
    let has = |name: &str| entries.iter().any(|entry| entry.file_name() == name);
    let is_inside = repositories.iter().any(|repository| directory.starts_with(repository));
    if !is_inside && has("HEAD") && has("objects") && has("refs") {
        repositories.push(directory.to_owned());
    }
    for entry in entries {
        let kind = entry.file_type().unwrap();
        let is_inside = repositories.iter().any(|repository| directory.starts_with(repository));
        if entry.file_name() == ".git" && !is_inside && !kind.is_socket() {
            repositories.push(entry.path());
        }
        if kind.is_dir() {
            files_below(&entry.path(), files, repositories);
        } else {
            files.push(entry.path());
        }
    }
}

/// Compares a walk with a naive one.
fn compare(found: &SweptProcess, spec: &JailSpec, root: &Path, seed: u64) {
    let (mut files, mut repositories) = (Vec::new(), Vec::new());
    files_below(root, &mut files, &mut repositories);
    assert_eq!(found.missing, [], "seed {seed}");
    let is_hidden = |path: &Path| found.deny.iter().any(|hidden| path.starts_with(hidden));
    for file in &files {
        let is_socket = fs::symlink_metadata(file).unwrap().file_type().is_socket();
        let denied = is_denied(&spec.deny_patterns, file) || is_socket;
        assert_eq!(is_hidden(file), denied, "seed {seed}: {}, {:?}", file.display(), spec.deny_patterns);
    }
    assert!(found.protect.iter().all(|path| repositories.contains(path)), "seed {seed}");
    // A hidden directory need not be protected, and is not searched; the root is granted by its name.
    repositories.retain(|repository| repository != root && !is_denied(&spec.deny_patterns, repository));
    for repository in &repositories {
        let is_safe = found.protect.contains(repository) || is_hidden(repository);
        assert!(is_safe, "seed {seed}: {} of {:?}", repository.display(), found.protect);
    }
}

#[test]
fn a_walk_finds_what_a_naive_one_finds_whatever_it_remembers() {
    let coarse = Duration::from_millis(40);
    let mut remembered = 0;
    for seed in 1..=24_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        (0..60).for_each(|_| change(&mut random, &root));
        let memory = Memory::with_clocks_of(coarse);
        let list = |random: &mut Random| -> Vec<String> {
            let patterns = (0..=random.below(6)).map(|_| random.pick(&PATTERNS));
            patterns.map(|pattern| pattern.replace("ROOT", root.to_str().unwrap())).collect()
        };
        let lists = [list(&mut random), list(&mut random)];
        for round in 0..8 {
            let spec = JailSpec {
                write: vec![root.clone()],
                deny_patterns: lists[random.below(2)].clone(),
                protect_repositories: true,
                unix: vec![PathBuf::from("/nonexistent")],
                ..JailSpec::default()
            };
            let found = walk_roots(&spec, &memory);
            compare(&found, &spec, &root, seed);
            let again = walk_roots(&spec, &memory);
            assert_eq!(again, found, "seed {seed}");
            // Some changes happen right after the walk, some long after it.
            if round % 2 == 0 {
                std::thread::sleep(coarse * 2);
                assert_eq!(walk_roots(&spec, &memory), found, "seed {seed}");
                remembered += memory.listing_count();
            }
            (0..random.below(6)).for_each(|_| change(&mut random, &root));
        }
    }
    assert!(remembered > 500, "it remembers something: {remembered}");
}

#[test]
fn times_that_a_step_sets_hide_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::write(root.join("plain"), "x").unwrap();
    let memory = Memory::with_clocks_of(Duration::from_millis(40));
    std::thread::sleep(Duration::from_millis(80));
    let spec =
        JailSpec { write: vec![root.clone()], deny_patterns: vec!["**/.env".into()], ..JailSpec::default() };
    assert_eq!(walk_roots(&spec, &memory).deny, [""; 0].map(PathBuf::from));
    assert_eq!(memory.listing_count(), 1);
    let before = fs::metadata(&root).unwrap();
    fs::rename(root.join("plain"), root.join(".env")).unwrap();
    let time = |time, nanoseconds| rustix::fs::Timespec { tv_sec: time, tv_nsec: nanoseconds };
    let times = rustix::fs::Timestamps {
        last_access: time(before.atime(), before.atime_nsec()),
        last_modification: time(before.mtime(), before.mtime_nsec()),
    };
    rustix::fs::utimensat(CWD, &root, &times, AtFlags::empty()).unwrap();
    assert_eq!(fs::metadata(&root).unwrap().mtime_nsec(), before.mtime_nsec());
    assert_eq!(walk_roots(&spec, &memory).deny, [root.join(".env")]);
}
