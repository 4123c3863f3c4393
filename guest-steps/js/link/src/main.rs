//! Links the libraries in a component that componentize-qjs has made.
//!
//! Such a component is linked when it is instantiated: the engine, its glue to the
//! world, and the memory that both share are modules of their own, and a component
//! beside them stands in for WASI. Each instance makes them all anew, and fills the
//! engine's table of functions one by one, because a table that is imported cannot
//! be laid out when the code is compiled. Here they become one module, whose memory
//! and table are known beforehand, and what was WASI traps.
//!
//! The rules are those of dynamic linking, by which the component was made:
//! <https://github.com/WebAssembly/tool-conventions/blob/main/DynamicLinking.md>.

mod library;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use wasm_encoder::reencode::{Error, Reencode, RoundtripReencoder as AsItIs};
use wasm_encoder::{
    CodeSection, ConstExpr, DataCountSection, DataSection, ElementSection, Elements, EntityType, ExportKind,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection, MemorySection,
    Module, TableSection, TypeSection, ValType,
};
use wasmparser::{ExternalKind, FuncType};
use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

use library::{Library, evaluate};

/// The world that the component is of.
const WORLD: &str = "step";
/// What the linked module imports. All else that is no library's is WASI, and traps.
const OF_THE_WORLD: &str = "lobster:step/";
/// What the world needs of a module, by the names of the canonical ABI.
const EXPORTS: [&str; 5] = ["describe", "cabi_post_describe", "run", "cabi_post_run", "cabi_realloc"];

/// The libraries, by the names that the base module has for them.
const ENGINE: (usize, &str) = (0, "componentize_qjs_runtime.wasm");
const GLUE: (usize, &str) = (1, "wit-dylib.wasm");

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [wit, from, to] = arguments.as_slice() else { bail!("usage: link WIT-DIRECTORY FROM.wasm TO.wasm") };
    let component = std::fs::read(from).with_context(|| from.clone())?;
    let module = Parts::of(&component)?.link()?;
    std::fs::write(to, componentize(module, Path::new(wit))?).with_context(|| to.clone())
}

/// A component around a module of the world.
fn componentize(mut module: Vec<u8>, wit: &Path) -> Result<Vec<u8>> {
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(wit)?;
    let world = resolve.select_world(&[package], Some(WORLD))?;
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    ComponentEncoder::default().validate(true).module(&module)?.encode()
}

/// The modules of a component that are linked.
struct Parts<'a> {
    /// Has the memory, the table, the globals that change, and where each library lies.
    base: Library<'a>,
    /// [`ENGINE`] and [`GLUE`].
    libraries: [Library<'a>; 2],
    /// Writes into the table what the libraries could not.
    fixup: Library<'a>,
}

/// The indices that one library's things have in the linked module.
#[derive(Default)]
struct Places {
    types: Vec<u32>,
    functions: Vec<u32>,
    globals: Vec<u32>,
    /// The globals that never change.
    constants: HashMap<u32, i32>,
    first_data: u32,
}

impl Reencode for Places {
    type Error = NoSuchIndex;

    fn type_index(&mut self, index: u32) -> Result<u32, Error<Self::Error>> {
        place(&self.types, index)
    }

    fn function_index(&mut self, index: u32) -> Result<u32, Error<Self::Error>> {
        place(&self.functions, index)
    }

    fn global_index(&mut self, index: u32) -> Result<u32, Error<Self::Error>> {
        place(&self.globals, index)
    }

    fn data_index(&mut self, index: u32) -> Result<u32, Error<Self::Error>> {
        Ok(self.first_data + index)
    }
}

#[derive(Debug)]
struct NoSuchIndex(u32);

impl std::error::Error for NoSuchIndex {}

impl fmt::Display for NoSuchIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing has the index {}", self.0)
    }
}

fn place(places: &[u32], index: u32) -> Result<u32, Error<NoSuchIndex>> {
    places.get(index as usize).copied().ok_or(Error::UserError(NoSuchIndex(index)))
}

