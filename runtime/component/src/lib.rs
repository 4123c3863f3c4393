//! Runs WebAssembly components as steps. The only crate that touches wasmtime.
