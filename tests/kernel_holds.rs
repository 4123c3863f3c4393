//! What a policy promises beyond the words of a command: the kernel holds it,
//! whatever the command turns out to do. Each attack is shown to succeed where
//! the promise is not made.

use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use crate::home::{Answer, Home};

const SECRET: &str = "PASSWORD=hunter2";

/// Whether this machine can make a jail at all.
fn has_jail(answer: &Answer) -> bool {
    let lacks = ["cannot enforce", "not found"].iter().any(|lack| answer.stdout.contains(lack));
    if lacks {
        println!("no jail, or no such program, here: {answer:?}");
    }
    !lacks
}

fn perl(home: &Home, policy: &str, grant: &str, script: &str) -> Answer {
    home.write(
        "p.toml",
        format!(
            "version = 1\n{policy}\n[[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\n\
             grant = {{ {grant} }}\n"
        ),
    )
    .write("x.pl", script)
    .write("x.lobster", "steps:\n  - { id: a, exec: [perl, x.pl] }\n");
    let policy = home.dir().join("p.toml");
    home.lobster(["run", "--mode", "tool", "x.lobster"]).env("LOBSTER_POLICY", policy).run()
}

#[test]
fn what_patterns_deny_is_printed_by_no_command() {
    let home = Home::new();
    let example = include_str!("policy/example.toml");
    home.write("example.toml", example)
        .write("open.toml", example.replace("\"**/.env\", \"**/.env.*\", \"!**/.env.example\"", ""))
        .write(".env", SECRET)
        .write("deep/er/.env.local", SECRET)
        .write(".env.example", "EXAMPLE=yes\n")
        .write("list", ".env\n")
        .write("README.md", "read me\n");
    symlink("settings", home.dir().join(".env.link")).unwrap();
    home.write("settings", SECRET);
    let texts = [
        "grep -rh PASSWORD .",
        "grep -r PASSWORD . --include=.env",
        "tail -n 3 ./.??*",
        "cat .??*",
        "for f in .*; do cat \"$f\"; done",
        "ls -A | while read f; do cat \"$f\"; done",
        "xargs cat < list",
        "cat settings",
    ];
    let mut shown = 0;
    for text in texts {
        let flow = serde_json::json!({ "steps": [{ "id": "a", "run": text }] });
        home.write("x.lobster", flow.to_string());
        let run = |policy: &str| home.tool(["--policy", policy, "x.lobster"]);
        let held = run("example.toml");
        if !has_jail(&held) {
            return;
        }
        assert!(!held.stdout.contains("hunter2") && !held.stderr.contains("hunter2"), "{text}: {held:?}");
        shown += usize::from(run("open.toml").stdout.contains("hunter2"));
    }
    assert!(shown >= 3, "without the patterns these commands print it");
    home.write("x.lobster", "steps:\n  - { id: a, run: 'cat .env.example' }\n");
    assert_eq!(home.tool(["--policy", "example.toml", "x.lobster"]).output()[0], "EXAMPLE=yes\n");
}

#[test]
fn built_in_secrets_are_hidden_unless_granted_by_name() {
    let home = Home::new();
    home.write(".aws/credentials", SECRET).write("keys/id_rsa", SECRET);
    let script = "for my $f ('.aws/credentials', 'keys/id_rsa') { open(my $h, '<', $f) or do { print \"$f: $!\\n\"; next }; print <$h> }";
    let held = perl(&home, "", "", script);
    if !has_jail(&held) {
        return;
    }
    assert_eq!(held.output()[0].as_str().map(|text| text.contains("hunter2")), Some(false), "{held:?}");
    let granted = perl(&home, "", "fs_read = [\"@workspace/.aws\"]", script);
    let output = granted.output()[0].as_str().unwrap_or_default().to_owned();
    assert!(output.starts_with(SECRET) && output.contains("keys/id_rsa: "), "{granted:?}");
}