impl<'a> Parts<'a> {
    /// # Errors
    /// When the component is not made as this version of the tool makes them.
    fn of(component: &'a [u8]) -> Result<Self> {
        let (mut base, mut engine, mut glue, mut fixup) = (None, None, None, None);
        for bytes in library::modules(component)? {
            let module = Library::read(bytes)?;
            let imports = |from, name| module.imports.iter().any(|i| i.module == from && i.name == name);
            let part = if imports("env", "wit_dylib_export_call") {
                &mut glue
            } else if module.exports.contains_key("wit_dylib_export_call") {
                &mut engine
            } else if module.exports.contains_key("wit-dylib.wasm:memory_base") {
                &mut base
            } else if imports("main", "__indirect_function_table") {
                &mut fixup
            } else {
                continue;
            };
            ensure!(!module.starts, "a module starts something: no snapshot has been taken of it");
            ensure!(part.replace(module).is_none(), "there are two modules of a kind");
        }
        Ok(Self {
            base: base.context("there is no base module")?,
            libraries: [engine.context("there is no engine")?, glue.context("there is no glue")?],
            fixup: fixup.context("there is no module that ends the linking")?,
        })
    }

    fn link(&self) -> Result<Vec<u8>> {
        let mut types = Types::default();
        let mut imports = ImportSection::new();
        let mut functions = FunctionSection::new();
        let mut globals = GlobalSection::new();
        let mut elements = ElementSection::new();
        let mut code = CodeSection::new();
        let mut data = DataSection::new();

        let layout = self.lay_out(&mut types, &mut imports, &mut functions)?;
        let stubs = layout.stubs;
        let mut places = layout.places;
        self.place_globals(&mut globals, &mut places)?;

        for segment in &self.base.data {
            AsItIs.parse_data(&mut data, segment.clone())?;
        }
        for (library, places) in self.libraries.iter().zip(&mut places) {
            places.first_data = data.len();
            for segment in &library.data {
                places.parse_data(&mut data, segment.clone())?;
            }
            for body in &library.bodies {
                places.parse_function_body(&mut code, body.clone())?;
            }
            for element in library.table_elements() {
                let (offset, items) = element?;
                let offset = evaluate(&offset, |global| places.constants.get(&global).copied())?;
                let items = items
                    .into_iter()
                    .map(|item| Ok(place(&places.functions, item)?))
                    .collect::<Result<Vec<_>>>()?;
                elements.active(None, &ConstExpr::i32_const(offset), Elements::Functions(items.into()));
            }
        }
        for _ in 0..stubs {
            let mut body = Function::new([]);
            body.instructions().unreachable().end();
            code.function(&body);
        }
        for element in self.fixup.table_elements() {
            let (offset, items) = element?;
            let offset = evaluate(&offset, |_| None)?;
            let items =
                items.into_iter().map(|item| self.fixed_up(item, &places)).collect::<Result<Vec<_>>>()?;
            elements.active(None, &ConstExpr::i32_const(offset), Elements::Functions(items.into()));
        }

        let mut memory = MemorySection::new();
        memory.memory(AsItIs.memory_type(*self.base.memories.first().context("the base has no memory")?)?);
        let mut table = TableSection::new();
        table.table(AsItIs.table_type(*self.base.tables.first().context("the base has no table")?)?);
        let mut exports = ExportSection::new();
        exports.export("memory", ExportKind::Memory, 0);
        for name in EXPORTS {
            let index = self.libraries[GLUE.0].export(ExternalKind::Func, name)?;
            exports.export(name, ExportKind::Func, place(&places[GLUE.0].functions, index)?);
        }

        let mut module = Module::new();
        module.section(&types.section).section(&imports).section(&functions).section(&table).section(&memory);
        module.section(&globals).section(&exports).section(&elements);
        module.section(&DataCountSection { count: data.len() }).section(&code).section(&data);
        Ok(module.finish())
    }

