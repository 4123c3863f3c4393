//! Random programs of real tools on random trees: staged and committed they leave what they
//! leave when they run directly, undone they leave what was there, and dropped, nothing.
//!
//! `LOBSTER_CHANGES_CASES` is how many are tried, `LOBSTER_CHANGES_SEED` which.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::home::Home;
use crate::review::Plant;
use crate::setting::number;
use crate::staged::tree;

/// As many as take a few seconds.
const CASES: u64 = 20;

struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    fn pick<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.next(list.len())]
    }
}

const NAMES: [&str; 12] =
    ["a", "b", "c", "d", "e", "d/a", "d/x", "e/f", "e/f/g", "sp ace", "u\u{fc}ml", "d/.wh.a"];

fn plant(dir: &Path, dice: &mut Dice) {
    for name in NAMES {
        let path = dir.join(name);
        if dice.next(3) == 0 || path.symlink_metadata().is_ok() {
            continue;
        }
        let above = path.parent().unwrap();
        if fs::create_dir_all(above).is_err() {
            continue;
        }
        match dice.next(5) {
            0 => drop(fs::create_dir(&path)),
            1 => drop(symlink(dice.pick(&NAMES), &path)),
            _ => {
                fs::write(&path, format!("{name}\n{}\n", "line\n".repeat(dice.next(40)))).unwrap();
                let mode = [0o644, 0o600, 0o755, 0o640][dice.next(4)];
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

fn program(dice: &mut Dice) -> String {
    let mut lines = Vec::new();
    for _ in 0..=dice.next(7) {
        let (one, two) = (dice.pick(&NAMES), dice.pick(&NAMES));
        let number = dice.next(5000);
        lines.push(match dice.next(21) {
            0 => format!("cp '{one}' '{two}'"),
            // What a directory that is copied into itself comes to is a matter of the order in which it is read.
            // (Of GNU, `realpath -m` and `readlink -f` never end where a link leads below itself.)
            1 => format!(
                "python3 -c 'from os.path import *; import sys; one, two = map(realpath, sys.argv[1:]); \
                 sys.exit(isdir(one) and (two + \"/\").startswith(one + \"/\"))' '{one}' '{two}' && cp -a '{one}' '{two}'"
            ),
            2 => format!("mv '{one}' '{two}'"),
            3 => format!("mv -T '{one}' '{two}'"),
            4 => format!("rm -rf '{one}'"),
            5 => format!("sed -i 's/line/row/' '{one}'"),
            6 => format!("truncate -s {number} '{one}'"),
            7 => format!(
                "if [ -d '{one}' ]; then chmod {} '{one}'; else chmod {} '{one}'; fi",
                ["700", "755", "750", "711"][number % 4],
                ["600", "644", "755", "700"][number % 4]
            ),
            8 => format!("ln -s '{one}' '{two}'"),
            9 => format!("ln '{one}' '{two}' && echo both >> '{two}'"),
            10 => format!("mkdir -p '{one}/{two}'"),
            11 => format!("rmdir '{one}'"),
            12 => format!("echo more{number} >> '{one}'"),
            // An archive has times in it, which differ: it goes, also if it could not be made.
            13 => format!("tar cf t.tar d e && rm -rf d e && tar xf t.tar; rm -f t.tar; true '{one}'"),
            14 => format!("rm -rf '{one}' && mkdir '{one}' && echo {number} > '{one}/new'"),
            15 => format!("echo {number} > tmp && mv tmp '{one}'"),
            16 => format!("printf '%s\\n' '--- x' '+++ x' '@@ -1 +1 @@' '-{one}' '+patched' | patch -s -f '{one}'"),
            17 => format!("dd if=/dev/zero of='{one}' bs=1 count=3 seek={number} conv=notrunc"),
            18 => format!(
                "python3 -c 'import sqlite3; c = sqlite3.connect(\"db\"); c.execute(\"create table if not exists t(x)\"); \
                 c.execute(\"insert into t values ({number})\"); c.commit()'"
            ),
            // The repository itself holds times and numbers of files, which differ. Git does not copy a directory that
            // cannot be renamed.
            19 => format!(
                "git init -q . && git add -A && git -c user.name=x -c user.email=x commit -qm x && rm -rf '{one}' && \
                 {{ [ -d '{two}' ] || git mv '{two}' moved; }} && git checkout -qf HEAD -- . ; rm -rf .git"
            ),
            _ => format!("find . -name '*a' -exec chmod u+x {{}} + ; : > '{one}'"),
        });
    }
    let quiet = lines.iter().map(|line| format!("( {line} ) >/dev/null 2>&1 </dev/null"));
    quiet.chain(["true".to_owned()]).collect::<Vec<_>>().join("\n")
}

/// Some of the trees and programs, for those who try them in another way.
pub(crate) fn programs(count: u64) -> Vec<(u64, Plant, String)> {
    let first = number("LOBSTER_CHANGES_SEED", 1);
    let case = |seed: u64| {
        let dice = move || Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let planted: Plant = Box::new(move |dir| plant(dir, &mut dice()));
        (seed, planted, program(&mut Dice(seed)))
    };
    (first..first + number("LOBSTER_CHANGES_CASES", count)).map(case).collect()
}

#[test]
fn staged_is_direct_undone_is_before_and_dropped_is_nothing() {
    let (cases, first) = (number("LOBSTER_CHANGES_CASES", CASES), number("LOBSTER_CHANGES_SEED", 1));
    let mut changed = 0;
    // In the last one a directory is made anew in one that is, too.
    for seed in (first..first + cases).chain([958]) {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let home = Home::new();
        let staged = home.dir().join("tree");
        fs::create_dir(&staged).unwrap();
        fs::set_permissions(&staged, fs::Permissions::from_mode(0o755)).unwrap();
        plant(&staged, &mut dice);
        let program = program(&mut dice);
        home.write("program.sh", &program);
        let direct = home.dir().join("direct");
        assert!(Command::new("cp").arg("-a").args([&staged, &direct]).status().unwrap().success());
        let before = tree(&staged);

        let step = "  - {id: s, cwd: tree, changes: staged, run: 'umask 022; . ../program.sh'";
        home.write(
            "drop.lobster",
            "steps:\n  - {id: s, cwd: tree, changes: staged, run: 'umask 022; . ../program.sh; exit 1'}\n",
        );
        home.tool(["drop.lobster"]).error();
        assert_eq!(tree(&staged), before, "seed {seed}, dropped:\n{program}");

        home.write("flow.lobster", format!("steps:\n{step}}}\n"));
        let done = home.tool(["flow.lobster"]);
        assert_eq!(done.code(), 0, "seed {seed}:\n{program}\n{done:#?}");
        let sh = home.program("/bin/sh", ["-c", "umask 022; . ../program.sh"]).dir(&direct).run();
        assert_eq!(sh.code(), 0, "{sh:#?}");
        assert_eq!(tree(&staged), tree(&direct), "seed {seed}:\n{program}");
        if tree(&staged) == before {
            continue;
        }
        changed += 1;
        let undone = home.lobster(["undo", "@"]).run();
        assert_eq!(undone.code(), 0, "seed {seed}:\n{program}\n{undone:#?}");
        assert_eq!(tree(&staged), before, "seed {seed}, undone:\n{program}");
    }
    assert!(changed * 2 > cases, "only {changed} programs changed anything");
}