#[test]
fn the_store_and_what_lobster_was_started_with_are_out_of_sight() {
    let home = Home::new();
    let state = home.state().display().to_string();
    let script = format!(
        "opendir(my $d, '{state}/store'); print \"entry $_\\n\" for grep {{ !/^\\.+$/ }} readdir($d); \
         print open(my $h, '<', '{state}/store/lobster.db') ? \"opened\\n\" : \"no database\\n\"; \
         print -e '{state}/beside' ? \"beside\\n\" : \"nothing beside\\n\"; \
         my @seen = grep {{ m{{^/proc/\\d+$}} && open(my $e, '<', \"$_/environ\") && <$e> =~ /LOBSTER_POLICY=/ }} glob('/proc/*'); \
         print scalar(@seen), \" environments\\n\";"
    );
    std::fs::write(home.state().join("beside"), "").unwrap();
    let grant = format!("fs_read = [\"@workspace\", \"{state}\"]");
    let held = perl(&home, "", &grant, &script);
    if !has_jail(&held) {
        return;
    }
    let output = held.output()[0].as_str().unwrap_or_default().to_owned();
    // It reads around the store, and the store is there: the record of this very run is in it.
    assert_eq!(output, "no database\nbeside\n0 environments\n", "{held:?}");
    assert!(std::fs::read_dir(home.state().join("store")).unwrap().count() > 0);
}

#[test]
fn a_step_changes_nothing_by_which_others_run_code() {
    let home = Home::new();
    for file in [".git/config", ".git/HEAD", "sub/.git/config", ".lobster/kept"] {
        home.write(file, "as it was\n");
    }
    std::fs::create_dir_all(home.dir().join(".git/hooks")).unwrap();
    let files = [
        ".git/commondir",
        ".git/config",
        ".git/HEAD",
        ".git/config.worktree",
        ".git/hooks/pre-commit",
        "sub/.git/config",
        "sub/.git/commondir",
        ".lobster/kept",
        "lobster.policy.toml",
    ];
    let script = format!(
        "for my $f (qw({})) {{ open(my $h, '>>', $f) or next; print $h \"evil\\n\"; print \"$f\\n\" }}\n\
         rename '.git', 'git' and print \"moved\\n\"; mkdir 'git' and print \"done\\n\";",
        files.join(" ")
    );
    let held = perl(&home, "", "fs_write = [\"@workspace\"]", &script);
    if !has_jail(&held) {
        return;
    }
    assert_eq!(held.output()[0], "done\n", "{held:?}");
    std::fs::remove_dir(home.dir().join("git")).unwrap();
    // The grant names it, and still not what makes git run programs.
    let granted = perl(&home, "", "fs_write = [\"@workspace\", \"@workspace/.git\"]", &script);
    assert_eq!(granted.output()[0], ".git/HEAD\ndone\n", "{granted:?}");
    for file in [".git/commondir", ".git/config.worktree", ".git/hooks/pre-commit", "lobster.policy.toml"] {
        assert!(!home.dir().join(file).exists(), "{file}");
    }
    assert_eq!(home.read(".git/config") + &home.read("sub/.git/config"), "as it was\nas it was\n");
    // Who lacks it is told.
    home.write("p.pl", "open(my $h, '>>', $ARGV[0]) or die \"cannot open '$ARGV[0]': $!\\n\"");
    home.write("x.lobster", "steps:\n  - { id: a, exec: [perl, p.pl, .git/HEAD] }\n");
    home.write(
        "p.toml",
        "version = 1\n[[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\n\
         grant = { fs_write = [\"@workspace\"] }\n",
    );
    let told = home.tool(["--policy", "p.toml", "x.lobster"]).error();
    let repository = home.dir().canonicalize().unwrap().join(".git");
    assert!(
        told.contains(&format!("missing grant: fs_write = [{:?}]", repository.display().to_string())),
        "{told}"
    );
}

#[test]
fn a_workspace_without_a_repository_gets_none() {
    let home = Home::new();
    let script = "mkdir '.git'; mkdir '.git/hooks'; print open(my $h, '>', '.git/config') ? \"made\" : \"refused\";\
                  mkdir 'new'; mkdir 'new/.git'; print open($h, '>', 'new/.git/config') ? \" own\" : \" none\";";
    let held = perl(&home, "", "fs_write = [\"@workspace\"]", script);
    if !has_jail(&held) {
        return;
    }
    assert_eq!(held.output()[0], "refused own", "{held:?}");
    assert!(!home.dir().join(".git").exists());
}

