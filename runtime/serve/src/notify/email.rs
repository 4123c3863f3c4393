//! E-mail: a client of the submission protocol (RFC 5321, 3207, 4954) that sends one mail per connection.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::send::Message;
use super::settings::{Email, Tls};

/// Longest line and most lines of one answer.
const MAX_LINE: u64 = 4096;
const MAX_LINES: usize = 100;

/// Sends a notice as one mail to all of its addresses.
pub(super) async fn send(message: &Message, settings: &Email) -> Result<(), String> {
    let (host, _) = settings.server.rsplit_once(':').unwrap_or((&settings.server, ""));
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect(&settings.server)
        .await
        .map_err(|error| format!("{}: {error}", settings.server))?;
    match settings.tls {
        Tls::None => Session::begin(stream).await?.send_mail(message, settings).await,
        Tls::Implicit => {
            Session::begin(start_tls(stream, host).await?).await?.send_mail(message, settings).await
        }
        Tls::Starttls => {
            let mut session = Session::begin(stream).await?;
            session
                .send_command("STARTTLS", 220)
                .await
                .map_err(|why| format!("{why}; nothing was sent in the clear"))?;
            // Data before the handshake may come from anyone.
            if !session.0.buffer().is_empty() {
                return Err("the server sent something before TLS began".to_owned());
            }
            let mut session = Session(BufReader::new(start_tls(session.0.into_inner(), host).await?));
            session.greet_server().await?;
            session.send_mail(message, settings).await
        }
    }
}

pub(super) async fn start_tls(stream: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| format!("no certificates to trust: {error}"))?
        .with_no_client_auth();
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| format!("{host:?} is not the name of a server"))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.map_err(|error| format!("TLS with {host}: {error}"))
}

struct Session<S: AsyncRead + AsyncWrite>(BufReader<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    async fn begin(stream: S) -> Result<Self, String> {
        let mut session = Self(BufReader::new(stream));
        session.read_answer(220).await?;
        session.greet_server().await?;
        Ok(session)
    }

    async fn greet_server(&mut self) -> Result<(), String> {
        self.send_command("EHLO localhost", 250).await
    }

    async fn send_mail(&mut self, message: &Message, settings: &Email) -> Result<(), String> {
        if let (Some(user), Some(password)) = (&settings.user, &message.secret) {
            let plain = STANDARD.encode(format!("\0{user}\0{password}"));
            // The line is a secret, so errors do not repeat it.
            self.send_line(&format!("AUTH PLAIN {plain}")).await?;
            self.read_answer(235).await?;
        }
        self.send_command(&format!("MAIL FROM:<{}>", settings.from), 250).await?;
        for to in &settings.to {
            self.send_command(&format!("RCPT TO:<{to}>"), 250).await?;
        }
        self.send_command("DATA", 354).await?;
        let mail = mail_of(message, settings);
        self.0.write_all(mail.as_bytes()).await.map_err(|error| error.to_string())?;
        self.send_command(".", 250).await?;
        // The mail is accepted; the answer to QUIT does not matter.
        let _ = self.send_line("QUIT").await;
        Ok(())
    }

    async fn send_command(&mut self, line: &str, expected: u16) -> Result<(), String> {
        self.send_line(line).await?;
        self.read_answer(expected).await.map_err(|why| format!("{line}: {why}"))
    }

    async fn send_line(&mut self, line: &str) -> Result<(), String> {
        let failed = |error: std::io::Error| error.to_string();
        self.0.write_all(line.as_bytes()).await.map_err(failed)?;
        self.0.write_all(b"\r\n").await.map_err(failed)?;
        self.0.flush().await.map_err(failed)
    }

    /// Reads one answer, which must begin with a number.
    async fn read_answer(&mut self, expected: u16) -> Result<(), String> {
        for _ in 0..MAX_LINES {
            let mut line = Vec::new();
            let mut limited = tokio::io::AsyncReadExt::take(&mut self.0, MAX_LINE);
            limited.read_until(b'\n', &mut line).await.map_err(|error| error.to_string())?;
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            match (line.get(..3).and_then(|code| code.parse::<u16>().ok()), line.as_bytes().get(3)) {
                (Some(_), Some(b'-')) => {}
                (Some(code), _) if code == expected || (expected == 250 && code == 251) => return Ok(()),
                (Some(_), _) => return Err(format!("the server said {line:?}")),
                (None, _) => return Err(format!("the server said {line:?}, which has no number")),
            }
        }
        Err("the server's answer has no end".to_owned())
    }
}

/// The mail with its headers, ready for DATA.
pub(super) fn mail_of(message: &Message, settings: &Email) -> String {
    let date = jiff::fmt::rfc2822::to_string(&jiff::Zoned::now()).unwrap_or_default();
    let (title, text) = &message.text;
    // Base64 has no line that a server could mistake for a command or for the end of the mail.
    let subject: Vec<_> =
        words_of(title).iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word))).collect();
    let body = STANDARD.encode(text.as_bytes());
    let lines: Vec<_> = in_lines(&body, 76).collect();
    let at = settings.from.split_once('@').map_or("localhost", |(_, at)| at);
    format!(
        "Date: {date}\r\nFrom: <{}>\r\nTo: {}\r\nMessage-ID: <{}@{at}>\r\nSubject: {}\r\nMIME-Version: 1.0\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\nAuto-Submitted: auto-generated\r\n\
         \r\n{}\r\n",
        settings.from,
        settings.to.iter().map(|to| format!("<{to}>")).collect::<Vec<_>>().join(", "),
        message.notice_id(),
        subject.join("\r\n "),
        lines.join("\r\n"),
    )
}

/// Splits a title into pieces of whole characters that each fit into an encoded word.
fn words_of(title: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in title.chars() {
        if words.last().is_some_and(|word| word.len() + c.len_utf8() > MAX_WORD) {
            words.push(String::new());
        }
        words.iter_mut().last().into_iter().for_each(|word| word.push(c));
    }
    words
}

/// Bytes of a title that fit into one encoded word of 75 characters.
const MAX_WORD: usize = 42;

/// Splits ASCII text into lines.
fn in_lines(text: &str, width: usize) -> impl Iterator<Item = &str> {
    (0..text.len()).step_by(width).filter_map(move |at| text.get(at..(at + width).min(text.len())))
}
