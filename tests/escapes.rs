//! Attacks on the layer of a step and on the commit of its changes: whatever a step does, and whatever somebody
//! does to its directory before the commit, nothing outside of the directory changes.

use std::fs;
use std::path::Path;

use crate::home::Home;
use crate::staged::tree;

fn home() -> Home {
    let home = Home::new();
    home.write("tree/a", "one\n").write("tree/d/f", "in d\n").write("tree/gone", "x\n");
    home.write("outside/f", "precious\n").write("outside/sub/g", "precious too\n");
    home
}

/// What must stay: what lies outside, and what lobster keeps of its own beside the store.
fn outside(home: &Home) -> std::collections::BTreeMap<String, String> {
    let outside = home.dir().join("outside");
    if outside.exists() { tree(&outside) } else { std::collections::BTreeMap::new() }
}

/// Each is run by a shell in the directory of the step; `$OUT` is the directory that nobody may change.
const BY_THE_STEP: [&str; 34] = [
    // By paths.
    "echo x > ../outside/f",
    "echo x > $OUT/f; rm -rf $OUT; mkdir -p $OUT/new",
    "mv $OUT/f here; mv d $OUT/d; cp -a a $OUT/sub/g",
    "cd /proc/self/cwd/../outside && echo x > f",
    "for pid in 1 $PPID self; do echo x > /proc/$pid/root$OUT/f; echo x > /proc/$pid/cwd/../outside/f; done",
    "tar cPf t $OUT/f; rm -f $OUT/f; tar xPf t",
    // By links.
    "ln -s ../outside l && echo x > l/f; rm -r l/sub",
    "ln -s $OUT/f l && echo x > l; truncate -s 0 l; chmod 777 l; touch -d 2001-01-01 l",
    "rm -r d && ln -s $OUT d && echo x > d/f; mkdir d/new",
    "rm a && ln -s $OUT/f a && echo x >> a",
    "ln $OUT/f h && echo x >> h",
    "ln -s / top; rm -rf top$OUT; echo x > top$OUT/f",
    "mkdir -p p/q && ln -s ../../../outside p/q/r && rm -rf p/q/r/f; echo x > p/q/r/f",
    "ln -s .. up; ln -s up/outside out2; echo x > out2/f",
    // By mounts and namespaces.
    "mount --bind $OUT d; echo x > d/f",
    "unshare -Urm sh -c 'mount --bind $OUT d; echo x > d/f; umount -l .; echo x > ../outside/f'",
    "umount -l . ; echo x > $OUT/f",
    "mount -o remount,rw / ; echo x > $OUT/f",
    "unshare -Ur chroot / sh -c 'echo x > $OUT/f'",
    "nsenter -t 1 -m sh -c 'echo x > $OUT/f'; nsenter -t $PPID -m sh -c 'echo x > $OUT/f'",
    // By the layer itself.
    "u=$(sed -n 's/.*upperdir=\\([^,]*\\).*/\\1/p' /proc/self/mountinfo | head -1); echo x > $u/../x; ln -s $OUT $u/l; echo x > $u/l/f",
    "python3 -c 'import os; os.setxattr(\"d\", \"user.overlay.redirect\", os.environ[\"OUT\"].encode())'; rm -f d/f; true",
    "python3 -c 'import os; os.setxattr(\"d\", \"trusted.overlay.redirect\", os.environ[\"OUT\"].encode())'; true",
    "python3 -c 'import os; os.setxattr(\"a\", \"user.overlay.metacopy\", b\"\")'; true",
    "mkdir .lobster-x && ln -s $OUT .lobster-x/n0; ln -s $OUT .lobster-y",
    "rm -rf ../tree; cd .. && rmdir tree && ln -s outside tree",
    // By devices and rights.
    "mknod z c 1 3; mknod disk b 259 0; mkfifo p",
    "cp $(command -v sh) sh && chmod 6755 sh",
    "cp $(command -v sh) sh && setcap cap_dac_override+ep sh",
    // By what goes on after the end, or was open before it.
    "(sleep 0.2; echo late > a; echo late > $OUT/f; echo late > late) & exec 3>>d/f; (sleep 0.2; echo late >&3) & true",
    "setsid sh -c 'sleep 0.2; echo late > $OUT/f' </dev/null >/dev/null 2>&1 & true",
    "for fd in /proc/self/fd/*; do echo x > $fd/../f; echo x > $fd/f; done; true",
    // By names.
    "n=$(printf 'n%0200d' 0); i=0; while [ $i -lt 25 ]; do mkdir $n && cd $n || break; i=$((i + 1)); done; ln -s $OUT l; echo x > l/f; echo y > y",
    "python3 -c 'import os\nfor n in [b\"\\xff..\", b\"..\\n\", b\"a\\\\..\", b\"...\", b\"-rf\"]: os.mkdir(n); open(n + b\"/f\", \"w\").write(\"x\")'",
];

