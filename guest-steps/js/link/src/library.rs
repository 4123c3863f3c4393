//! A module as the linker sees it: its sections, taken apart but not copied.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use wasmparser::{
    ConstExpr, Data, Element, ElementItems, ElementKind, ExternalKind, FuncType, FunctionBody, Global,
    Import, MemoryType, Operator, Parser, Payload, TableType, TypeRef,
};

#[derive(Default)]
pub struct Library<'a> {
    /// Whether instantiating it runs anything.
    pub starts: bool,
    pub types: Vec<FuncType>,
    pub imports: Vec<Import<'a>>,
    pub exports: HashMap<&'a str, (ExternalKind, u32)>,
    /// The types of the functions that are defined here.
    pub functions: Vec<u32>,
    pub tables: Vec<TableType>,
    pub memories: Vec<MemoryType>,
    pub globals: Vec<Global<'a>>,
    pub elements: Vec<Element<'a>>,
    pub bodies: Vec<FunctionBody<'a>>,
    pub data: Vec<Data<'a>>,
}

/// Every core module in a component, in the order in which they stand.
pub fn modules(component: &[u8]) -> Result<Vec<&[u8]>> {
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(component) {
        if let Payload::ModuleSection { unchecked_range, .. } = payload? {
            found.push(&component[unchecked_range]);
        }
    }
    Ok(found)
}

impl<'a> Library<'a> {
    pub fn read(module: &'a [u8]) -> Result<Self> {
        let mut library = Self::default();
        for payload in Parser::new(0).parse_all(module) {
            match payload? {
                Payload::TypeSection(section) => {
                    library.types = section.into_iter_err_on_gc_types().collect::<Result<_, _>>()?;
                }
                Payload::ImportSection(section) => {
                    library.imports = section.into_imports().collect::<Result<_, _>>()?;
                }
                Payload::FunctionSection(section) => {
                    library.functions = section.into_iter().collect::<Result<_, _>>()?
                }
                Payload::TableSection(section) => {
                    for table in section {
                        library.tables.push(table?.ty);
                    }
                }
                Payload::MemorySection(section) => {
                    library.memories = section.into_iter().collect::<Result<_, _>>()?
                }
                Payload::GlobalSection(section) => {
                    library.globals = section.into_iter().collect::<Result<_, _>>()?
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        library.exports.insert(export.name, (export.kind, export.index));
                    }
                }
                Payload::ElementSection(section) => {
                    library.elements = section.into_iter().collect::<Result<_, _>>()?
                }
                Payload::CodeSectionEntry(body) => library.bodies.push(body),
                Payload::DataSection(section) => {
                    library.data = section.into_iter().collect::<Result<_, _>>()?
                }
                Payload::StartSection { .. } => library.starts = true,
                _ => {}
            }
        }
        Ok(library)
    }

    /// The function imports, in the order of their indices, and their types.
    pub fn function_imports(&self) -> impl Iterator<Item = (&Import<'a>, u32)> {
        self.imports.iter().filter_map(|import| match import.ty {
            TypeRef::Func(kind) => Some((import, kind)),
            _ => None,
        })
    }

    /// The global imports, in the order of their indices.
    pub fn global_imports(&self) -> impl Iterator<Item = &Import<'a>> {
        self.imports.iter().filter(|import| matches!(import.ty, TypeRef::Global(_)))
    }

    /// The index of the function, global, table or memory that this exports.
    pub fn export(&self, kind: ExternalKind, name: &str) -> Result<u32> {
        match self.exports.get(name) {
            Some((is, index)) if *is == kind => Ok(*index),
            _ => bail!("no library exports `{name}`"),
        }
    }

    /// The elements that are written into the first table: where, and which functions.
    pub fn table_elements(&self) -> impl Iterator<Item = Result<(ConstExpr<'a>, Vec<u32>)>> {
        self.elements.iter().filter_map(|element| {
            let ElementKind::Active { table_index, offset_expr } = &element.kind else {
                return Some(Err(anyhow::anyhow!("elements that are no part of the table")));
            };
            let ElementItems::Functions(functions) = &element.items else {
                return Some(Err(anyhow::anyhow!("elements that are no functions")));
            };
            let functions = functions.clone().into_iter().collect::<Result<Vec<_>, _>>();
            (table_index.unwrap_or(0) == 0).then(|| Ok((offset_expr.clone(), functions?)))
        })
    }
}

/// What a constant expression gives, if `global` tells what the globals are.
pub fn evaluate(expression: &ConstExpr<'_>, global: impl Fn(u32) -> Option<i32>) -> Result<i32> {
    let mut stack = Vec::new();
    for operator in expression.get_operators_reader() {
        match operator? {
            Operator::I32Const { value } => stack.push(value),
            Operator::GlobalGet { global_index } => {
                stack.push(global(global_index).context("a constant that depends on what may change")?);
            }
            Operator::I32Add => {
                let (b, a) = (stack.pop(), stack.pop());
                stack.push(a.zip(b).map(|(a, b)| a.wrapping_add(b)).context("an addition of nothing")?);
            }
            Operator::End => {}
            other => bail!("{other:?} in a constant"),
        }
    }
    match stack[..] {
        [value] => Ok(value),
        _ => bail!("a constant without a value"),
    }
}