    /// Gives each type and function its index: first what is imported, then what the
    /// libraries define, then a function that traps for each type of what is missing.
    fn lay_out(
        &self,
        types: &mut Types,
        imports: &mut ImportSection,
        functions: &mut FunctionSection,
    ) -> Result<Layout> {
        let mut places: [Places; 2] = Default::default();
        let mut imported = HashMap::new();
        for (library, places) in self.libraries.iter().zip(&mut places) {
            places.types = library.types.iter().map(|kind| types.index(kind)).collect::<Result<_>>()?;
            for (import, kind) in library.function_imports() {
                let name = (import.module, import.name);
                if import.module.starts_with(OF_THE_WORLD) && !imported.contains_key(&name) {
                    imports.import(
                        import.module,
                        import.name,
                        EntityType::Function(place(&places.types, kind)?),
                    );
                    imported.insert(name, imports.len() - 1);
                }
            }
        }
        let mut next = imports.len();
        let mut first_defined = [0; 2];
        for ((library, places), first) in self.libraries.iter().zip(&places).zip(&mut first_defined) {
            *first = next;
            next += u32::try_from(library.functions.len())?;
            for kind in &library.functions {
                functions.function(place(&places.types, *kind)?);
            }
        }
        let mut stubs: HashMap<u32, u32> = HashMap::new();
        for at in 0..self.libraries.len() {
            let library = &self.libraries[at];
            let mut indices = Vec::new();
            for (import, kind) in library.function_imports() {
                let kind = place(&places[at].types, kind)?;
                let index = if let Some(index) = imported.get(&(import.module, import.name)) {
                    *index
                } else if import.module == "env" {
                    self.defined(import.name, &first_defined)
                        .with_context(|| format!("no library defines `{}`", import.name))?
                } else {
                    *stubs.entry(kind).or_insert_with(|| {
                        functions.function(kind);
                        next += 1;
                        next - 1
                    })
                };
                indices.push(index);
            }
            indices.extend((0..).take(library.functions.len()).map(|n| first_defined[at] + n));
            places[at].functions = indices;
        }
        Ok(Layout { places, stubs: stubs.len() })
    }

    /// The function that a library defines and offers to the others under this name.
    fn defined(&self, name: &str, first_defined: &[u32; 2]) -> Option<u32> {
        self.libraries.iter().zip(first_defined).find_map(|(library, first)| {
            let index = library.export(ExternalKind::Func, name).ok()?;
            let imported = u32::try_from(library.function_imports().count()).ok()?;
            index.checked_sub(imported).map(|nth| first + nth)
        })
    }

    /// The base's globals as they are, and behind them those of the libraries.
    fn place_globals(&self, globals: &mut GlobalSection, places: &mut [Places; 2]) -> Result<()> {
        for global in &self.base.globals {
            AsItIs.parse_global(globals, global.clone())?;
        }
        for ((library, places), (_, name)) in self.libraries.iter().zip(places).zip([ENGINE, GLUE]) {
            for import in library.global_imports() {
                let exported = match (import.module, import.name) {
                    ("env", "__memory_base") => format!("{name}:memory_base"),
                    ("env", "__table_base") => format!("{name}:table_base"),
                    ("GOT.func", function) => format!("{name}:{function}"),
                    (_, global) => global.to_owned(),
                };
                let index = self.base.export(ExternalKind::Global, &exported)?;
                let global =
                    self.base.globals.get(index as usize).context("a global of the base is imported")?;
                if !global.ty.mutable {
                    let value = evaluate(&global.init_expr, |_| None)?;
                    places.constants.insert(u32::try_from(places.globals.len())?, value);
                }
                places.globals.push(index);
            }
            for global in &library.globals {
                ensure!(!global.ty.mutable, "{name} has a global that changes, and that is in no snapshot");
                let value = evaluate(&global.init_expr, |global| places.constants.get(&global).copied())?;
                places.constants.insert(u32::try_from(places.globals.len())?, value);
                places.globals.push(globals.len());
                let kind = GlobalType { val_type: ValType::I32, mutable: false, shared: false };
                globals.global(kind, &ConstExpr::i32_const(value));
            }
        }
        Ok(())
    }

    /// The function of a library that the last module of the linking knows as `index`.
    fn fixed_up(&self, index: u32, places: &[Places; 2]) -> Result<u32> {
        let (import, _) =
            self.fixup.function_imports().nth(index as usize).context("a function of its own")?;
        let (at, _) = [ENGINE, GLUE]
            .into_iter()
            .find(|(_, name)| *name == import.module)
            .with_context(|| format!("what is {}?", import.module))?;
        let index = self.libraries[at].export(ExternalKind::Func, import.name)?;
        Ok(place(&places[at].functions, index)?)
    }
}

struct Layout {
    places: [Places; 2],
    stubs: usize,
}

/// The types of the linked module, each once.
#[derive(Default)]
struct Types {
    section: TypeSection,
    known: HashMap<FuncType, u32>,
}

impl Types {
    fn index(&mut self, kind: &FuncType) -> Result<u32> {
        if let Some(index) = self.known.get(kind) {
            return Ok(*index);
        }
        self.section.ty().func_type(&AsItIs.func_type(kind.clone())?);
        let index = self.section.len() - 1;
        self.known.insert(kind.clone(), index);
        Ok(index)
    }
}
