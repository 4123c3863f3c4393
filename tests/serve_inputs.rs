//! What is wrong from outside, one test each: the server says it and stays up.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};
use crate::setting::number;

const GOOD: &str = "steps: [{id: a, run: 'echo good >> said'}]\n";

fn certificate(name: &str) -> std::path::PathBuf {
    crate::binary::repository().join("tests/certificates").join(name)
}

/// The certificate of these tests as it would be if it had ended in another year.
fn ended_in(year: &str) -> String {
    let pem = std::fs::read_to_string(certificate("localhost.pem")).unwrap();
    let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    let mut der = STANDARD.decode(text).unwrap();
    for (was, is) in [("261124", "201124"), ("2126", year)] {
        let at = der.windows(was.len()).position(|bytes| bytes == was.as_bytes()).unwrap();
        der[at..at + was.len()].copy_from_slice(is.as_bytes());
    }
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}

#[test]
fn a_port_in_use_is_said_with_the_way_out() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let second = home.lobster(["serve", "--listen", &served.address]).run();
    assert!(second.code() == 1 && second.stderr.contains("--listen"), "{second:?}");
    assert_eq!(served.send("GET", "/healthz", &[], b"").status, 200);
}

#[test]
fn a_certificate_that_does_not_fit_or_has_expired_is_refused_at_the_start() {
    let home = Home::new();
    home.write("expired.pem", ended_in("2025"));
    let (good, key, other) =
        (certificate("localhost.pem"), certificate("localhost.key"), certificate("other.key"));
    let (good, key, other) = (good.to_str().unwrap(), key.to_str().unwrap(), other.to_str().unwrap());
    for (cert, key, host, about) in [
        ("expired.pem", key, "localhost", "has expired on 2025-10-31"),
        (good, other, "localhost", "is not the key of the certificate"),
        (good, key, "flows.example", "is not for flows.example"),
    ] {
        let words =
            ["serve", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--allow-host", host];
        let refused = home.lobster(words).run();
        assert!(refused.code() == 2 && refused.stderr.contains(about), "{refused:?}");
    }
}

#[test]
fn doctor_attacks_a_server_with_tls() {
    let home = Home::new();
    let (cert, key) = (certificate("localhost.pem"), certificate("localhost.key"));
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--tls-cert",
        cert.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ];
    let mut child = home.lobster(words).start();
    let mut told = home.lobster(["doctor", "--service"]).run();
    wait_until("the server is known", || {
        told = home.lobster(["doctor", "--service"]).run();
        told.code() == 0
    });
    let _ = child.kill();
    let _ = child.wait();
    assert!(
        told.stdout.contains("certificate is valid now") && told.stdout.contains("DNS rebinding"),
        "{told:?}"
    );
    assert!(!told.stdout.contains("broken"), "{told:?}");
}

#[test]
fn a_server_says_how_people_reach_it_and_links_and_doctor_use_that() {
    let port_of = |served: &Served| served.address.rsplit_once(':').unwrap().1.to_owned();
    let cases = [
        ("127.0.0.1:0", &[][..], "http://127.0.0.1:PORT"),
        // A container whose port is published, and a proxy in front of one.
        ("0.0.0.0:0", &["--behind-proxy", "--allow-host", "localhost"], "http://localhost:PORT"),
        ("[::]:0", &["--behind-proxy", "--allow-host", "flows.example"], "https://flows.example"),
        ("127.0.0.1:0", &["--behind-proxy", "--allow-host", "flows.example"], "https://flows.example"),
    ];
    let says_so = |(listen, words, reached): (&str, &[&str], &str)| {
        let home = Home::new();
        let served = Served::start_on(&home, listen, words);
        let reached = reached.replace("PORT", &port_of(&served));
        let mut told = home.lobster(["doctor", "--service"]).run();
        wait_until("the server is known", || {
            told = home.lobster(["doctor", "--service"]).run();
            !told.stderr.contains("no server")
        });
        assert!(told.code() == 0 && !told.stdout.contains("broken"), "{listen} {words:?}: {told:?}");
        for command in [&["serve", "link"][..], &["console", "--no-browser"]] {
            let link = home.lobster(command).run();
            assert!(
                link.stdout.starts_with(&format!("{reached}/login#lob_")),
                "{listen} {words:?}: {link:?}"
            );
        }
        let asks = home.lobster(["approve --prompt Go?"]).run();
        assert!(format!("{asks:?}").contains(&format!("{reached}/questions/")), "{asks:?}");
    };
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || says_so(case));
        }
    });
}

#[test]
fn a_folder_that_vanishes_is_said_and_others_run() {
    let home = Home::new();
    home.write("one/good.lobster", GOOD).write("two/gone.lobster", "steps: [{id: a, run: 'true'}]\n");
    let served = Served::start(&home, &["--workflows", "one", "--workflows", "two", "--trust"]);
    let admin = token(&home, "admin", None);
    let found = |name: &str| served.get(&admin, "/api/v1/workflows").good().to_string().contains(name);
    wait_until("both are there", || found("\"good\"") && found("\"gone\""));
    std::fs::remove_dir_all(home.dir().join("two")).unwrap();
    wait_until("it is said", || served.has_said("two") && found("the folder"));
    served.post(&admin, "/api/v1/workflows/good/runs", &json!({})).good();
    wait_until("the other one runs", || home.read("one/said") == "good\n");
    home.write("two/gone.lobster", "steps: [{id: a, run: 'echo back >> said'}]\n");
    wait_until("it is taken up again", || !found("the folder"));
}

