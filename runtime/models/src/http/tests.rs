use std::time::Instant;

use super::testing::{Answer, Server};
use super::*;

const LIMITS: HttpLimits = HttpLimits { idle: Duration::from_secs(5), body: 1 << 20 };

const TOKEN: &str = "s3cret-0123456789";

fn request(url: &str) -> Post {
    Post {
        url: parse_url(url).unwrap(),
        headers: Vec::new(),
        credential: Secret::new(&format!(" {TOKEN} ")).map(RequestAuth::Bearer),
        body: r#"{"a":1}"#.to_owned(),
    }
}

#[test]
fn retry_after_is_a_number_or_a_date() {
    let now: jiff::Timestamp = "2015-10-21T07:27:00Z".parse().unwrap();
    let seconds = |text: &str| retry_after(text, now).map(|d| d.as_secs());
    assert_eq!(seconds("120"), Some(120));
    assert_eq!(seconds("Wed, 21 Oct 2015 07:28:00 GMT"), Some(60));
    assert_eq!(seconds("Wed, 21 Oct 2015 07:26:00 GMT"), Some(0));
    assert_eq!(seconds("soon"), None);
    assert_eq!(seconds("-1"), None);
}

fn post_to(url: &str) -> Result<CompleteReply, String> {
    post(&request(url), LIMITS, &|request| make_request(request, &CancelToken::new()))
        .map_err(|e| e.to_string())
}

#[test]
fn sends_json_and_reads_the_answer() {
    let server = Server::start([Answer::new(201, "\u{feff}{\"ok\":true}")]);
    let reply = post_to(&server.url("/x?y=1")).unwrap();
    assert_eq!((reply.status, reply.reason.as_str(), reply.retry_after), (201, "Created", None));
    assert_eq!(reply.body_json().unwrap(), serde_json::json!({"ok": true}));
    let seen = server.requests();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].method.as_str(), seen[0].path.as_str()), ("POST", "/x?y=1"));
    assert_eq!(seen[0].header("content-type"), Some("application/json"));
    assert_eq!(seen[0].header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    assert_eq!(seen[0].body, r#"{"a":1}"#);
}

#[test]
fn an_error_status_is_an_answer_without_the_token() {
    let server = Server::start([Answer::new(503, &format!("bad token {TOKEN}"))]);
    let reply = post_to(&server.url("/")).unwrap();
    assert_eq!(reply.body_excerpt(), "bad token [redacted]");
    assert!(!reply.is_success());
}

#[test]
fn an_answer_is_read_before_the_token_in_it_is_masked() {
    // A token may equal a word, a number or a key of the answer, or a character that makes it JSON.
    for token in ["openclaw", "1234", "ok", "\"", ":", "{", "a-token-of-some-length", "123456789012"] {
        let answer = serde_json::json!({
            "ok": true, "openclaw": "/home/u/.openclaw/a.md", "n": 12_345_678_123_456_789_012_u64,
            "a-token-of-some-length": ["x a-token-of-some-length y", {"k": "1234"}],
        });
        let server = Server::start([Answer::json(&answer)]);
        let mut request = request(&server.url("/"));
        request.credential = Secret::new(token).map(RequestAuth::Bearer);
        let read = post(&request, LIMITS, &|request| make_request(request, &CancelToken::new()))
            .unwrap()
            .body_json()
            .unwrap();
        let mut expected = answer;
        if token == "a-token-of-some-length" {
            expected[token][0] = "x [redacted] y".into();
        }
        assert_eq!(read, expected, "{token}");
    }
}

#[test]
fn redirects_lose_the_body_or_end_the_request() {
    let other = Server::start([Answer::new(200, "other")]);
    let server = Server::start([
        Answer::redirect(302, "/next"),
        Answer::new(200, "got"),
        Answer::redirect(307, &other.url("/there")),
    ]);
    assert_eq!(post_to(&server.url("/a")).unwrap().body_excerpt(), "got");
    let seen = server.requests();
    assert_eq!((seen[1].method.as_str(), seen[1].path.as_str(), seen[1].body.as_str()), ("GET", "/next", ""));
    assert_eq!(seen[1].header("content-type"), None);
    assert_eq!(seen[1].header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    let error = post_to(&server.url("/b")).unwrap_err();
    assert!(
        error.starts_with(&format!(
            "fetch failed: {} redirects, and a POST",
            server.url("").trim_end_matches('/')
        )),
        "{error}"
    );
    assert_eq!(other.requests().len(), 0);
}

#[test]
fn redirects_end() {
    let repeated = "redirects, and a POST is not sent again";
    for (status, why, requests) in
        [(307, repeated, 1), (308, repeated, 1), (302, "more than 20 redirects", 21)]
    {
        let server = Server::start([Answer::redirect(status, "/again")]);
        let error = post_to(&server.url("/")).unwrap_err();
        assert!(error.starts_with("fetch failed: ") && error.contains(why), "{error}");
        assert_eq!(server.requests().len(), requests, "{status}");
    }
    let server = Server::start([Answer::redirect(302, "file:///etc/passwd")]);
    assert!(post_to(&server.url("/")).unwrap_err().contains("not an http(s) address"));
}

#[test]
fn cancelling_ends_a_silent_call_at_once() {
    for answer in [Answer::hang(), Answer::hang_after("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{")] {
        let server = Server::start([answer]);
        let (token, request) = (CancelToken::new(), request(&server.url("/")));
        let canceller = token.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150));
            canceller.cancel(CancelReason::Timeout("too slow".into()));
            Instant::now()
        });
        let error = post(&request, LIMITS, &|request| make_request(request, &token)).unwrap_err();
        let late = thread.join().unwrap().elapsed();
        assert_eq!(error.to_string(), "too slow");
        assert!(late < Duration::from_secs(2), "{late:?}");
        assert!(matches!(
            post(&request, LIMITS, &|request| make_request(request, &token)),
            Err(HttpError::Cancelled(_))
        ));
    }
}

