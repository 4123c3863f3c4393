//! Limits on the programs that are compiled at all. The work of a compiler grows with products of a
//! program's figures: a few kilobytes could keep it busy for hours. The limits are well above the
//! figures of the largest real programs. A program below them that still takes too much is ended by the
//! limits of the compiler process.

use wasmparser::{FunctionBody, MemoryType, Operator, Parser, Payload, TypeRef, Validator, WasmFeatures};

use crate::LoadError;
use crate::kind::malformed_error;

/// Largest program in bytes.
pub const MAX_PROGRAM: u64 = 256 << 20;

/// Measured figures, each with its limit and its name in messages.
const LIMITS: [(u64, &str); 6] = [
    (4 << 20, "bytes in one function"),
    (10_000, "blocks inside one another"),
    (20_000_000, "locals times blocks in one function"),
    (1_000_000, "locals times loops in one function"),
    (1_000_000, "targets of branch tables in one function"),
    (10_000_000, "elements in its tables from the start"),
];

/// A program's largest figure for each of [`LIMITS`].
pub(crate) type Measured = [u64; LIMITS.len()];

/// Rejects a program that is too much for a compiler; the error has the figures.
pub(crate) fn check(program: &[u8]) -> Result<(), LoadError> {
    for (found, (limit, what)) in measure_functions(program)?.into_iter().zip(LIMITS) {
        if found > limit {
            return Err(LoadError::TooComplex { what: what.into(), found, limit });
        }
    }
    // The engine validates a function only when it comes to compile it.
    Validator::new_with_features(supported_features())
        .validate_all(program)
        .map(drop)
        .map_err(malformed_error)
}

