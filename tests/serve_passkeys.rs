//! Passkeys over the API, with a key that signs as a phone's would.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::browser::{Browser, header};
use crate::home::{Home, wait_until};
use crate::served::{Reply, Served, agent, register, token};

/// What a public key on P-256 has in front of its point (RFC 5480).
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3,
    1, 7, 3, 0x42, 0,
];

struct Device {
    key: EcdsaKeyPair,
    name: [u8; 16],
    count: u32,
}

impl Device {
    fn new(name: u8) -> Self {
        let made =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new()).unwrap();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, made.as_ref(), &SystemRandom::new());
        Self { key: key.unwrap(), name: [name; 16], count: 0 }
    }

    /// What the browser says and what the device says. `of`: the query that says for what.
    fn say(&mut self, page: &Localhost, (ceremony, of): (&str, &str), flags: u8) -> (Vec<u8>, Vec<u8>) {
        let challenge = page.post(&format!("/api/v1/passkeys/challenge{of}"), None, &Value::Null).good();
        let client = json!({ "type": ceremony, "challenge": challenge["challenge"], "origin": page.signs });
        self.count += 1;
        let mut data = digest(&SHA256, b"localhost").as_ref().to_vec();
        data.push(flags);
        data.extend(self.count.to_be_bytes());
        (client.to_string().into(), data)
    }

    fn make(&mut self, page: &Localhost) -> Value {
        let (client, mut data) = self.say(page, ("webauthn.create", ""), 0x45);
        data.extend([0; 16]);
        data.extend([0, 16]);
        data.extend(self.name);
        let key = [&P256[..], self.key.public_key().as_ref()].concat();
        json!({ "client": text(&client), "authenticator": text(&data), "key": text(&key) })
    }

    fn sign(&mut self, page: &Localhost) -> Value {
        self.sign_for(page, "")
    }

    fn sign_for(&mut self, page: &Localhost, of: &str) -> Value {
        let (client, data) = self.say(page, ("webauthn.get", of), 5);
        let signed = [data.as_slice(), digest(&SHA256, &client).as_ref()].concat();
        let signature = self.key.sign(&SystemRandom::new(), &signed).unwrap();
        json!({
            "id": text(&self.name), "client": text(&client), "authenticator": text(&data),
            "signature": text(signature.as_ref()),
        })
    }
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A page of the server under the one name of this machine that keys are kept for.
struct Localhost<'s> {
    served: &'s Served,
    host: String,
    origin: String,
    /// What the browser says to the key.
    signs: String,
}

impl<'s> Localhost<'s> {
    fn of(served: &'s Served) -> Self {
        let host = format!("localhost:{}", served.address.rsplit_once(':').unwrap().1);
        Self::at(served, format!("http://{host}"))
    }

    /// The same, reached at another address.
    fn at(served: &'s Served, origin: String) -> Self {
        let host = format!("localhost:{}", served.address.rsplit_once(':').unwrap().1);
        Self { served, host, signs: origin.clone(), origin }
    }

    fn send(&self, method: &str, path: &str, more: &[(&str, &str)], body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut headers =
            vec![("Host", self.host.as_str()), ("Origin", &self.origin), ("Sec-Fetch-Site", "same-origin")];
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json"));
        }
        headers.extend(more);
        self.served.send(method, path, &headers, body.as_bytes())
    }

    fn post(&self, path: &str, cookie: Option<&str>, body: &Value) -> Reply {
        let cookie: Vec<_> = cookie.into_iter().map(|cookie| ("Cookie", cookie)).collect();
        self.send("POST", path, &cookie, body)
    }

    fn get(&self, path: &str, cookie: &str) -> Value {
        self.send("GET", path, &[("Cookie", cookie)], &Value::Null).good()
    }
}

