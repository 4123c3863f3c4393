//! Where a browser comes back to after a login: one port of this machine, for one answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lobster_base::cancel::CancelToken;

use super::LoginError;

/// How often it looks whether somebody came, or it should stop waiting.
const LOOK: Duration = Duration::from_millis(50);

/// How long one connection may take to say what it wants: browsers open some that say nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most bytes of a request that are read.
const MAX_REQUEST: u64 = 16 << 10;

/// The path that browsers come back to.
const PATH: &str = "/callback";

/// A port that waits for a browser.
#[derive(Debug)]
pub struct Callback(TcpListener);

impl Callback {
    /// Opens a port; 0 takes a free one.
    ///
    /// # Errors
    /// When it cannot be had.
    pub fn open(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// The address that a login leads back to.
    ///
    /// # Errors
    /// When the system does not know the port.
    pub fn address(&self) -> io::Result<String> {
        Ok(format!("http://127.0.0.1:{}{PATH}", self.0.local_addr()?.port()))
    }

    /// Waits for the query that a browser brings, as far as `is_mine` takes it for an answer.
    ///
    /// # Errors
    /// When none came in time.
    pub fn wait(
        &self,
        patience: Duration,
        is_mine: &dyn Fn(&str) -> bool,
        cancel: &CancelToken,
    ) -> Result<String, LoginError> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            match self.0.accept() {
                Ok((browser, _)) => {
                    // Whoever breaks off is not the one that is waited for.
                    if let Ok(Some(query)) = serve(&browser, is_mine) {
                        return Ok(query);
                    }
                }
                Err(_) if cancel.wait(LOOK) => return Err(LoginError::Cancelled),
                Err(_) => {}
            }
        }
        Err(LoginError::TimedOut(patience.as_secs()))
    }
}

/// Answers one request, and gives its query if it is the one that is waited for.
fn serve(mut browser: &TcpStream, is_mine: &dyn Fn(&str) -> bool) -> io::Result<Option<String>> {
    browser.set_nonblocking(false)?;
    browser.set_read_timeout(Some(PATIENCE))?;
    browser.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(browser.take(MAX_REQUEST));
    let mut first = String::new();
    lines.read_line(&mut first)?;
    // What stands unread when the connection is closed would cost the browser the answer.
    let mut line = String::new();
    while lines.read_line(&mut line)? > 2 {
        line.clear();
    }
    let mut words = first.split_ascii_whitespace();
    let query = match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => target.strip_prefix(PATH).and_then(|rest| rest.strip_prefix('?')),
        _ => None,
    };
    let query = query.filter(|query| is_mine(query));
    let (status, text) = match query {
        Some(_) => ("200 OK", "lobster has got the answer. You can close this page."),
        None => ("404 Not Found", "This is not the answer that lobster waits for."),
    };
    write!(
        browser,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         referrer-policy: no-referrer\r\ncache-control: no-store\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )?;
    Ok(query.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(address: &str, target: &str) -> String {
        let host = address.trim_start_matches("http://").trim_end_matches(PATH);
        let mut stream = TcpStream::connect(host).unwrap();
        write!(stream, "GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn only_the_answer_that_is_waited_for_is_taken() {
        let callback = Callback::open(0).unwrap();
        let address = callback.address().unwrap();
        let browser = std::thread::spawn(move || {
            [
                "/favicon.ico",
                "/callback",
                "/callback?state=other",
                "/callbackx?state=mine",
                "/callback?state=mine&code=c",
            ]
            .map(|target| visit(&address, target).contains("200 OK"))
        });
        let is_mine = |query: &str| query.starts_with("state=mine");
        let query = callback.wait(Duration::from_secs(60), &is_mine, &CancelToken::new()).unwrap();
        assert_eq!(query, "state=mine&code=c");
        assert_eq!(browser.join().unwrap(), [false, false, false, false, true]);
    }

    #[test]
    fn it_ends_when_it_is_cancelled() {
        let cancel = CancelToken::new();
        cancel.cancel(lobster_base::cancel::CancelReason::Superseded);
        let waited = Callback::open(0).unwrap().wait(Duration::from_secs(60), &|_| true, &cancel);
        assert!(matches!(waited, Err(LoginError::Cancelled)));
    }
}
