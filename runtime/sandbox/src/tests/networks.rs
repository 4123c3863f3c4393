//! Networks that jails share.

use super::confined::{jail, jailed, until_there};
use super::*;

/// Serves a line on this port to two clients.
const SERVER: &str = "import socket, sys\n\
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
    s.bind(('127.0.0.1', int(sys.argv[1]))); s.listen(); open(sys.argv[2], 'w').close()\n\
    for _ in range(2):\n\
    \x20c, _ = s.accept(); c.sendall(b'hello'); c.close()\n\
    print('served')\n";

/// Prints the output of each of these ports, or the error.
const CLIENT: &str = "import socket, sys\n\
    for port in sys.argv[1:]:\n\
    \x20try: c = socket.create_connection(('127.0.0.1', int(port)), 5); print(c.recv(9).decode())\n\
    \x20except OSError as e: print(e.strerror)\n";

fn python(dir: &Path, ports: Option<Ports>, code: &str, args: &[&str]) -> SpawnRequest {
    let mut request = jailed("", JailSpec { ports, ..jail(dir) });
    request.argv = ["/usr/bin/python3", "-c", code].iter().chain(args).map(OsString::from).collect();
    request
}

fn ports_of(network: &str, listen: &[u16], connect: &[u16]) -> Option<Ports> {
    Some(Ports { network: network.to_owned(), listen: listen.to_vec(), connect: connect.to_vec() })
}

#[test]
fn a_port_is_served_to_the_same_network_and_to_nobody_else() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let up = dir.path().join("up");
    let sandbox = Sandbox::new(SandboxConfig::default());
    let go = |ports, code, args: &[&str]| {
        let (exit, out, err) =
            run_with(&sandbox, &python(dir.path(), ports, code, args), &CancelToken::new()).unwrap();
        (exit.enforcement, format!("{out}{err}"))
    };
    std::thread::scope(|scope| {
        let server =
            scope.spawn(|| go(ports_of("run", &[3000], &[]), SERVER, &["3000", up.to_str().unwrap()]));
        until_there(&up);
        let (enforcement, out) = go(ports_of("run", &[], &[3000]), CLIENT, &["3000"]);
        assert_eq!(out, "hello\n");
        let held =
            (Promise::NetPorts, vec![Mechanism::NetNamespace, Mechanism::Landlock, Mechanism::Seccomp]);
        assert!(enforcement.held.contains(&held), "{enforcement:?}");
        assert_eq!(enforcement.missing, []);
        // Impossible without the grant, from another run, and from the host.
        assert_eq!(go(ports_of("run", &[], &[4000]), CLIENT, &["3000"]).1, "Permission denied\n");
        assert_eq!(go(ports_of("other", &[], &[3000]), CLIENT, &["3000"]).1, "Connection refused\n");
        assert_eq!(go(None, CLIENT, &["3000"]).1, "Connection refused\n");
        assert!(std::net::TcpStream::connect(("127.0.0.1", 3000)).is_err());
        // Nor can it reach the host's own loopback interface, on any port.
        let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = host.local_addr().unwrap().port();
        assert_eq!(go(ports_of("run", &[], &[port]), CLIENT, &[&port.to_string()]).1, "Connection refused\n");
        assert_eq!(go(ports_of("run", &[], &[3000]), CLIENT, &["3000"]).1, "hello\n");
        assert_eq!(server.join().unwrap().1, "served\n");
    });
    // The network is removed with its last user, and the next one is new.
    assert_eq!(go(ports_of("run", &[], &[3000]), CLIENT, &["3000"]).1, "Connection refused\n");
    let bind = "import socket\n\
        for port in 3000, 3001:\n\
        \x20try: socket.socket().bind(('127.0.0.1', port)); print('bound')\n\
        \x20except OSError as e: print(e.strerror)\n";
    assert_eq!(go(ports_of("run", &[3000], &[]), bind, &[]).1, "bound\nPermission denied\n");
}

#[test]
fn a_server_ends_with_its_step_and_a_killed_one_leaves_nothing() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let up = dir.path().join("up");
    let sandbox = Sandbox::new(SandboxConfig::default());
    let token = CancelToken::new();
    let request = python(dir.path(), ports_of("run", &[3000], &[]), SERVER, &["3000", up.to_str().unwrap()]);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| run_with(&sandbox, &request, &token).unwrap());
        until_there(&up);
        token.force_cancel(CancelReason::Signal("SIGINT".into()));
        assert_eq!(server.join().unwrap().0.ended, Ended::Cancelled);
    });
    // The port is free again.
    fs::remove_file(&up).unwrap();
    std::thread::scope(|scope| {
        let token = CancelToken::new();
        let (sandbox, request) = (&sandbox, &request);
        let server = scope.spawn(move || run_with(sandbox, request, &token).unwrap());
        until_there(&up);
        for _ in 0..2 {
            let client = python(dir.path(), ports_of("run", &[], &[3000]), CLIENT, &["3000"]);
            assert_eq!(run_with(sandbox, &client, &CancelToken::new()).unwrap().1, "hello\n");
        }
        assert_eq!(server.join().unwrap().1, "served\n");
    });
}

#[test]
fn without_namespaces_there_is_no_such_network() {
    for (user, outcome) in confined::as_lobster("ports", "", "echo ran").iter().enumerate() {
        assert_eq!(outcome.trim_end(), "ran\nended Code(0), missing []", "user {user}");
    }
    for lacking in ["user-namespaces", "seccomp", "landlock"] {
        for outcome in confined::as_lobster("ports", lacking, "echo ran") {
            assert!(
                outcome.starts_with("refused [") && outcome.contains("net-ports"),
                "{lacking}: {outcome}"
            );
        }
    }
}