#[test]
fn cancelling_ends_a_call_that_still_connects() {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&socket, 0).unwrap();
    let address = std::net::SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    // The server accepts nothing: once the queue is full, further connections hang.
    let queue: Vec<_> = std::iter::from_fn(|| {
        std::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)).ok()
    })
    .take(16)
    .collect();
    assert!(queue.len() < 16, "the queue never fills");
    let token = CancelToken::new();
    let canceller = token.clone();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        canceller.cancel(CancelReason::Signal("SIGTERM".into()));
        Instant::now()
    });
    let error =
        post(&request(&format!("http://{address}/")), LIMITS, &|request| make_request(request, &token))
            .unwrap_err();
    assert_eq!(error.to_string(), "Received SIGTERM");
    assert!(thread.join().unwrap().elapsed() < Duration::from_secs(2));
}

#[test]
fn a_silent_server_is_given_up() {
    for answer in [Answer::hang(), Answer::hang_after("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{")] {
        let server = Server::start([answer]);
        let limits = HttpLimits { idle: Duration::from_millis(80), ..LIMITS };
        let error =
            post(&request(&server.url("/")), limits, &|request| make_request(request, &CancelToken::new()))
                .unwrap_err();
        assert!(error.to_string().contains("silent for 80 ms"), "{error}");
    }
}

#[test]
fn large_and_broken_answers_are_named() {
    let large = "x".repeat((1 << 20) + 1);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{large}\r\n0\r\n\r\n",
        large.len()
    );
    let server = Server::start([
        Answer::new(200, &large),
        Answer::raw(&chunked),
        Answer::raw("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"cut"),
        Answer::raw(""),
        Answer::raw("no http at all\r\n\r\n"),
    ]);
    let large = "HTTP response body exceeded 1048576 bytes";
    for part in [large, large, "fetch failed: ", "fetch failed: ", "fetch failed: "] {
        let error = post_to(&server.url("/secret-path")).unwrap_err();
        assert!(error.starts_with(part) && (part == large || error.contains("broke off")), "{part}: {error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn unreachable_and_unusable_addresses() {
    let error = post_to("http://127.0.0.1:1/").unwrap_err();
    assert!(error.starts_with("fetch failed: no connection to http://127.0.0.1:1: "), "{error}");
    let error = post_to("http://me:pw@127.0.0.1:1/").unwrap_err();
    assert!(error.contains("--token") && !error.contains("pw"), "{error}");
    let mut bad = request("http://127.0.0.1:1/");
    bad.credential = Secret::new("a\nb").map(RequestAuth::Bearer);
    let error =
        post(&bad, LIMITS, &|request| make_request(request, &CancelToken::new())).unwrap_err().to_string();
    assert!(error.contains("no HTTP header"), "{error}");
    // The server does not speak TLS; at least the client for it can be made.
    let server = Server::start([Answer::raw("plain")]);
    let error = post_to(&server.url("/").replace("http:", "https:")).unwrap_err();
    assert!(error.starts_with("fetch failed: "), "{error}");
}

#[test]
fn settings_are_numbers() {
    let env = |name: &str| match name {
        "LOBSTER_HTTP_TIMEOUT_MS" => Some("250".to_owned()),
        _ => None,
    };
    assert_eq!(
        HttpLimits::from_env(env).unwrap(),
        HttpLimits { idle: Duration::from_millis(250), body: MAX_BODY }
    );
    for bad in ["0", "x", "-1", "1.5"] {
        assert!(HttpLimits::from_env(|_| Some(bad.to_owned())).is_err(), "{bad}");
    }
    let body = |own: &str, asked: &str| {
        let env = |name: &str| match name {
            "LOBSTER_HTTP_MAX_BYTES" => Some(own.to_owned()),
            name if name == MAX_RESPONSE.name => Some(asked.to_owned()),
            _ => None,
        };
        HttpLimits::from_env(env).map(|limits| limits.body).map_err(|error| error.to_string())
    };
    assert_eq!(body("", " "), Ok(MAX_BODY));
    assert_eq!(body("", "99999999"), Ok(99_999_999));
    assert_eq!(body("1000", "99999999"), Ok(1000));
    assert_eq!(body("9999", " 1024 "), Ok(1024));
    for bad in ["0", "-1", "1.5", "+5", "Infinity", "true", "9007199254740992"] {
        let refused = "LOBSTER_MAX_HTTP_RESPONSE_BYTES must be a positive safe integer (bytes)";
        assert_eq!(body("", bad), Err(refused.to_owned()), "{bad}");
    }
}

#[test]
fn addresses_are_shown_without_what_may_be_secret() {
    let url = parse_url("https://u:p@h.test/a/b?key=abc&x=1#f").unwrap();
    assert_eq!(redacted_address(&url), "https://h.test/a/b?key=%E2%80%A6&x=%E2%80%A6");
    assert_eq!(redacted_address(&parse_url("http://h.test").unwrap()), "http://h.test/");
    assert!(is_loopback(&parse_url("http://[::1]:1/").unwrap()));
    assert!(!is_loopback(&parse_url("http://localhost.evil.test/").unwrap()));
    assert_eq!(format!("{:?}", Secret::new("abc")), "Some([redacted])");
}
