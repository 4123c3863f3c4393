//! Notices by mail over STARTTLS: encrypted, or not sent at all.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::{ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::home::{Home, wait_until};
use crate::served::{Served, register, token};

/// How a mail server behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Good,
    /// It has no TLS, or somebody in between says so.
    Refuses,
    /// Somebody in between says more before the handshake, to be taken for the server's own words after it.
    Interjects,
}

/// What was said to it in the clear, and what under TLS.
type Said = Arc<Mutex<(Vec<String>, Vec<String>)>>;

fn mail_server(manner: Manner) -> (u16, Said) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let said: Said = Arc::default();
    let kept = Arc::clone(&said);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = talk(stream, manner, &kept);
        }
    });
    (port, said)
}

/// One line, byte by byte: what follows belongs to TLS.
fn line(stream: &mut TcpStream) -> std::io::Result<String> {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n") {
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
}

fn talk(mut stream: TcpStream, manner: Manner, said: &Said) -> std::io::Result<()> {
    stream.write_all(b"220 hello\r\n")?;
    loop {
        let words = line(&mut stream)?;
        said.lock().unwrap().0.push(words.clone());
        match words.as_str() {
            "STARTTLS" if manner == Manner::Refuses => stream.write_all(b"502 what is that\r\n")?,
            "STARTTLS" if manner == Manner::Interjects => stream.write_all(b"220 go on\r\n250 ok\r\n")?,
            "STARTTLS" => {
                stream.write_all(b"220 go on\r\n")?;
                break;
            }
            words if words.starts_with("EHLO") => stream.write_all(b"250-mail\r\n250 STARTTLS\r\n")?,
            _ => stream.write_all(b"250 ok\r\n")?,
        }
    }
    let tls = ServerConnection::new(crate::server::tls()).unwrap();
    let mut from = BufReader::new(StreamOwned::new(tls, stream));
    loop {
        let mut words = String::new();
        if from.read_line(&mut words)? == 0 {
            return Ok(());
        }
        let words = words.trim_end().to_owned();
        let answer: &[u8] = match words.as_str() {
            "DATA" => b"354 go on\r\n",
            "QUIT" => b"221 bye\r\n",
            words if words.starts_with("EHLO") => b"250-mail\r\n250 AUTH PLAIN\r\n",
            words if words.starts_with("AUTH PLAIN") => b"235 welcome\r\n",
            words if words.starts_with("MAIL") || words.starts_with("RCPT") || words == "." => b"250 ok\r\n",
            _ => b"",
        };
        said.lock().unwrap().1.push(words);
        from.get_mut().write_all(answer)?;
        from.get_mut().flush()?;
    }
}

/// Has a run fail of which somebody is told by mail; gives what was said and the notice.
fn tell_by_mail(manner: Manner, is_over: impl Fn(&Value) -> bool) -> (Said, Value) {
    let home = Home::new();
    let (port, said) = mail_server(manner);
    home.write("fail.lobster", "steps: [{id: a, run: 'exit 3'}]\n");
    home.write(
        "serve.toml",
        format!(
            "[[notify]]\nname = 'mail'\nemail = {{ server = 'localhost:{port}', from = 'a@example.org', \
             to = ['ann@example.org'], user = 'u', password = 'hook_key' }}\n"
        ),
    );
    let config = home.dir().join("../home/.config/lobster");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("secrets.toml"), "[secrets.hook_key]\nenv = \"HOOK_KEY\"\n").unwrap();
    register(&home, &["fail.lobster"]);
    let authority = crate::server::authority();
    let served = Served::start_trusting(&home, &authority, &["--config", "serve.toml"]);
    let operator = token(&home, "operator", None);
    served.post(&operator, "/api/v1/workflows/fail/runs", &json!({})).good();
    let mut notice = json!(null);
    wait_until("the mail was tried", || {
        notice = served.get(&operator, "/api/v1/notices").good()["notices"][0].clone();
        is_over(&notice)
    });
    (said, notice)
}

#[test]
fn a_mail_is_sent_under_tls_once_the_server_is_known() {
    let (said, _) = tell_by_mail(Manner::Good, |notice| notice["state"] == "sent");
    let said = said.lock().unwrap();
    assert!(said.0.iter().all(|words| words.starts_with("EHLO") || words == "STARTTLS"), "{said:?}");
    let of = |start: &str| said.1.iter().any(|words| words.starts_with(start));
    assert!(of("AUTH PLAIN") && of("RCPT TO:<ann@example.org>") && of("Subject:"), "{said:?}");
}

#[test]
fn nothing_is_sent_in_the_clear_if_tls_cannot_be_had() {
    for (manner, about) in [(Manner::Refuses, "in the clear"), (Manner::Interjects, "before TLS began")] {
        let tried = |notice: &Value| notice["error"].is_string();
        let (said, notice) = tell_by_mail(manner, tried);
        assert!(notice["error"].as_str().unwrap().contains(about), "{notice}");
        let said = said.lock().unwrap();
        let plain = |words: &String| words.starts_with("EHLO") || words == "STARTTLS" || words == "QUIT";
        assert!(said.0.iter().all(plain) && said.1.is_empty(), "{said:?}");
    }
}
