//! A held login, tested against an authorization server and other processes that act at random.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::login::kept::tests::sample_login;

const SERVER: &str = "https://h.example/mcp";

/// State of the authorization server.
#[derive(Default)]
struct Authority {
    given: usize,
    asked: usize,
    /// The only token that the server accepts.
    good: String,
    /// The only valid refresh token.
    refresh: String,
    is_refusing: bool,
}

impl Authority {
    fn answer(&mut self, form: &str) -> String {
        self.asked += 1;
        if self.is_refusing || !form.contains(&format!("refresh_token={}", self.refresh)) {
            return respond(400, r#"{"error":"invalid_grant"}"#);
        }
        self.give();
        let body = format!(
            r#"{{"access_token":"{}","refresh_token":"{}","token_type":"bearer","expires_in":3600}}"#,
            self.good, self.refresh
        );
        respond(200, &body)
    }

    fn give(&mut self) {
        self.given += 1;
        (self.good, self.refresh) = (format!("access-{}", self.given), format!("refresh-{}", self.given));
    }
}

fn respond(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn serve(mut stream: TcpStream, authority: &Mutex<Authority>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let answer = lock(authority).answer(std::str::from_utf8(&body).unwrap());
    stream.write_all(answer.as_bytes())
}

struct Place {
    dir: tempfile::TempDir,
    endpoint: String,
    authority: Arc<Mutex<Authority>>,
    learned: Arc<Mutex<BTreeSet<String>>>,
}

impl Place {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/token", listener.local_addr().unwrap());
        let authority: Arc<Mutex<Authority>> = Arc::default();
        let plays = Arc::clone(&authority);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let _ = serve(stream, &plays);
            }
        });
        let place = Self { dir: tempfile::tempdir().unwrap(), endpoint, authority, learned: Arc::default() };
        place.log_in(3600);
        place
    }

    fn logins(&self) -> Logins {
        Logins::in_state_dir(self.dir.path())
    }

    /// A person logs in.
    fn log_in(&self, seconds: i64) {
        let mut authority = lock(&self.authority);
        authority.give();
        self.keep(&authority, seconds);
    }

    fn keep(&self, authority: &Authority, seconds: i64) {
        let mut login = sample_login(Some(seconds));
        login.token_endpoint.clone_from(&self.endpoint);
        login.access_token.clone_from(&authority.good);
        login.refresh_token = Some(authority.refresh.clone());
        self.logins().store_login(&login).unwrap();
    }

    /// The token runs out.
    fn expire(&self) {
        self.keep(&lock(&self.authority), 0);
    }

    fn held(&self, pause: Duration) -> HeldLogin {
        let learned = Arc::clone(&self.learned);
        let learn = move |token: &str| {
            lock(&learned).insert(token.to_owned());
        };
        let term = LoginTerm {
            secret: "s".to_owned(),
            name: "web".to_owned(),
            server: SERVER.to_owned(),
            client_secret: None,
        };
        let held = HeldLogin::new(term, self.logins(), CancelToken::new(), Box::new(learn));
        HeldLogin { pause, ..held }
    }

    fn asked(&self) -> usize {
        lock(&self.authority).asked
    }

    /// Sends a request, with a second attempt as a credential makes it. Returns true if the token was valid.
    fn request(&self, held: &HeldLogin) -> Result<bool, TokenError> {
        let is_good = |token: &str| lock(&self.authority).good == token;
        let token = held.token()?;
        assert!(lock(&self.learned).contains(&*token), "the token was used before it was learned");
        if is_good(&token) {
            return Ok(true);
        }
        let other = held.token_in_place_of(&token)?;
        Ok(other.is_some_and(|other| {
            assert!(lock(&self.learned).contains(&*other));
            is_good(&other)
        }))
    }
}

