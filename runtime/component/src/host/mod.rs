//! Functions that a program can call.

pub(crate) mod clocks;
pub(crate) mod fetch;
pub(crate) mod file_streams;
pub(crate) mod filesystem;
pub(crate) mod http;
pub(crate) mod io;
pub(crate) mod network;
pub(crate) mod overlay;
pub(crate) mod preview1;
pub(crate) mod random;
pub(crate) mod readable_blobs;
pub(crate) mod services;
pub(crate) mod stage;

use wasmtime::component::{HasSelf, Linker};
use wasmtime_wasi::p2::bindings as wasi;

use crate::state::State;

/// Rust bindings of `wit/step.wit`.
pub(crate) mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "lobster:step/step",
        imports: { default: trappable },
        exports: { default: async },
        with: {
            "lobster:step/io.input": crate::host::io::StepInput,
            "lobster:step/io.output": crate::host::io::StepOutput,
            "lobster:step/host.blob-reader": crate::host::services::BlobReader,
            "lobster:step/host.blob-writer": crate::host::services::BlobWriter,
        },
        additional_derives: [PartialEq, Eq],
        require_store_data_send: true,
    });
}

pub(crate) use bindings::lobster::step as step_wit;

/// Additions of the world `step-http`.
pub(crate) mod step_http {
    wasmtime::component::bindgen!({
        path: "../../wit",
        inline: "package lobster:host-http; world imports { import lobster:step/http@0.1.0; }",
        imports: { "lobster:step/http.fetch": async | trappable, default: trappable },
        require_store_data_send: true,
    });
}

/// Parts of WASI that this host implements itself.
pub(crate) mod wasi_own {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "lobster:host/ours",
        imports: {
            "wasi:sockets/ip-name-lookup.resolve-addresses": async | trappable,
            default: trappable,
        },
        with: {
            "wasi:io": wasmtime_wasi::p2::bindings::io,
            "wasi:clocks": wasmtime_wasi::p2::bindings::clocks,
            "wasi:sockets/network": wasmtime_wasi::p2::bindings::sockets::network,
            "wasi:sockets/ip-name-lookup.resolve-address-stream": crate::host::network::Addresses,
            "wasi:filesystem/types.descriptor": crate::host::filesystem::Descriptor,
            "wasi:filesystem/types.directory-entry-stream": crate::host::filesystem::Listing,
        },
        trappable_error_type: {
            "wasi:filesystem/types.error-code" => crate::host::filesystem::FsError,
            "wasi:sockets/network.error-code" => wasmtime_wasi::p2::SocketError,
        },
        require_store_data_send: true,
    });
}

/// Links all functions of this host. Grants decide which of them a run may use, before and inside the
/// calls.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    linker.allow_shadowing(true);
    wasi::clocks::monotonic_clock::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    wasi_own::wasi::filesystem::types::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    wasi_own::wasi::filesystem::preopens::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    wasi_own::wasi::sockets::ip_name_lookup::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    http::bound_requests(linker)?;
    linker.allow_shadowing(false);
    step_wit::types::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    step_wit::io::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    step_wit::host::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    step_http::lobster::step::http::add_to_linker::<State, HasSelf<State>>(linker, |state| state)?;
    Ok(())
}

impl step_wit::types::Host for State {}
