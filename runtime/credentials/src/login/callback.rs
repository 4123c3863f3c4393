//! The address to which a browser returns after a login: one port of this machine, for one answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lobster_base::cancel::CancelToken;

use super::LoginError;

/// Interval at which the port is checked for a browser and the caller for cancellation.
const LOOK: Duration = Duration::from_millis(50);

/// Time limit for the request on one connection: browsers open some without sending a request.
const PATIENCE: Duration = Duration::from_secs(2);

/// Most bytes of a request that are read.
const MAX_REQUEST: u64 = 16 << 10;

/// The path to which browsers return.
const PATH: &str = "/callback";

/// A port that waits for a browser.
#[derive(Debug)]
pub struct Callback(TcpListener);

impl Callback {
    /// Opens a port; 0 selects a free one.
    ///
    /// # Errors
    /// Fails if the port is not available.
    pub fn open(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Returns the redirect address of a login.
    ///
    /// # Errors
    /// Fails if the system does not know the port.
    pub fn redirect_address(&self) -> io::Result<String> {
        Ok(format!("http://127.0.0.1:{}{PATH}", self.0.local_addr()?.port()))
    }

    /// Waits for a browser whose query is accepted by `is_mine`, and returns the query.
    ///
    /// # Errors
    /// Fails if none came in time, or if the wait was cancelled.
    pub fn wait_for_query(
        &self,
        patience: Duration,
        is_mine: &dyn Fn(&str) -> bool,
        cancel: &CancelToken,
    ) -> Result<String, LoginError> {
        let begun = Instant::now();
        while begun.elapsed() < patience {
            match self.0.accept() {
                Ok((browser, _)) => {
                    // A connection that breaks off is not the expected browser.
                    if let Ok(Some(query)) = answer_request(&browser, is_mine) {
                        return Ok(query);
                    }
                }
                Err(_) if cancel.sleep_or_cancel(LOOK) => return Err(LoginError::Cancelled),
                Err(_) => {}
            }
        }
        Err(LoginError::TimedOut(patience.as_secs()))
    }
}

/// Answers one request, and returns its query if it is the expected one.
fn answer_request(mut browser: &TcpStream, is_mine: &dyn Fn(&str) -> bool) -> io::Result<Option<String>> {
    browser.set_nonblocking(false)?;
    browser.set_read_timeout(Some(PATIENCE))?;
    browser.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(browser.take(MAX_REQUEST));
    let mut first = String::new();
    lines.read_line(&mut first)?;
    // If bytes were left unread when the connection closes, the browser would lose the answer.
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
        Some(_) => ("200 OK", "lobster has received the answer. You can close this page."),
        None => ("404 Not Found", "This is not the answer that lobster expects."),
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

    fn visit_address(address: &str, target: &str) -> String {
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
        let address = callback.redirect_address().unwrap();
        let browser = std::thread::spawn(move || {
            [
                "/favicon.ico",
                "/callback",
                "/callback?state=other",
                "/callbackx?state=mine",
                "/callback?state=mine&code=c",
            ]
            .map(|target| visit_address(&address, target).contains("200 OK"))
        });
        let is_mine = |query: &str| query.starts_with("state=mine");
        let query = callback.wait_for_query(Duration::from_secs(60), &is_mine, &CancelToken::new()).unwrap();
        assert_eq!(query, "state=mine&code=c");
        assert_eq!(browser.join().unwrap(), [false, false, false, false, true]);
    }

    #[test]
    fn it_ends_when_it_is_cancelled() {
        let cancel = CancelToken::new();
        cancel.cancel(lobster_base::cancel::CancelReason::Superseded);
        let waited = Callback::open(0).unwrap().wait_for_query(Duration::from_secs(60), &|_| true, &cancel);
        assert!(matches!(waited, Err(LoginError::Cancelled)));
    }
}