#[test]
fn a_passkey_opens_sessions_with_the_rights_of_the_one_that_added_it() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let page = Localhost::of(&served);
    let mut phone = Device::new(1);
    let approver = Browser::log_in(&home, &served, "approver");
    let unknown = page.post("/api/v1/login/passkey", None, &phone.sign(&page));
    assert_eq!((unknown.status, unknown.problem().as_str()), (401, "passkey"), "{unknown:?}");

    let added = phone.make(&page);
    assert_eq!(page.post("/api/v1/passkeys", None, &added).status, 401, "nobody has logged in");
    let added = page.post("/api/v1/passkeys", Some(&approver.cookie), &phone.make(&page)).good();
    let again = page.post("/api/v1/passkeys", Some(&approver.cookie), &phone.make(&page));
    assert_eq!(again.status, 409, "{again:?}");
    let listed = page.get("/api/v1/passkeys", &approver.cookie);
    assert_eq!(listed["passkeys"][0]["id"], added["id"], "{listed}");

    let signed = phone.sign(&page);
    let opened = page.post("/api/v1/login/passkey", None, &signed);
    let cookie = header(&opened, "set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let me = page.get("/api/v1/me", &cookie);
    assert_eq!(
        (&me["name"], &me["role"], &me["kind"]),
        (&json!("approver"), &json!("approver"), &json!("session"))
    );
    // What was signed once counts once, and a copy of the device is noticed.
    assert_eq!(page.post("/api/v1/login/passkey", None, &signed).status, 401);
    phone.count -= 2;
    let copy = page.post("/api/v1/login/passkey", None, &phone.sign(&page));
    assert!(copy.status == 401 && copy.body.contains("another key with the same secret"), "{copy:?}");
    // Another key that takes its name.
    let mut thief = Device::new(1);
    thief.count = 50;
    let stolen = page.post("/api/v1/login/passkey", None, &thief.sign(&page));
    assert!(stolen.status == 401 && stolen.body.contains("not made with the key"), "{stolen:?}");

    // Its owner forgets it, or an admin does; nobody else.
    let id = added["id"].as_str().unwrap();
    let viewer = Browser::log_in(&home, &served, "viewer");
    let path = format!("/api/v1/passkeys/{id}");
    let of = |cookie: &str| page.send("DELETE", &path, &[("Cookie", cookie)], &Value::Null).status;
    assert_eq!(of(&viewer.cookie), 404);
    assert!(home.lobster(["serve", "token", "list"]).run().stdout.contains(id), "the operator sees it");
    let found = Browser { served: &served, cookie: cookie.clone() }.page("/passkeys");
    assert!(found.text.contains(id), "{}", found.text);
    assert_eq!((of(&cookie), of(&cookie)), (200, 404));
    phone.count = 100;
    assert_eq!(page.post("/api/v1/login/passkey", None, &phone.sign(&page)).status, 401);
    let trail = served.get(&token(&home, "admin", None), "/api/v1/trail").good().to_string();
    assert!(trail.contains("make-passkey") && trail.contains(&format!("\"passkey\":\"{id}\"")), "{trail}");
}

#[test]
fn programs_agents_and_pages_of_others_add_no_passkey() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let page = Localhost::of(&served);
    let mut phone = Device::new(2);
    for secret in [token(&home, "admin", None), agent(&home, "operator", None)] {
        let bearer = format!("Bearer {secret}");
        let refused =
            page.send("POST", "/api/v1/passkeys", &[("Authorization", bearer.as_str())], &phone.make(&page));
        assert_eq!((refused.status, refused.problem().as_str()), (403, "role"), "{refused:?}");
    }
    let viewer = Browser::log_in(&home, &served, "viewer");
    let mut unlocked_by_nobody = phone.make(&page);
    let (client, data) = phone.say(&page, ("webauthn.create", ""), 0x41);
    unlocked_by_nobody["client"] = text(&client).into();
    unlocked_by_nobody["authenticator"] = text(&data).into();
    let mut of_unknown_kind = phone.make(&page);
    of_unknown_kind["key"] = text(b"0123").into();
    let mut for_another = phone.make(&page);
    let client = json!({ "type": "webauthn.create", "challenge": "x", "origin": "https://evil.example" });
    for_another["client"] = text(client.to_string().as_bytes()).into();
    for (body, status) in
        [(unlocked_by_nobody, 401), (of_unknown_kind, 400), (for_another, 401), (json!({}), 400)]
    {
        let refused = page.post("/api/v1/passkeys", Some(&viewer.cookie), &body);
        assert_eq!(refused.status, status, "{body}: {refused:?}");
    }
    // Who fails too often waits, as with links.
    let statuses: Vec<u16> =
        (0..12).map(|_| page.post("/api/v1/login/passkey", None, &phone.sign(&page)).status).collect();
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
}

/// As if all sessions had been opened so many minutes earlier.
fn opened_earlier(home: &Home, minutes: i64) {
    let database = rusqlite::Connection::open(home.state().join("store/lobster.db")).unwrap();
    let later = "UPDATE credentials SET created = created - ?1 WHERE kind = 'session'";
    assert!(database.execute(later, [minutes * 60_000]).unwrap() > 0);
}