#[test]
fn whatever_a_step_does_nothing_outside_of_its_directory_changes() {
    for script in BY_THE_STEP {
        let home = home();
        home.write("attack.sh", script);
        let step = "  - {id: s, cwd: tree, changes: staged, run: '. ../attack.sh'}\n";
        home.write(
            "flow.lobster",
            format!("env: {{OUT: '{}'}}\nsteps:\n{step}", home.dir().join("outside").display()),
        );
        let before = outside(&home);
        let answer = home.tool(["flow.lobster"]);
        std::thread::sleep(std::time::Duration::from_millis(if script.contains("sleep") { 400 } else { 0 }));
        assert_eq!(outside(&home), before, "{script}\n{answer:#?}");
        if script.contains("late") {
            let left = [home.read("tree/a"), home.read("tree/d/f")].concat();
            assert!(!left.contains("late") && !home.dir().join("tree/late").exists(), "{script}: {left}");
        }
        let rights = tree(&home.dir().join("tree"));
        assert!(
            !rights.values().any(|told| told.contains("4755") || told.contains("6755")),
            "{script}: {rights:#?}"
        );
        assert!(!Path::new(&home.dir().join("tree/z")).exists(), "{script}");
        // The layer is gone, and the next step finds nothing of it.
        assert!(fs::read_dir(home.state().join("store/layers")).map_or(0, Iterator::count) == 0, "{script}");
    }
}

/// The attacks are some: without a layer they do what they are meant to.
#[test]
fn without_a_layer_the_outside_changes() {
    let harmless = ["echo x > ../", "ln -s", "rm a &&", "rm -r d &&", "mv $OUT", "ln $OUT", "mkdir -p p/q"];
    let tried = BY_THE_STEP.iter().filter(|script| harmless.iter().any(|begin| script.starts_with(begin)));
    let mut changed = 0;
    for script in tried {
        let home = home();
        let before = outside(&home);
        let (inside, out) = (home.dir().join("tree"), home.dir().join("outside"));
        home.program("/bin/sh", ["-c", script]).env("OUT", &out).dir(&inside).run();
        changed += usize::from(outside(&home) != before);
    }
    assert!(changed >= 9, "{changed}");
}

/// What somebody does to the directory while a change set waits for its yes.
const BEFORE_THE_COMMIT: [&str; 12] = [
    "rm a && ln -s $OUT/f a",
    "rm -r d && ln -s $OUT d",
    "ln -s $OUT new",
    "rm gone && ln -s $OUT/f gone",
    "rm gone && ln -s $OUT gone",
    "mv d d2 && ln -s d2 d",
    "cd .. && mv tree elsewhere && ln -s outside tree",
    "cd .. && mv tree elsewhere && mkdir tree && ln -s ../outside tree/d && cp elsewhere/a tree/a",
    "rm a && mkfifo a",
    "rm a && mkdir a && ln -s $OUT a/b",
    "rm -r d && mkdir d && ln -s $OUT/f d/f",
    "rm -r d && cp -a $OUT d",
];

#[test]
fn whatever_somebody_does_before_the_commit_nothing_outside_of_the_directory_changes() {
    let step = "echo two >> a; echo more >> d/f; rm gone; mkdir new; echo x > new/x";
    for script in BEFORE_THE_COMMIT {
        let home = home();
        home.write(
            "flow.lobster",
            format!("steps:\n  - {{id: s, cwd: tree, changes: review, run: '{step}'}}\n"),
        );
        let asked = home.tool(["flow.lobster"]);
        let (inside, out) = (home.dir().join("tree"), home.dir().join("outside"));
        let did = home.program("/bin/sh", ["-c", script]).env("OUT", &out).dir(&inside).run();
        assert_eq!(did.code(), 0, "{script}: {did:#?}");
        let (before, there) = (outside(&home), tree(&home.dir()));
        let answer = home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).run();
        assert_ne!(answer.code(), 0, "{script}: {answer:#?}");
        assert_eq!(outside(&home), before, "{script}");
        assert_eq!(tree(&home.dir()), there, "{script}: {answer:#?}");
        for how in ["overwrite", "merge", "keep"] {
            let asked = home.lobster(["resume", "@", "--conflicts", how]).run();
            if asked.envelope()["status"] == "needs_approval" {
                home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).run();
            }
            assert_eq!(outside(&home), before, "{script}, {how}: {asked:#?}");
        }
    }
}