/// Measures all functions of a module, or of all modules of a component.
pub(crate) fn measure_functions(program: &[u8]) -> Result<Measured, LoadError> {
    let mut most = Measured::default();
    for payload in Parser::new(0).parse_all(program) {
        match payload.map_err(malformed_error)? {
            Payload::CodeSectionEntry(body) => {
                for (most, found) in most.iter_mut().zip(of_function(&body)?) {
                    *most = (*most).max(found);
                }
            }
            Payload::TableSection(tables) => {
                for table in tables {
                    most[5] = most[5].saturating_add(table.map_err(malformed_error)?.ty.initial);
                }
            }
            Payload::MemorySection(memories) => {
                memories
                    .into_iter()
                    .try_for_each(|memory| refuse_shared(memory.map_err(malformed_error)?))?;
            }
            Payload::ImportSection(imports) => {
                for import in imports.into_imports() {
                    if let TypeRef::Memory(memory) = import.map_err(malformed_error)?.ty {
                        refuse_shared(memory)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(most)
}

/// Atomic instructions run, on the program's own memory; a memory for several threads does not.
fn refuse_shared(memory: MemoryType) -> Result<(), LoadError> {
    if memory.shared { Err(LoadError::Unsupported { proposals: "threads".to_owned() }) } else { Ok(()) }
}

fn of_function(body: &FunctionBody<'_>) -> Result<Measured, LoadError> {
    let mut locals = 0_u64;
    for local in body.get_locals_reader().map_err(malformed_error)? {
        locals += u64::from(local.map_err(malformed_error)?.0);
    }
    let mut operators = body.get_operators_reader().map_err(malformed_error)?;
    let (mut depth, mut deepest, mut blocks, mut loops, mut targets) = (0_u64, 0, 1_u64, 0_u64, 0_u64);
    while !operators.eof() {
        let operator = operators.read().map_err(malformed_error)?;
        match operator {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::Try { .. }
            | Operator::TryTable { .. } => {
                loops += u64::from(matches!(operator, Operator::Loop { .. }));
                depth += 1;
                blocks += 1;
                deepest = depth.max(deepest);
            }
            Operator::End | Operator::Delegate { .. } => depth = depth.saturating_sub(1),
            Operator::BrTable { targets: table } => targets += u64::from(table.len()),
            _ => {}
        }
    }
    // A local that the program does not declare is one of its parameters.
    let locals = locals.max(1);
    Ok([body.range().len() as u64, deepest, locals * blocks, locals * loops, targets, 0])
}

/// Proposals that are off here, by their usual names.
const OFF: [(WasmFeatures, &str); 18] = [
    (WasmFeatures::LEGACY_EXCEPTIONS, "legacy exceptions"),
    (WasmFeatures::GC, "garbage collection"),
    (WasmFeatures::SHARED_EVERYTHING_THREADS, "shared-everything threads"),
    (WasmFeatures::STACK_SWITCHING, "stack switching"),
    (WasmFeatures::WIDE_ARITHMETIC, "wide arithmetic"),
    (WasmFeatures::CUSTOM_PAGE_SIZES, "custom page sizes"),
    (WasmFeatures::MEMORY_CONTROL, "memory control"),
    (WasmFeatures::CUSTOM_DESCRIPTORS, "custom descriptors"),
    (WasmFeatures::COMPACT_IMPORTS, "compact imports"),
    (WasmFeatures::CM_ASYNC, "asynchronous components (WASI 0.3)"),
    (WasmFeatures::CM_ASYNC_STACKFUL, "stackful asynchronous components"),
    (WasmFeatures::CM_THREADING, "threads of components"),
    (WasmFeatures::CM_VALUES, "component values"),
    (WasmFeatures::CM_ERROR_CONTEXT, "component error contexts"),
    (WasmFeatures::CM_FIXED_LENGTH_LISTS, "component lists of fixed length"),
    (WasmFeatures::CM_GC, "garbage collection of components"),
    (WasmFeatures::CM_MAP, "component maps"),
    (WasmFeatures::CM64, "64-bit components"),
];

/// Error of a program that the engine rejected. If its only fault is a feature that does not run here,
/// the error names the feature.
pub(crate) fn explain_rejection(program: &[u8], error: LoadError) -> LoadError {
    match error {
        // These errors often result from an unsupported feature: a program with threads, for example,
        // imports its memory.
        LoadError::Malformed { .. }
        | LoadError::UnknownImport { .. }
        | LoadError::Mismatch { .. }
        | LoadError::MissingExport { .. }
        | LoadError::Library { .. } => match used_but_off(program) {
            used if used.is_empty() => error,
            used => LoadError::Unsupported { proposals: used.join(", ") },
        },
        other => other,
    }
}

/// Proposals that a program uses and that are off here.
fn used_but_off(program: &[u8]) -> Vec<&'static str> {
    let valid = |features| Validator::new_with_features(features).validate_all(program).is_ok();
    let here = supported_features();
    if valid(here) || !valid(WasmFeatures::all()) {
        return Vec::new();
    }
    let uses =
        |off: &&(WasmFeatures, &str)| !here.contains(off.0) && !valid(WasmFeatures::all().difference(off.0));
    OFF.iter().filter(uses).map(|(_, name)| *name).collect()
}

/// Features that run here: WebAssembly 3.0 without garbage collection, and components without
/// asynchrony. They must match the engine's settings.
fn supported_features() -> WasmFeatures {
    WasmFeatures::WASM3.union(WasmFeatures::COMPONENT_MODEL).difference(WasmFeatures::GC)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested_blocks(block: &str, depth: usize, locals: usize) -> Vec<u8> {
        let locals = "i32 ".repeat(locals);
        let text = format!(
            r#"(module (func (export "_start") (local {locals}) {} {}))"#,
            format!("({block} ").repeat(depth),
            ")".repeat(depth)
        );
        wat::parse_str(text).expect("parses")
    }

    #[test]
    fn what_is_too_much_is_refused_with_its_figures() {
        let said = |program: &[u8]| check(program).err().map(|error| error.to_string());
        assert_eq!(said(&nested_blocks("block", 900, 100)), None);
        assert_eq!(
            said(&nested_blocks("loop", 900, 4000)).as_deref(),
            Some(
                "the program is too much to compile: it has 3600000 locals times loops in one function, and 1000000 is the most"
            )
        );
        assert!(
            said(&nested_blocks("block", 10_001, 0))
                .is_some_and(|text| text.contains("10001 blocks inside one another"))
        );
        assert!(
            said(&nested_blocks("block", 900, 45_000))
                .is_some_and(|text| text.contains("40545000 locals times blocks"))
        );
        let table =
            wat::parse_str("(module (table 9000000 funcref) (table 9000000 funcref))").expect("parses");
        assert!(said(&table).is_some_and(|text| text.contains("18000000 elements")));
    }

    /// `PROGRAMS=a.wasm:b.wasm` prints the figures of real programs.
    #[test]
    fn programs_that_are_shipped_are_well_below_the_limits() {
        let dist = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../guest-steps/dist");
        let shipped = std::fs::read_dir(dist).expect("lists").flatten().map(|entry| entry.path());
        let named = std::env::var_os("PROGRAMS").unwrap_or_default();
        let mut seen = 0;
        for path in shipped.chain(std::env::split_paths(&named)) {
            if path.extension().is_none_or(|extension| extension != "wasm") {
                continue;
            }
            let measured = measure_functions(&std::fs::read(&path).expect("reads")).expect("is measured");
            println!("{measured:?} {}", path.display());
            for (found, (limit, what)) in measured.into_iter().zip(LIMITS) {
                assert!(found * 2 <= limit, "{} has {found} {what}", path.display());
            }
            seen += 1;
        }
        assert!(seen > 3, "{seen}");
    }
}