#[test]
fn a_socket_in_the_workspace_is_out_of_reach_until_it_is_granted() {
    let home = Home::new();
    let listener = UnixListener::bind(home.dir().join("d.sock")).unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 64]);
        }
    });
    let script =
        "use IO::Socket::UNIX; print IO::Socket::UNIX->new(Peer => 'd.sock') ? 'reached' : 'refused';";
    let held = perl(&home, "", "fs_write = [\"@workspace\"]", script);
    if !has_jail(&held) {
        return;
    }
    assert_eq!(held.output()[0], "refused", "{held:?}");
    let path = home.dir().join("d.sock");
    let granted = perl(&home, "", &format!("unix = [{:?}]", path.display().to_string()), script);
    assert_eq!(granted.output()[0], "reached", "{granted:?}");
    let directory = perl(&home, "", &format!("unix = [{:?}]", home.dir().display().to_string()), script);
    assert!(directory.error().contains("name each socket by its own path"), "{directory:?}");
}

/// Says of each address whether a stream connects to it and a datagram arrives at it.
const REACH: &str = "use Socket;\n\
    sub reach { my ($name, $path) = @_; my $to = pack_sockaddr_un($path);\n\
    \x20socket(my $s, PF_UNIX, SOCK_STREAM, 0) or return print \"$name: no socket\\n\";\n\
    \x20print \"$name: \", (connect($s, $to) ? 'reached' : 'refused'), \"\\n\" }\n\
    sub mail { my ($name, $path) = @_; my $to = pack_sockaddr_un($path);\n\
    \x20socketpair(my $a, my $b, PF_UNIX, SOCK_DGRAM, 0) or return print \"$name: no pair\\n\";\n\
    \x20print \"$name: \", (send($a, 'x', 0, $to) ? 'sent' : 'refused'), \"\\n\" }\n\
    for my $path ('/tmp/own', \"\\0own\", 'own') {\n\
    \x20socket(my $l, PF_UNIX, SOCK_STREAM, 0); bind($l, pack_sockaddr_un($path)) && listen($l, 1) or print \"no listener: $!\\n\";\n\
    \x20push @kept, $l; reach(own => $path) }\n";

#[test]
fn a_step_has_sockets_terminals_and_users_of_its_own_and_sees_no_others() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};

    let home = Home::new();
    let name = format!("lobster-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listeners = [
        UnixListener::bind(home.dir().join("host.sock")).unwrap(),
        UnixListener::bind(home.dir().join("../beside.sock")).unwrap(),
        UnixListener::bind_addr(&address).unwrap(),
    ];
    let _mailbox = UnixDatagram::bind(home.dir().join("mail.sock")).unwrap();
    let terminal =
        rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY).unwrap();
    rustix::pty::unlockpt(&terminal).unwrap();
    let terminal = rustix::pty::ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let beside = home.dir().join("../beside.sock").canonicalize().unwrap().display().to_string();
    let script = format!(
        "{REACH}reach(path => 'host.sock'); reach(beside => '{beside}'); reach(name => \"\\0{name}\"); mail(mail => 'mail.sock');\n\
         print -e '{terminal}' ? \"terminal\\n\" : \"no terminal\\n\";\n\
         print open(my $t, '+<', '/dev/tty') ? \"tty\\n\" : \"no tty\\n\";\n\
         print open(my $p, '+<', '/dev/ptmx') ? \"a new one\\n\" : \"none\\n\";\n\
         open(my $u, '<', '/etc/passwd'); my @users = <$u>; print scalar(@users), ' ', (getpwuid($<))[7] eq $ENV{{HOME}} ? 'at home' : 'elsewhere', \"\\n\";\n\
         print -e $_ ? \"$_\\n\" : '' for qw(/etc/shadow /etc/ssl/private /etc/sudoers /etc/machine-id);\n\
         print open(my $w, '>>', '/etc/passwd') ? \"written\\n\" : \"kept\\n\";\n",
    );
    let own = "own: reached\n".repeat(3);
    let of_host = "no terminal\nno tty\na new one\n2 at home\nkept\n";
    for network in [
        "net = \"none\"",
        "net = { hosts = [\"a.example:22\"] }",
        "net = \"host-network\"",
        "listen = [3000]",
    ] {
        let grant = format!("fs_write = [\"@workspace\"], {network}");
        let held = perl(&home, "", &grant, &script);
        if !has_jail(&held) {
            return;
        }
        let others = "path: refused\nbeside: refused\nname: refused\nmail: refused\n";
        assert_eq!(held.output()[0], format!("{own}{others}{of_host}"), "{network}: {held:?}");
        std::fs::remove_file(home.dir().join("own")).unwrap();
    }
    // All of them can be reached by whoever is not in a jail.
    assert!(UnixStream::connect(home.dir().join("host.sock")).is_ok());
    assert!(UnixStream::connect_addr(&address).is_ok());
    let sent = UnixDatagram::pair().unwrap().0.send_to(b"x", home.dir().join("mail.sock"));
    assert!(sent.is_ok() && std::path::Path::new(&terminal).exists());
}