#[test]
fn a_session_that_is_stolen_makes_nothing_that_answers() {
    let home = Home::new();
    home.write("serve.toml", "confirm = \"passkey\"\n");
    let served = Served::start(&home, &["--config", "serve.toml"]);
    let page = Localhost::of(&served);
    let ann = Browser::log_in(&home, &served, "admin");
    opened_earlier(&home, 9);
    let mut hers = Device::new(6);
    page.post("/api/v1/passkeys", Some(&ann.cookie), &hers.make(&page)).good();
    assert!(ann.page("/passkeys").text.contains("Add a passkey of this device"));
    opened_earlier(&home, 1);
    let late = page.post("/api/v1/passkeys", Some(&ann.cookie), &Device::new(7).make(&page));
    assert!(late.status == 403 && late.body.contains("log in again"), "{late:?}");
    let told = ann.page("/passkeys").text;
    assert!(told.contains("Log in again to add one") && !told.contains("of this device"), "{told}");
    // The key itself opens a session that may.
    let opened = page.post("/api/v1/login/passkey", None, &hers.sign(&page));
    let cookie = header(&opened, "set-cookie").unwrap().split(';').next().unwrap().to_owned();
    page.post("/api/v1/passkeys", Some(&cookie), &Device::new(7).make(&page)).good();
    let make = |role: &str, agent: bool| {
        let wanted = json!({ "name": "ci", "role": role, "days": 1, "agent": agent });
        page.post("/api/v1/tokens", Some(&ann.cookie), &wanted)
    };
    for role in ["approver", "operator", "author", "admin"] {
        let refused = make(role, false);
        assert_eq!((refused.status, refused.problem().as_str()), (403, "passkey"), "{role}: {refused:?}");
    }
    for (role, agent) in [("viewer", false), ("operator", true)] {
        make(role, agent).good();
    }
}

#[test]
fn a_yes_is_confirmed_with_a_key_that_was_unlocked_for_it() {
    let home = Home::new();
    home.write("serve.toml", "confirm = \"passkey\"\n");
    home.write("ask.lobster", "steps: [{id: ask, approval: Greet?}, {id: a, run: echo hi >> said}]\n");
    register(&home, &["ask.lobster"]);
    let served = Served::start(&home, &["--config", "serve.toml"]);
    let page = Localhost::of(&served);
    let operator = token(&home, "operator", None);
    let (ann, ben) = (Browser::log_in(&home, &served, "approver"), Browser::log_in(&home, &served, "admin"));
    let (mut hers, mut his) = (Device::new(3), Device::new(4));
    page.post("/api/v1/passkeys", Some(&ann.cookie), &hers.make(&page)).good();
    page.post("/api/v1/passkeys", Some(&ben.cookie), &his.make(&page)).good();
    let ask = || {
        served.post(&operator, "/api/v1/workflows/ask/runs", &json!({})).good();
        served.question(&operator)
    };
    let gate = ask();
    let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
    let of = |gate: &Value| {
        format!("?question={}%20{}", gate["id"].as_str().unwrap(), gate["digest"].as_str().unwrap())
    };
    let yes = |passkey: Value| {
        let mut body = json!({ "decision": "approve", "digest": gate["digest"] });
        if !passkey.is_null() {
            body["passkey"] = passkey;
        }
        page.post(&path, Some(&ann.cookie), &body)
    };
    for (passkey, about) in [
        (Value::Null, "requires a passkey"),
        (hers.sign(&page), "for something else"),
        (hers.sign_for(&page, "?question=other%20question"), "for something else"),
        (his.sign_for(&page, &of(&gate)), "another person"),
        (Device::new(5).sign_for(&page, &of(&gate)), "not known"),
    ] {
        let refused = yes(passkey);
        assert!(refused.status == 401 && refused.body.contains(about), "{about}: {refused:?}");
    }
    // The page tells it, and nothing was answered.
    let form = [("decision", "approve"), ("digest", gate["digest"].as_str().unwrap()), ("passkey", "")];
    let told = ann.post(&format!("/questions/{}", gate["id"].as_str().unwrap()), &form);
    assert!(told.status == 401 && told.body.contains("requires a passkey"), "{told:?}");
    assert_eq!(served.question(&operator)["id"], gate["id"]);
    let signed = hers.sign_for(&page, &of(&gate));
    yes(signed.clone()).good();
    wait_until("it went on", || home.read("said") == "hi\n");
    // A no needs no key, and neither does a program.
    let second = ask();
    let path = format!("/api/v1/approvals/{}/answer", second["id"].as_str().unwrap());
    page.post(&path, Some(&ann.cookie), &json!({ "decision": "reject", "digest": second["digest"] })).good();
    let third = ask();
    let path = format!("/api/v1/approvals/{}/answer", third["id"].as_str().unwrap());
    let again = json!({ "decision": "approve", "digest": third["digest"], "passkey": signed });
    assert_eq!(page.post(&path, Some(&ann.cookie), &again).status, 401, "once");
    let program = token(&home, "approver", None);
    served.post(&program, &path, &json!({ "decision": "approve", "digest": third["digest"] })).good();
}

