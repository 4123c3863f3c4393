//! Accepts connections and passes their requests to a router.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

use super::newcomers::{Newcomer, Newcomers};
use super::socket::SocketListener;
use super::tls::Tls;
use super::unread;

/// Time limit for the head of a request.
const HEAD: Duration = Duration::from_secs(15);

/// Most connections at a time.
const CONNECTIONS: usize = 1024;

/// Time for open connections to finish when the server stops.
const LAST: Duration = Duration::from_secs(5);

/// The connection on which a request came.
#[derive(Clone)]
pub struct Door {
    pub peer: IpAddr,
    /// True for the socket file of a proxy, which names the caller.
    pub is_proxy: bool,
    /// True if browsers use TLS on this connection.
    pub is_secure: bool,
    /// True if a proxy forwarded the request. The proxy adds the address of the client.
    is_forwarded: bool,
    newcomer: Arc<Newcomer>,
}

impl Door {
    /// Marks the connection as accepted: a newer one does not displace it any more.
    pub fn mark_accepted(&self) {
        self.newcomer.mark_accepted();
    }
}

/// Accepts the next connection of a proxy. Waits for ever if there is no socket file.
async fn of_proxy(listener: Option<&SocketListener>) -> io::Result<UnixStream> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

/// A connection that was accepted.
enum Accepted {
    Port(TcpStream, SocketAddr),
    Proxy(UnixStream),
}

/// A listening port.
pub struct Port {
    pub listener: TcpListener,
    /// TLS certificate and key, if this server encrypts connections itself.
    pub tls: Option<Tls>,
    /// True if a proxy in front of the port encrypts them.
    pub is_behind_proxy: bool,
}

/// Serves requests on a port and on the socket file of a proxy until `stop` is done.
pub async fn serve_connections(
    Port { listener, tls, is_behind_proxy }: Port,
    proxy: Option<SocketListener>,
    router: Router,
    stop: impl Future<Output = ()>,
) {
    let newcomers = Arc::new(Newcomers::default());
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let (ending, _) = tokio::sync::watch::channel(false);
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, peer)| Accepted::Port(stream, peer)),
            accepted = of_proxy(proxy.as_ref()) => accepted.map(Accepted::Proxy),
            () = &mut stop => break,
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // No file descriptors are left, or the client has gone: the next one is tried.
                tracing::warn!("a connection cannot be accepted: {error}");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        // Connections without an accepted request have little room; the accepted ones share the rest.
        let Ok(seat) = Arc::clone(&room).try_acquire_owned() else { continue };
        let newcomer = Arc::new(newcomers.add_connection());
        let (peer, is_proxy) = match &accepted {
            Accepted::Port(stream, peer) => {
                let _ = stream.set_nodelay(true);
                // An IPv4 address inside IPv6 becomes IPv4.
                (peer.ip().to_canonical(), false)
            }
            Accepted::Proxy(_) => (IpAddr::from(Ipv6Addr::UNSPECIFIED), true),
        };
        let is_forwarded = is_proxy || is_behind_proxy;
        let is_secure = is_forwarded || tls.is_some();
        let door = Door { peer, is_proxy, is_secure, is_forwarded, newcomer: Arc::clone(&newcomer) };
        let router = TowerToHyperService::new(router.clone());
        let end = ending.subscribe();
        let acceptor = tls.as_ref().map(Tls::current_acceptor);
        tokio::spawn(async move {
            let _seat = seat;
            let (stream, acceptor) = match (accepted, acceptor) {
                (Accepted::Port(stream, _), Some(acceptor)) => (stream, acceptor),
                (Accepted::Port(stream, _), None) => {
                    return answer_connection(stream, router, door, newcomer, end).await;
                }
                (Accepted::Proxy(stream), _) => {
                    return answer_connection(stream, router, door, newcomer, end).await;
                }
            };
            let encrypted = tokio::select! {
                encrypted = tokio::time::timeout(HEAD, acceptor.accept(stream)) => encrypted,
                () = newcomer.must_go() => return,
            };
            match encrypted {
                Ok(Ok(stream)) => answer_connection(stream, router, door, newcomer, end).await,
                Ok(Err(error)) => tracing::debug!("a connection is not encrypted: {error}"),
                Err(_) => tracing::debug!("a connection was not encrypted in time"),
            }
        });
    }
    let _ = ending.send(true);
    drop((listener, proxy));
    let all = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(LAST, room.acquire_many(all)).await;
}

/// Answers the requests of one connection.
async fn answer_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: TowerToHyperService<Router>,
    door: Door,
    newcomer: Arc<Newcomer>,
    mut end: tokio::sync::watch::Receiver<bool>,
) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let (router, door) = (router.clone(), door.clone());
        async move { Ok::<_, Infallible>(answer_request(&router, door, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), answer);
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => if let Err(error) = ended {
            tracing::debug!("a connection ended: {error}");
        },
        () = newcomer.must_go() => tracing::debug!("a connection made way for a newer one"),
        _ = end.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(LAST, connection).await;
        }
    }
}

/// The client address of a forwarded request: the last one in the list, which the proxy itself added.
fn forwarded_for(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
    last.rsplit(',').next()?.trim().parse().ok()
}

/// Answers a request. If the request is refused, the rest of its body is read before the answer is sent.
async fn answer_request(
    router: &TowerToHyperService<Router>,
    mut door: Door,
    request: Request<Incoming>,
) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    if door.is_forwarded {
        door.peer = forwarded_for(&head.headers).unwrap_or(door.peer);
    }
    head.extensions.insert(door);
    let body = unread::Shared::new(body);
    let answered = router.call(Request::from_parts(head, body.clone())).await;
    let mut response = answered.unwrap_or_else(|never| match never {});
    if response.status().is_client_error() || response.status().is_server_error() {
        body.discard_rest().await;
        if response.status() == StatusCode::PAYLOAD_TOO_LARGE
            || response.status() == StatusCode::REQUEST_TIMEOUT
        {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_the_one_that_the_proxy_added() {
        let found = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-forwarded-for", HeaderValue::from_static(value));
            }
            forwarded_for(&headers).map(|ip| ip.to_string())
        };
        assert_eq!(found(&["10.0.0.9, 203.0.113.4"]).as_deref(), Some("203.0.113.4"));
        assert_eq!(found(&["1.1.1.1", "2001:db8::1"]).as_deref(), Some("2001:db8::1"));
        assert_eq!((found(&["10.0.0.9, ann"]), found(&[])), (None, None));
    }
}