#[test]
fn a_program_that_was_judged_is_found_wherever_it_is_installed() {
    let home = Home::new();
    let place = home.dir().join("../tools").canonicalize().unwrap_or_else(|_| {
        std::fs::create_dir(home.dir().join("../tools")).unwrap();
        home.dir().join("../tools").canonicalize().unwrap()
    });
    home.write("../tools/lib/hello", "#!/bin/sh\necho hello from ${0##*/}\n")
        .write("../tools/lib/secret", SECRET);
    symlink("lib/hello", place.join("greet")).unwrap();
    let place = place.display();
    let policy = |path: &str| {
        format!(
            "version = 1\n[sandbox.env]\nset = {{ PATH = \"{path}/usr/bin:/bin\" }}\n[programs]\n\
             pin = {{ greet = \"{place}/lib/hello\" }}\n[[rule]]\nid = \"greet\"\neffect = \"allow\"\nprogram = \"greet\"\n\
             [[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\n"
        )
    };
    // A name that no search path leads to is found, too.
    for path in [String::new(), format!("{place}:")] {
        for step in ["run: greet", "run: greet | cat", "exec: [greet]"] {
            home.write("p.toml", policy(&path))
                .write("x.lobster", format!("steps:\n  - {{ id: a, {step} }}\n"));
            let answer = home.tool(["--policy", "p.toml", "x.lobster"]);
            if !has_jail(&answer) {
                return;
            }
            assert_eq!(answer.output()[0], "hello from greet\n", "{step}, {path:?}: {answer:?}");
        }
    }
    // What lies beside it was not named.
    home.write("x.pl", format!("print open(my $h, '<', '{place}/lib/secret') ? 'read' : 'unseen';"));
    home.write("x.lobster", "steps:\n  - { id: a, exec: [perl, x.pl] }\n");
    assert_eq!(home.tool(["--policy", "p.toml", "x.lobster"]).output()[0], "unseen");
}

/// A runtime reserves much more memory than it uses.
#[test]
fn reserved_memory_is_limited_only_where_no_control_group_holds_the_limit() {
    let home = Home::new();
    let script = "open(my $h, '<', '/proc/self/limits'); print grep { /data size/ } <$h>;";
    let held = perl(&home, "[limits]\nmemory = \"3GiB\"", "", script);
    if !has_jail(&held) {
        return;
    }
    let shown = home.lobster(["show", "@", "--full"]).run().stdout;
    let statement = shown.lines().find_map(|line| line.trim().strip_prefix("enforced ")).unwrap();
    let statement: serde_json::Value = serde_json::from_str(statement).unwrap();
    let by_group = statement["held"].as_array().unwrap().iter().any(|held| held[0] == "tree-limits");
    let limit = if by_group { "unlimited" } else { "3221225472" };
    let output = held.output()[0].to_string();
    assert!(output.contains(limit), "{limit}: {output}");
}

