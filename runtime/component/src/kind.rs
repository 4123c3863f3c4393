//! Which of the three forms of program some bytes are, and how a core module
//! becomes a component.

use std::borrow::Cow;

use wasi_preview1_component_adapter_provider as adapter;
use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasmparser::{Parser, Payload, TypeRef};
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use crate::LoadError;

/// The form of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exports the functions of the world `lobster:step/step`.
    Step,
    /// A component that exports `wasi:cli/run`.
    Command,
    /// A preview-1 core module with `_start`, wrapped into a command component.
    Module,
}

impl Kind {
    /// The form in a few words.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Step => "lobster:step component",
            Self::Command => "wasi:cli/command component",
            Self::Module => "WASI preview-1 command module",
        }
    }
}

/// `bytes` as a component, and whether they were a core module before.
pub(crate) fn as_component(bytes: &[u8]) -> Result<(Cow<'_, [u8]>, bool), LoadError> {
    let Some((magic, rest)) = bytes.split_first_chunk::<4>().filter(|(magic, _)| *magic == b"\0asm") else {
        let found = bytes.iter().take(8).map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ");
        return Err(LoadError::NotWasm { found });
    };
    debug_assert_eq!(magic, b"\0asm");
    match rest.first_chunk::<4>() {
        Some([0x0d, 0, 1, 0]) => Ok((Cow::Borrowed(bytes), false)),
        Some([1, 0, 0, 0]) => Ok((Cow::Owned(wrap(bytes)?), true)),
        Some(version) => Err(LoadError::UnknownEncoding { version: *version }),
        None => Err(LoadError::Malformed { message: "the file ends inside its header".to_owned() }),
    }
}

/// The interface by which a wrapped module ends with any exit code: the
/// adapter itself can only say success or failure.
pub(crate) const EXIT_INTERFACE: &str = "lobster:command/exit@0.1.0";

const EXIT_WIT: &str = "package lobster:command@0.1.0;
interface exit { exit: func(code: u32); }
world command { import exit; }";

fn wrap(module: &[u8]) -> Result<Vec<u8>, LoadError> {
    let (start, described) = survey(module).map_err(malformed)?;
    let encode = |module: &[u8], adapter_bytes| {
        // The engine validates what it compiles; once is enough.
        ComponentEncoder::default()
            .validate(false)
            .module(module)?
            .adapter(adapter::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, adapter_bytes)?
            .encode()
    };
    let component = if described {
        encode(module, adapter::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)
    } else if start {
        let module = with_own_exit(module)?;
        encode(&module, adapter::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
    } else {
        return Err(LoadError::ModuleIsNoCommand);
    };
    component.map_err(|error| LoadError::Mismatch { message: format!("{error:#}") })
}

/// Whether a module exports `_start`, and whether it carries the description
/// of a component's world, as the output of wit-bindgen does before it is wrapped.
fn survey(module: &[u8]) -> wasmparser::Result<(bool, bool)> {
    let (mut start, mut described) = (false, false);
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ExportSection(exports) => {
                for export in exports {
                    start |= export?.name == "_start";
                }
            }
            Payload::CustomSection(section) => described |= section.name().starts_with("component-type"),
            _ => {}
        }
    }
    Ok((start, described))
}

/// The module with its import of `proc_exit` turned to [`EXIT_INTERFACE`].
fn with_own_exit(module: &[u8]) -> Result<Vec<u8>, LoadError> {
    let mut out = wasm_encoder::Module::new();
    let mut renamed = false;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(malformed)?;
        if let Payload::ImportSection(imports) = payload {
            let mut section = wasm_encoder::ImportSection::new();
            for import in imports.into_imports() {
                let import = import.map_err(malformed)?;
                let is_exit = import.name == "proc_exit"
                    && import.module == adapter::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME
                    && matches!(import.ty, TypeRef::Func(_));
                renamed |= is_exit;
                let (from, name) =
                    if is_exit { (EXIT_INTERFACE, "exit") } else { (import.module, import.name) };
                let ty = RoundtripReencoder.entity_type(import.ty).map_err(|error| LoadError::Malformed {
                    message: format!("import {}: {error}", import.name),
                })?;
                section.import(from, name, ty);
            }
            out.section(&section);
        } else if let Some((id, range)) = payload.as_section() {
            let data = module.get(range).ok_or_else(|| LoadError::Malformed {
                message: "a section reaches past the end of the file".to_owned(),
            })?;
            out.section(&wasm_encoder::RawSection { id, data });
        }
    }
    let mut bytes = out.finish();
    if renamed {
        describe_exit(&mut bytes).map_err(|message| LoadError::Mismatch { message })?;
    }
    Ok(bytes)
}

fn describe_exit(module: &mut Vec<u8>) -> Result<(), String> {
    let mut resolve = Resolve::default();
    let package = resolve.push_source("exit.wit", EXIT_WIT).map_err(|e| e.to_string())?;
    let world = resolve.select_world(&[package], Some("command")).map_err(|e| e.to_string())?;
    wit_component::embed_component_metadata(module, &resolve, world, StringEncoding::UTF8)
        .map_err(|e| e.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "it is a map_err function")]
fn malformed(error: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Malformed { message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_the_bytes_are_instead() {
        let name = |bytes: &[u8]| as_component(bytes).map(|_| ()).map_err(|e| e.to_string());
        assert_eq!(
            name(b"#!/bin/sh"),
            Err("not WebAssembly: it does not start with \\0asm (first bytes: 23 21 2f 62 69 6e 2f 73)"
                .into())
        );
        assert!(matches!(as_component(b""), Err(LoadError::NotWasm { .. })));
        assert!(matches!(as_component(b"\0asm\x01\0"), Err(LoadError::Malformed { .. })));
        assert!(matches!(as_component(b"\0asm\x02\0\0\0"), Err(LoadError::UnknownEncoding { .. })));
        assert!(matches!(as_component(b"\0asm\x01\0\0\0"), Err(LoadError::ModuleIsNoCommand)));
        assert!(matches!(as_component(b"\0asm\x01\0\0\0\x01"), Err(LoadError::Malformed { .. })));
    }
}