#[test]
fn a_stranger_who_asks_for_challenges_without_end_keeps_nobody_from_theirs() {
    let home = Home::new();
    // Two servers under one name.
    home.write("serve.toml", "confirm = \"passkey\"\nurl = \"http://localhost:7999\"\n");
    home.write("ask.lobster", "steps: [{id: ask, approval: Greet?}, {id: a, run: echo hi >> said}]\n");
    register(&home, &["ask.lobster"]);
    let servers = [(); 2].map(|()| Served::start(&home, &["--config", "serve.toml"]));
    let [one, other] =
        servers.each_ref().map(|served| Localhost::at(served, "http://localhost:7999".to_owned()));
    let ann = Browser::log_in(&home, one.served, "approver");
    let mut phone = Device::new(8);
    one.post("/api/v1/passkeys", Some(&ann.cookie), &phone.make(&other)).good();
    let operator = token(&home, "operator", None);
    one.served.post(&operator, "/api/v1/workflows/ask/runs", &json!({})).good();
    let gate = one.served.question(&operator);
    let question =
        format!("?question={}%20{}", gate["id"].as_str().unwrap(), gate["digest"].as_str().unwrap());

    let (login, yes) = (phone.sign(&one), phone.sign_for(&one, &question));
    std::thread::scope(|scope| {
        for page in [&one, &other] {
            scope.spawn(|| {
                for _ in 0..2500 {
                    page.post("/api/v1/passkeys/challenge", None, &Value::Null).good();
                    page.post(&format!("/api/v1/passkeys/challenge{question}"), None, &Value::Null).good();
                }
            });
        }
    });
    let opened = other.post("/api/v1/login/passkey", None, &login);
    assert_eq!(opened.status, 200, "{opened:?}");
    let cookie = header(&opened, "set-cookie").unwrap().split(';').next().unwrap();
    let again = one.post("/api/v1/login/passkey", None, &login);
    assert!(again.status == 401 && again.body.contains("was used before"), "{again:?}");
    let answer = json!({ "decision": "approve", "digest": gate["digest"], "passkey": yes });
    let path = format!("/api/v1/approvals/{}/answer", gate["id"].as_str().unwrap());
    other.post(&path, Some(cookie), &answer).good();
    wait_until("it went on", || home.read("said") == "hi\n");
}

#[test]
fn what_is_unlocked_for_another_port_of_the_machine_opens_nothing() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let page = Localhost::of(&served);
    let ann = Browser::log_in(&home, &served, "approver");
    let mut phone = Device::new(9);
    page.post("/api/v1/passkeys", Some(&ann.cookie), &phone.make(&page)).good();
    // The name of a key has no port: the browser lets the page of another program on this machine ask for it, and
    // that program says of the host whatever it likes.
    let trap = Localhost { signs: "http://localhost:3000".to_owned(), ..Localhost::of(&served) };
    let signed = phone.sign(&trap).to_string();
    for host in ["localhost:3000", &page.host] {
        let headers = [("Host", host), ("Content-Type", "application/json")];
        let relayed = served.send("POST", "/api/v1/login/passkey", &headers, signed.as_bytes());
        assert!(relayed.status == 401 && relayed.body.contains("another server"), "{host}: {relayed:?}");
    }
    // Nor may that page use the session, in a browser that says no more than where it is.
    for (origin, status) in [("http://localhost:3000", 403), ("http://localhost", 403), (&page.origin, 200)] {
        let headers = [("Host", page.host.as_str()), ("Origin", origin), ("Cookie", &ann.cookie)];
        assert_eq!(served.send("POST", "/api/v1/logout", &headers, b"").status, status, "{origin}");
    }
}
