//! A step that goes where nobody lets it. `host` and `port` in its arguments say
//! where; what it was refused it says as the error `refused`, what it reached as
//! `breach`.

use serde_json::Value;
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup::resolve_addresses;
use wasip2::sockets::network::{ErrorCode, IpAddress, IpAddressFamily, IpSocketAddress};
use wasip2::sockets::network::{Ipv4SocketAddress, Ipv6SocketAddress};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;
use wasip2::sockets::udp_create_socket::create_udp_socket;

wit_bindgen::generate!({ path: "../../../wit", world: "step" });

use lobster::step::types::{Capability, SuggestedLimits, Want};

struct Hostile;

export!(Hostile);

impl Guest for Hostile {
    fn describe() -> Description {
        Description {
            name: "hostile-net".to_owned(),
            version: "0.1.0".to_owned(),
            summary: "Goes where it should not".to_owned(),
            args_schema: "true".to_owned(),
            input_schema: None,
            output_schema: None,
            wants: vec![Want {
                capability: Capability::Net("example.com:443".to_owned()),
                reason: "to misuse it".to_owned(),
                optional: false,
            }],
            limits: SuggestedLimits { fuel: None, memory: None, output: None, timeout_ms: None },
            examples: Vec::new(),
        }
    }

    fn run(args: String, _: Input, _: Output) -> Result<(), StepError> {
        let args: Value = serde_json::from_str(&args).map_err(|error| failed("bad-args", error))?;
        let host = args["host"].as_str().unwrap_or_default();
        let port = args["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443);
        match args["do"].as_str().unwrap_or_default() {
            "resolve" => resolve(host),
            "connect" => connect(host, port),
            "listen" => listen(port),
            "send" => send(host, port),
            other => Err(failed("bad-args", format!("what is {other}?"))),
        }
        .and_then(|what| Err(failed("breach", what)))
    }
}

fn failed(code: &str, message: impl ToString) -> StepError {
    StepError { code: code.to_owned(), message: message.to_string(), retryable: false }
}

fn refused(why: ErrorCode) -> StepError {
    failed("refused", format!("{why:?}"))
}

fn resolve(host: &str) -> Result<String, StepError> {
    let answers = resolve_addresses(&instance_network(), host).map_err(refused)?;
    loop {
        match answers.resolve_next_address() {
            Ok(Some(address)) => return Ok(format!("{address:?}")),
            Ok(None) => return Err(failed("refused", "no address")),
            Err(ErrorCode::WouldBlock) => answers.subscribe().block(),
            Err(error) => return Err(refused(error)),
        }
    }
}

/// An address as it stands; what is none is looked up.
fn address(host: &str, port: u16) -> Result<IpSocketAddress, StepError> {
    use std::net::IpAddr;
    let v6 = |[a, b, c, d, e, f, g, h]: [u16; 8]| (a, b, c, d, e, f, g, h);
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            Ok(IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address: (a, b, c, d) }))
        }
        Ok(IpAddr::V6(address)) => Ok(IpSocketAddress::Ipv6(Ipv6SocketAddress {
            port,
            flow_info: 0,
            address: v6(address.segments()),
            scope_id: 0,
        })),
        Err(_) => {
            let answers = resolve_addresses(&instance_network(), host).map_err(refused)?;
            loop {
                match answers.resolve_next_address() {
                    Ok(Some(IpAddress::Ipv4(address))) => {
                        return Ok(IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address }));
                    }
                    Ok(Some(IpAddress::Ipv6(_))) => {}
                    Ok(None) => return Err(failed("refused", "no address")),
                    Err(ErrorCode::WouldBlock) => answers.subscribe().block(),
                    Err(error) => return Err(refused(error)),
                }
            }
        }
    }
}

fn family(address: &IpSocketAddress) -> IpAddressFamily {
    match address {
        IpSocketAddress::Ipv4(_) => IpAddressFamily::Ipv4,
        IpSocketAddress::Ipv6(_) => IpAddressFamily::Ipv6,
    }
}

fn connect(host: &str, port: u16) -> Result<String, StepError> {
    let to = address(host, port)?;
    let socket = create_tcp_socket(family(&to)).map_err(refused)?;
    socket.start_connect(&instance_network(), to).map_err(refused)?;
    loop {
        match socket.finish_connect() {
            Ok(_) => return Ok(format!("connected to {host}:{port}")),
            Err(ErrorCode::WouldBlock) => socket.subscribe().block(),
            Err(error) => return Err(refused(error)),
        }
    }
}

fn listen(port: u16) -> Result<String, StepError> {
    let socket = create_tcp_socket(IpAddressFamily::Ipv4).map_err(refused)?;
    let here = address("0.0.0.0", port)?;
    socket.start_bind(&instance_network(), here).map_err(refused)?;
    socket.finish_bind().map_err(refused)?;
    socket.start_listen().map_err(refused)?;
    socket.finish_listen().map_err(refused)?;
    Ok(format!("listens on {port}"))
}

fn send(host: &str, port: u16) -> Result<String, StepError> {
    use wasip2::sockets::udp::OutgoingDatagram;
    let to = address(host, port)?;
    let socket = create_udp_socket(family(&to)).map_err(refused)?;
    socket.start_bind(&instance_network(), address("0.0.0.0", 0)?).map_err(refused)?;
    socket.finish_bind().map_err(refused)?;
    let (_, outgoing) = socket.stream(None).map_err(refused)?;
    outgoing.subscribe().block();
    let _ = outgoing.check_send().map_err(refused)?;
    let datagram = OutgoingDatagram { data: b"out".to_vec(), remote_address: Some(to) };
    let sent = outgoing.send(&[datagram]).map_err(refused)?;
    Ok(format!("sent {sent} to {host}:{port}"))
}