#[test]
fn a_broken_file_among_good_ones_is_listed_and_the_good_ones_run() {
    let home = Home::new();
    home.write("flows/good.lobster", GOOD).write("flows/broken.lobster", "steps: [{id: a, run: }{\n");
    std::fs::write(home.dir().join("flows/bytes.lobster"), [0xff, 0xfe, 0]).unwrap();
    std::os::unix::fs::symlink("nowhere", home.dir().join("flows/link.lobster")).unwrap();
    let served = Served::start(&home, &["--workflows", "flows", "--trust"]);
    let admin = token(&home, "admin", None);
    wait_until("what is broken is listed", || {
        let listed = served.get(&admin, "/api/v1/workflows").good();
        let problems = listed["problems"].to_string();
        listed["workflows"][0]["name"] == "good"
            && problems.contains("broken.lobster")
            && problems.contains("bytes.lobster")
    });
    served.post(&admin, "/api/v1/workflows/good/runs", &json!({})).good();
    wait_until("the good one runs", || home.read("flows/said") == "good\n");
}

#[test]
fn the_thirtieth_of_february_is_an_error_of_the_file() {
    let home = Home::new();
    home.write("never.lobster", "on: {schedule: {cron: '0 0 30 2 *'}}\nsteps: [{id: a, run: 'true'}]\n");
    let checked = home.lobster(["check", "never.lobster"]).run();
    assert!(checked.code() > 0 && checked.stdout.contains("0 0 30 2 *"), "{checked:?}");
    let refused = home.lobster(["schedule", "register", "--trust", "never.lobster"]).run();
    assert!(refused.code() > 0 && refused.stderr.contains("never due"), "{refused:?}");
}

#[test]
fn two_gigabytes_are_refused_unread() {
    let home = Home::new();
    home.write("good.lobster", GOOD);
    register(&home, &["good.lobster"]);
    let served = Served::start(&home, &[]);
    let admin = token(&home, "admin", None);
    for (path, auth) in [("/api/v1/workflows/good/runs", Some(&admin)), ("/hooks/any", None), ("/mcp", None)]
    {
        let auth = auth.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let mut stream = TcpStream::connect(&served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {}\r\n{auth}Content-Type: application/json\r\nContent-Length: 2147483648\r\n\r\n",
            served.address
        )
        .unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(["HTTP/1.1 413", "HTTP/1.1 401"].contains(&answer.as_str()), "{path}: {answer}");
    }
    assert_eq!(served.get(&admin, "/api/v1/me").status, 200);
}

#[test]
fn a_client_that_dawdles_keeps_nobody() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let viewer = token(&home, "viewer", None);
    let begun = Instant::now();
    let mut slow: Vec<TcpStream> = (0..80)
        .map(|_| {
            let mut stream = TcpStream::connect(&served.address).unwrap();
            write!(stream, "GET /healthz HT").unwrap();
            stream
        })
        .collect();
    for _ in 0..5 {
        assert_eq!(served.get(&viewer, "/api/v1/me").status, 200);
        slow.iter_mut().for_each(|stream| drop(stream.write_all(b"T")));
    }
    assert!(begun.elapsed() < Duration::from_secs(14), "others waited for them");
}

/// `LOBSTER_SERVE_CONNECTIONS` at once, from processes of their own: one has not so many descriptors.
#[test]
fn many_connections_keep_nobody_out() {
    let wanted: usize = number("LOBSTER_SERVE_CONNECTIONS", 600);
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let viewer = token(&home, "viewer", None);
    let port = served.address.rsplit(':').next().unwrap();
    let script = "use IO::Socket::INET; my @all; for (1..$ARGV[1]) { my $s = IO::Socket::INET->new(PeerAddr => \
                  '127.0.0.1', PeerPort => $ARGV[0], Proto => 'tcp') or next; push @all, $s; } print \"ready\\n\"; \
                  $| = 1; print ''; <STDIN>;";
    let mut crowds = Vec::new();
    for _ in 0..wanted.div_ceil(500) {
        let mut child = Command::new("perl")
            .args(["-e", script, port, "500"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        assert_eq!(served.get(&viewer, "/api/v1/me").status, 200, "while they come");
        let stdin = child.stdin.take();
        crowds.push((child, stdin));
    }
    for _ in 0..20 {
        assert_eq!(served.get(&viewer, "/api/v1/me").status, 200);
        std::thread::sleep(Duration::from_millis(50));
    }
    for (mut child, stdin) in crowds {
        drop(stdin);
        let _ = child.wait();
    }
    assert_eq!(served.get(&viewer, "/api/v1/me").status, 200);
}