#[test]
fn no_set_user_id_program_is_left_behind() {
    let home = Home::new();
    let script = "open(my $h, '>', 'x'); print chmod(04755, 'x') ? 'made' : 'refused'; print chmod(0755, 'x') ? ' fine' : ' no';";
    let held = perl(&home, "", "fs_write = [\"@workspace\"]", script);
    if !has_jail(&held) {
        return;
    }
    assert_eq!(held.output()[0], "refused fine", "{held:?}");
    assert_eq!(std::fs::metadata(home.dir().join("x")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn the_disk_is_not_filled() {
    let home = Home::new();
    let script =
        "for my $n (1 .. 20) { open(my $h, '>', \"f$n\"); print $h 'x' x 4194304; } sleep 20; print 'late';";
    let held = perl(&home, "[limits]\ndisk = \"24MiB\"", "fs_write = [\"@workspace\"]", script);
    if !has_jail(&held) {
        return;
    }
    let message = held.error();
    assert!(
        message.contains("added more than 25165824 bytes") && message.contains("limits.disk"),
        "{message}"
    );
}

#[test]
fn a_server_in_one_branch_is_reached_from_another_and_from_nowhere_else() {
    let home = Home::new();
    home.write(
        "server.pl",
        "use IO::Socket::INET; my $s = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 3000, \
         Listen => 5, ReuseAddr => 1) or die \"cannot listen: $!\"; my $c = $s->accept; print $c 'hello'; print 'served';",
    )
    .write(
        "client.pl",
        "use IO::Socket::INET; for (1 .. 200) { if (my $c = IO::Socket::INET->new(PeerAddr => '127.0.0.1', \
         PeerPort => 3000)) { print <$c>; exit } select(undef, undef, undef, 0.05) } print \"never: $!\";",
    )
    .write("flow.lobster", "steps:\n  - id: both\n    parallel:\n      wait: all\n      branches:\n        - { id: server, exec: [perl, server.pl] }\n        - { id: client, exec: [perl, client.pl] }\n");
    let policy = |listen: &str, connect: &str| {
        format!(
            "version = 1\n[[rule]]\nid = \"server\"\neffect = \"allow\"\nargv = [\"perl\", \"server.pl\"]\n\
             grant = {{ {listen} }}\n[[rule]]\nid = \"client\"\neffect = \"allow\"\n\
             argv = [\"perl\", \"client.pl\"]\ngrant = {{ {connect} }}\n"
        )
    };
    home.write("p.toml", policy("listen = [3000]", "connect = [3000]"));
    let ran = home.tool(["--policy", "p.toml", "flow.lobster"]);
    if !has_jail(&ran) {
        return;
    }
    assert!(ran.stdout.contains("hello") && ran.stdout.contains("served"), "{ran:?}");
    // Both networks in one rule make no sense, and that is said when it is read.
    home.write("q.toml", policy("listen = [3000], net = \"host-network\"", ""));
    let checked = home.lobster(["policy", "check", "q.toml"]).run();
    assert!(checked.code() != 0 && checked.stderr.contains("grant them without net"), "{checked:?}");
    // Without its grant the server has a network to itself.
    home.write("client.pl", home.read("client.pl").replace("200", "3"))
        .write(
            "server.pl",
            home.read("server.pl")
                .replace("my $c = $s->accept;", "sleep 2; my $c;")
                .replace("print $c 'hello'; ", ""),
        )
        .write("r.toml", policy("", "connect = [3000]"));
    let apart = home.tool(["--policy", "r.toml", "flow.lobster"]);
    assert!(apart.stdout.contains("never: ") && apart.stdout.contains("served"), "{apart:?}");
}

/// A pipeline command that reads a file itself is in no jail.
#[test]
fn a_pipeline_command_reads_no_file_that_the_policy_hides() {
    let home = Home::new();
    home.write("p.toml", "version = 1\n[sandbox.fs]\ndeny = [\"**/.env\"]\n")
        .write(".env", SECRET)
        .write("plain", SECRET);
    let outside = home.state().parent().unwrap().join("outside");
    std::fs::write(&outside, SECRET).unwrap();
    symlink(".env", home.dir().join("link")).unwrap();
    let store = home.state().join("store");
    for (file, is_hidden) in [
        (".env".into(), true),
        ("link".into(), true),
        (outside, true),
        (store.join("lobster.db"), true),
        ("plain".into(), false),
    ] {
        let file = file.display();
        home.write(
            "flow.lobster",
            format!("steps:\n  - {{ id: a, pipeline: 'exec echo x | template --file {file}' }}\n"),
        );
        let answer = home.tool(["--policy", "p.toml", "flow.lobster"]);
        if !has_jail(&answer) {
            return;
        }
        assert_eq!(answer.stdout.contains(SECRET), !is_hidden, "{file}: {answer:?}");
        assert_eq!(answer.stdout.contains("the policy lets no step read"), is_hidden, "{file}: {answer:?}");
    }
    home.write("flow.lobster", "steps:\n  - { id: a, pipeline: 'exec echo x | template --file .env' }\n");
    assert!(home.tool(["flow.lobster"]).stdout.contains(SECRET));
}

/// Tries to write, replace and move every place that lobster believes, and names what it could.
const OWN_PLACES: &str = r#"
my ($home, $state, $work, $root) = @ENV{qw(H S W R)};
sub told { print "$_[0]\n" if $_[1] }
for my $file ("$state/x", "$state/store/x", "$state/store/trust/policies.json", "$state/logins/x", "$home/.lobster/high-water/x",
        "$home/.config/lobster/secrets.toml", "$work/p.toml", "$work/pool.json", "$work/mcp.toml") {
    # The home of a step that has no root there is one of its own, empty and gone afterwards.
    next if $root eq $work && $file =~ m{^\Q$home\E/};
    (my $dir = $file) =~ s{/[^/]*$}{};
    system('mkdir', '-p', $dir) unless -d $dir;
    my $h;
    told("wrote $file", open($h, '>>', $file) && print $h 'x');
    told("replaced $file", rename("$work/new", $file)) if open(my $n, '>', "$work/new");
    told("removed $file", -e $file && unlink($file));
}
my %seen;
for my $place ("$state/store/trust", "$state/logins", "$home/.lobster/high-water", "$home/.config/lobster") {
    for (my $dir = $place; $dir =~ m{^(\Q$home\E|\Q$work\E)/.}; $dir =~ s{/[^/]*$}{}) {
        next if $seen{$dir}++ || !-d $dir;
        told("moved $dir", rename($dir, "$dir.old"));
    }
}
told("read $_", 1) for glob("$state/*");
told('fine', open(my $h, '>', "$work/fine"));
"#;

#[test]
fn what_lobster_believes_stays_as_it_is_in_any_write_root() {
    for (root, state) in
        [("~", "home/.lobster/state"), ("@workspace", "work/my/state"), ("", "home/.lobster/state")]
    {
        let home = Home::new();
        let top = home.dir().parent().unwrap().to_owned();
        let [user, state] = ["home", state].map(|name| top.join(name));
        std::fs::create_dir_all(&user).unwrap();
        let root = if root.is_empty() { top.to_str().unwrap() } else { root };
        let vars = [("H", &user), ("S", &state), ("W", &home.dir().to_owned())]
            .map(|(name, path)| format!("{name} = \"{}\"", path.display()))
            .join(", ");
        let vars = format!("{vars}, R = \"{root}\"");
        let policy = format!(
            "version = 1\n[sandbox.env]\nset = {{ {vars} }}\n[[rule]]\nid = \"perl\"\neffect = \"allow\"\n\
             program = \"perl\"\ngrant = {{ fs_write = [\"{root}\", \"@workspace\"] }}\n"
        );
        home.write("p.toml", &policy)
            .write("mcp.toml", "version = 1\n")
            .write("x.pl", OWN_PLACES)
            .write("x.lobster", "steps:\n  - { id: a, exec: [perl, x.pl] }\n");
        let run = |state: &std::path::Path| {
            let call = home.lobster(["run", "--mode", "tool", "x.lobster"]);
            let named = [
                ("LOBSTER_POLICY", "p.toml"),
                ("LOBSTER_MCP_CONFIG", "mcp.toml"),
                ("LOBSTER_LLM_POOL", "pool.json"),
            ];
            let call =
                named.into_iter().fold(call, |call, (name, file)| call.env(name, home.dir().join(file)));
            call.env("HOME", &user).env("LOBSTER_STATE_DIR", state).run()
        };
        let held = run(&state);
        if !has_jail(&held) {
            return;
        }
        assert_eq!(held.output()[0], "fine\n", "{root}: {held:?}");
        assert_eq!(home.read("p.toml"), policy);
        assert!(state.join("store/lobster.db").exists());
        // A second one finds what the first one left, and no placeholder of it.
        assert_eq!(run(&state).output()[0], "fine\n", "{root}");
        assert!(!user.join(".config/lobster").exists());
        // A link could be replaced, and lobster would believe another directory the next time.
        if root == "~" {
            std::fs::create_dir_all(top.join("elsewhere")).unwrap();
            symlink("../elsewhere", user.join("link")).unwrap();
            let refused = run(&user.join("link/state"));
            assert!(refused.stdout.contains("through a symbolic link"), "{refused:?}");
        }
    }
}

/// While lobster lists the settings of a repository, git runs no program that they name.
#[test]
fn listing_the_settings_of_a_repository_runs_none_of_its_programs() {
    let home = Home::new();
    let git = |words: &[&str]| {
        let identity = ["-c", "user.email=a@b", "-c", "user.name=x"];
        let done = home.program("/usr/bin/git", [&identity[..], words].concat()).run();
        assert_eq!(done.code(), 0, "{words:?}: {done:?}");
        done.stdout.trim().to_owned()
    };
    git(&["init", "-q", "-b", "main", "."]);
    home.write(".gitmodules", "[submodule \"a\"]\n\tpath = a\n\turl = ./a\n");
    git(&["add", ".gitmodules"]);
    git(&["commit", "-qm", "1"]);
    // lobster does not wait for it as long as it runs, so the step would fail.
    home.write("evil.sh", "#!/bin/sh\nexec sleep 60\n");
    let evil = home.dir().join("evil.sh");
    std::fs::set_permissions(&evil, std::fs::Permissions::from_mode(0o755)).unwrap();
    let evil = evil.to_str().unwrap();
    let runs = |command: &str| {
        home.write("p.toml", "version = 1\n")
            .write("x.lobster", format!("steps:\n  - {{ id: a, run: {command} }}\n"))
            .lobster(["run", "--mode", "tool", "x.lobster"])
            .env("LOBSTER_POLICY", home.dir().join("p.toml"))
            .run()
    };
    let plain = runs("git log --oneline");
    if !has_jail(&plain) {
        return;
    }
    assert_eq!(plain.code(), 0, "{plain:?}");
    git(&["config", "core.fsmonitor", evil]);
    for command in ["git log --oneline", "git --version"] {
        let held = runs(command);
        assert_eq!(held.code(), 0, "fsmonitor: {held:?}");
    }
    git(&["config", "core.fsmonitor", "false"]);
    // The blob of `.gitmodules` is missing, and the program would fetch it.
    let blob = git(&["rev-parse", "HEAD:.gitmodules"]);
    let (folder, file) = blob.split_at(2);
    git(&["rm", "-q", ".gitmodules"]);
    std::fs::remove_file(home.dir().join(".git/objects").join(folder).join(file)).unwrap();
    for (name, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "o"),
        ("remote.o.url", "./.git"),
        ("remote.o.promisor", "true"),
        ("remote.o.uploadpack", evil),
    ] {
        git(&["config", name, value]);
    }
    let held = runs("git log --oneline");
    assert_eq!(held.code(), 0, "lazy fetching: {held:?}");
    // A name that could not be overridden.
    let mut config = std::fs::read(home.dir().join(".git/config")).unwrap();
    config.extend(b"[diff \"\xff\"]\n\ttextconv = ./evil.sh\n");
    std::fs::write(home.dir().join(".git/config"), config).unwrap();
    let refused = runs("git log --oneline");
    assert!(refused.stdout.contains("not UTF-8"), "{refused:?}");
}