/// Numbers that look random and are the same for each run of a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// After any sequence of events, a request gets a valid token if one is available. It sends at most one renewal, and
/// none if a valid token is in memory.
#[test]
fn requests_have_a_good_token_if_there_is_one() {
    for seed in 0..6 {
        let place = Place::new();
        let held = [place.held(Duration::ZERO), place.held(Duration::ZERO)];
        let mut dice = Dice(seed);
        let (mut is_logged_in, mut is_good) = (true, true);
        for step in 0..30 {
            let what = dice.roll(8);
            match what {
                0 => {
                    place.log_in(3600);
                    (is_logged_in, is_good) = (true, true);
                }
                1 if is_logged_in => {
                    place.expire();
                    is_good = false;
                }
                2 => {
                    lock(&place.authority).good = "none".to_owned();
                    is_good = false;
                }
                3 => is_logged_in = !place.logins().delete_login(SERVER).unwrap() && is_logged_in,
                4 => {
                    let mut authority = lock(&place.authority);
                    authority.is_refusing = !authority.is_refusing;
                }
                _ => {}
            }
            if !is_logged_in {
                is_good = false;
            }
            let before = place.asked();
            let refuses = lock(&place.authority).is_refusing;
            let came = place.request(&held[usize::try_from(dice.roll(2)).unwrap()]);
            let asked = place.asked() - before;
            let context = format!("seed {seed}, step {step}: {what} came to {came:?} after {asked}");
            match came {
                Ok(true) => {
                    assert!(is_good && asked == 0 || is_logged_in && !refuses && asked == 1, "{context}");
                    is_good = true;
                }
                Ok(false) => panic!("{context}"),
                Err(error) => {
                    assert!(!is_good && asked <= 1 && (refuses || !is_logged_in), "{context}");
                    let said = error.to_string();
                    assert!(
                        said.starts_with("secret s: ") && said.contains("`lobster mcp login web`"),
                        "{said}"
                    );
                    assert!(!said.contains("access-") && !said.contains("refresh-"), "{said}");
                }
            }
        }
    }
}

#[test]
fn what_many_need_is_asked_for_once() {
    let place = Place::new();
    place.expire();
    let held = [place.held(PAUSE), place.held(PAUSE)];
    std::thread::scope(|threads| {
        for held in held.iter().cycle().take(16) {
            threads.spawn(|| assert!(place.request(held).unwrap()));
        }
    });
    assert_eq!(place.asked(), 1);
    // The same for a token that is rejected before it expires.
    lock(&place.authority).good = "none".to_owned();
    std::thread::scope(|threads| {
        for _ in 0..16 {
            threads.spawn(|| assert!(place.request(&held[0]).unwrap()));
        }
    });
    assert_eq!(place.asked(), 2);
    assert_eq!(held[0].used_tokens().len(), 2);
}

#[test]
fn a_server_that_refuses_everything_costs_one_renewal() {
    let place = Place::new();
    let held = place.held(PAUSE);
    for _ in 0..20 {
        let token = held.token().unwrap();
        let _ = held.token_in_place_of(&token).unwrap();
    }
    assert_eq!(place.asked(), 1);
    // Another process has renewed the token. It is used at once, despite the pause.
    let known = held.token().unwrap();
    let other = place.logins().valid_token(SERVER, None, WantedToken::OtherThan(&known), &CancelToken::new());
    let other = other.unwrap().unwrap();
    assert_eq!(held.token_in_place_of(&known).unwrap().as_ref(), Some(other.reveal()));
}

#[test]
fn a_login_that_has_ended_is_not_asked_for_again_and_again() {
    let place = Place::new();
    lock(&place.authority).is_refusing = true;
    place.expire();
    let held = place.held(PAUSE);
    for _ in 0..20 {
        let error = held.token().unwrap_err();
        assert!(error.needs_person() && error.to_string().contains("invalid_grant"), "{error}");
    }
    assert_eq!(place.asked(), 1);
    // After a person logs in again, the next request has the new token.
    place.log_in(3600);
    assert!(place.request(&held).unwrap());
    assert_eq!(place.asked(), 1);
}

/// The limit for a request with a credential is 5 ms, of which a token in memory may take only a small part.
#[test]
fn a_token_at_hand_costs_a_look_at_its_file() {
    let place = Place::new();
    let held = place.held(PAUSE);
    held.token().unwrap();
    let begun = Instant::now();
    for _ in 0..1000 {
        assert!(held.at_hand().is_some());
    }
    let each = begun.elapsed() / 1000;
    println!("a token at hand: {each:?}");
    assert!(each < Duration::from_millis(1), "{each:?}");
}
