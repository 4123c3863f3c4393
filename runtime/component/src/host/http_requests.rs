//! The parts of a `wasi:http` request whose length the engine's library leaves open: the host keeps
//! them while the program holds the request, outside of the program's memory.

use wasmtime::component::{Linker, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method};
use wasmtime_wasi_http::p2::types::HostOutgoingRequest;

use crate::state::State;

/// The interface as the library links it; programs that ask for another 0.2 get the same.
const TYPES: &str = "wasi:http/types@0.2.12";

/// Longest host with its port, in bytes. A name has at most 253 (RFC 1035, section 2.3.4).
const MAX_AUTHORITY: usize = 1 << 10;

/// Longest name of a method, in bytes. Those that are registered have up to 17 (RFC 9110, section 16.1.1).
const MAX_METHOD: usize = 64;

/// What these functions answer: of a refusal WASI says no more than that it is one.
type Answered = wasmtime::Result<(Result<(), ()>,)>;

/// Over the library's own, which have no bounds.
pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store, (request, method): (Resource<HostOutgoingRequest>, Method)| -> Answered {
            if matches!(&method, Method::Other(name) if name.len() > MAX_METHOD) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_method(request, method)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store, (request, authority): (Resource<HostOutgoingRequest>, Option<String>)| -> Answered {
            if authority.as_ref().is_some_and(|authority| authority.len() > MAX_AUTHORITY) {
                return Ok((Err(()),));
            }
            Ok((store.data_mut().http().set_authority(request, authority)?,))
        },
    )
}
