//! Detection of the three forms of program, and the conversion of a core module to a component.

use std::borrow::Cow;

use lobster_base::text::{self, Count};
use wasmparser::{ExternalKind, Parser, Payload};
use wit_component::ComponentEncoder;

use crate::LoadError;

/// The form of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exports the functions of the world `lobster:step/step`.
    Step,
    /// A component that exports `wasi:cli/run`.
    Command,
    /// A preview-1 core module with `_start`.
    Module,
}

impl Kind {
    /// Short description of the form.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Step => "lobster:step component",
            Self::Command => "wasi:cli/command component",
            Self::Module => "WASI preview-1 command module",
        }
    }
}

/// Bytes to compile.
pub(crate) enum Form<'a> {
    Component(Cow<'a, [u8]>),
    /// A preview-1 command.
    Module(&'a [u8]),
}

/// First bytes of all WebAssembly.
pub(crate) const MAGIC: &[u8] = b"\0asm";

/// The module that preview-1 commands import from.
pub(crate) const PREVIEW1: &str = "wasi_snapshot_preview1";

/// Detects the form by the header and, for a core module, by its contents.
pub(crate) fn detect_form(bytes: &[u8]) -> Result<Form<'_>, LoadError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(LoadError::NotWasm)?;
    match rest.first_chunk::<4>() {
        Some([0x0d, 0, 1, 0]) => Ok(Form::Component(Cow::Borrowed(bytes))),
        Some([1, 0, 0, 0]) => convert_module(bytes),
        Some(version) => Err(LoadError::UnknownEncoding { version: *version }),
        None => Err(LoadError::Malformed { message: "the file ends inside its header".to_owned() }),
    }
}

/// Converts a core module. It is either a preview-1 command, or it holds the description of a
/// component's world, as wit-bindgen's output does, and is wrapped.
fn convert_module(bytes: &[u8]) -> Result<Form<'_>, LoadError> {
    let (mut exported, mut described, mut imports) = (Vec::new(), false, Vec::new());
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(malformed_error)? {
            Payload::ExportSection(exports) => {
                for export in exports {
                    let export = export.map_err(malformed_error)?;
                    if export.kind == ExternalKind::Func {
                        exported.push(export.name);
                    }
                }
            }
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import.map_err(malformed_error)?;
                    imports.push((import.module, import.name));
                }
            }
            Payload::CustomSection(section) => described |= section.name().starts_with("component-type"),
            _ => {}
        }
    }
    if described {
        return wrap_module(bytes).map(|component| Form::Component(Cow::Owned(component)));
    }
    let foreign = imports.iter().find(|(from, _)| *from != PREVIEW1);
    if !exported.contains(&"_start") {
        let imports = foreign.map_or_else(String::new, |(from, name)| format!(" and offers `{from}.{name}`"));
        return Err(LoadError::Library { exports: list_names(&exported), imports });
    }
    match foreign {
        Some((from, _)) if from.starts_with("wasi_unstable") => {
            Err(LoadError::UnsupportedVersion { found: (*from).to_owned(), spoken: PREVIEW1.into() })
        }
        Some((from, name)) => Err(LoadError::UnknownImport { import: format!("{from}.{name}") }),
        None => Ok(Form::Module(bytes)),
    }
}

/// Lists the first of some names.
fn list_names(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<_> = names.iter().take(SHOWN).map(|name| text::clip(name, 100, Count::Bytes)).collect();
    match names.len().saturating_sub(SHOWN) {
        0 if names.is_empty() => "nothing".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn wrap_module(module: &[u8]) -> Result<Vec<u8>, LoadError> {
    // The engine validates the code that it compiles; once is enough.
    let encode = || {
        ComponentEncoder::default()
            .validate(false)
            .module(module)?
            .adapter(
                PREVIEW1,
                wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
            )?
            .encode()
    };
    encode().map_err(|error| LoadError::Mismatch { message: format!("{error:#}") })
}

#[expect(clippy::needless_pass_by_value, reason = "it is a map_err function")]
pub(crate) fn malformed_error(error: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Malformed { message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_named_with_its_exports() {
        let said =
            |text: &str| detect_form(&wat::parse_str(text).expect("parses")).err().map(|e| e.to_string());
        let exports = (0..9).map(|n| format!(r#"(func (export "f{n}"))"#)).collect::<String>();
        let said = [
            said(r#"(module (import "env" "now" (func)) (func (export "redact")))"#),
            said(&format!("(module (memory (export \"memory\") 1) {exports})")),
        ]
        .map(Option::unwrap_or_default);
        assert!(
            said[0].contains("it exports redact for a host that calls these and offers `env.now`;"),
            "{said:?}"
        );
        assert!(
            said[1].contains("it exports f0, f1, f2, f3, f4, f5, f6, f7 and 1 more for a host"),
            "{said:?}"
        );
    }

    #[test]
    fn says_what_the_bytes_are_instead() {
        let name = |bytes: &[u8]| detect_form(bytes).map(|_| ()).map_err(|e| e.to_string());
        assert_eq!(name(b"#!/bin/sh"), Err("not WebAssembly: it does not start with \\0asm".into()));
        assert!(matches!(detect_form(b""), Err(LoadError::NotWasm)));
        assert!(matches!(detect_form(b"\0asm\x01\0"), Err(LoadError::Malformed { .. })));
        assert!(matches!(detect_form(b"\0asm\x02\0\0\0"), Err(LoadError::UnknownEncoding { .. })));
        assert!(matches!(detect_form(b"\0asm\x01\0\0\0"), Err(LoadError::Library { .. })));
        assert!(matches!(detect_form(b"\0asm\x01\0\0\0\x01"), Err(LoadError::Malformed { .. })));
    }
}
