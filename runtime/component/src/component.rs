//! A loaded program: its form, its description and its runs.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{self, ComponentExportIndex, InstancePre};

use crate::cache::Compiled;
use crate::engine::{Core, POOL_TABLE_ELEMENTS, fits_pool};
use crate::host::readable_blobs::ReadableBlobs;
use crate::host::step_wit::types as wit;
pub use crate::host::step_wit::types::{Capability, Example, Want};
use crate::kind::PREVIEW1;
use crate::schema::Schema;
use crate::state::State;
use crate::{
    Ceilings, Digest, Grants, Invocation, Kind, Limits, LoadError, Outcome, RunError, SetBy, names, run,
};
use lobster_base::text::{self, Count};

/// A program, compiled and linked, ready for any number of runs at the same time. Clones share the
/// program.
#[derive(Clone)]
pub struct Component(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    pub(crate) entry: EntryPoint,
    pub(crate) imports: Vec<String>,
    /// True if a call to some import may have to wait.
    pub(crate) may_wait: bool,
    /// True if it imports the functions that open blobs.
    pub(crate) opens_blobs: bool,
    /// True if it imports the functions that read or keep values of the run.
    uses_values: bool,
    /// Initial number of elements of its largest table.
    pub(crate) first_table: u64,
    fits_pool: bool,
    kind: Kind,
    exports: Vec<String>,
    digest: Digest,
    size: u64,
    described: Arc<OnceLock<Result<Described, String>>>,
    runs: AtomicU32,
    /// The same program in a pool, once it has run often; `None` if it does not fit.
    pooled: OnceLock<Option<Box<Inner>>>,
}

/// Number of runs after which a program moves to a pool. Reserving the pool costs as much as some 30
/// runs gain.
const RUNS_BEFORE_POOL: u32 = 32;

/// Functions that a run calls.
pub(crate) enum EntryPoint {
    Step { pre: InstancePre<State>, describe: ComponentExportIndex, run: ComponentExportIndex },
    Command { pre: InstancePre<State>, run: ComponentExportIndex },
    Module { pre: wasmtime::InstancePre<State> },
}

/// A step's description with its schemas parsed.
pub(crate) struct Described {
    pub(crate) description: Description,
    pub(crate) args: Schema,
    pub(crate) input: Option<Arc<Schema>>,
    pub(crate) output: Option<Arc<Schema>>,
}

/// Facts about a program that are known without running it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    pub kind: Kind,
    pub digest: Digest,
    /// Size of the program in bytes, as it was loaded.
    pub size: u64,
    pub imports: Vec<String>,
    pub exports: Vec<String>,
    /// Abilities that it would have if they were granted, one sentence each.
    pub can: Vec<String>,
    /// Actions that no grant would allow, one sentence each.
    pub cannot: Vec<String>,
    /// Contracts that this host implements.
    pub host: String,
}

/// A step's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub version: String,
    pub summary: String,
    /// JSON Schema of the arguments.
    pub args_schema: String,
    /// JSON Schema of an input item; `None` if it takes bytes or nothing.
    pub input_schema: Option<String>,
    /// JSON Schema of an output item; `None` if it produces bytes.
    pub output_schema: Option<String>,
    pub wants: Vec<Want>,
    pub fuel: Option<u64>,
    pub memory: Option<u64>,
    pub output: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub examples: Vec<Example>,
}

impl Inner {
    pub(crate) fn new(
        core: Arc<Core>,
        compiled: &Compiled,
        digest: Digest,
        size: u64,
    ) -> Result<Self, LoadError> {
        let (entry, kind, imports, exports) = match compiled {
            Compiled::Component(component) => component_entry(&core, component)?,
            Compiled::Module(module) => module_entry(&core, module)?,
        };
        let imports_any = |functions: &[&str]| match compiled {
            Compiled::Component(component) => imports_any(&core, component, functions),
            Compiled::Module(_) => false,
        };
        let opens_blobs = imports_any(&["[static]blob-reader.open"]);
        let uses_values = imports_any(&["state-get", "state-set"]);
        let may_wait = imports.iter().any(|import| names::may_wait(import));
        let needs = match compiled {
            Compiled::Component(component) => component.resources_required(),
            Compiled::Module(module) => Some(module.resources_required()),
        };
        let first_table = needs.as_ref().and_then(|needs| needs.max_initial_table_size).unwrap_or(0);
        Ok(Self {
            core,
            entry,
            first_table,
            fits_pool: needs.as_ref().is_some_and(fits_pool),
            imports,
            may_wait,
            opens_blobs,
            uses_values,
            kind,
            exports,
            digest,
            size,
            described: Arc::default(),
            runs: AtomicU32::new(0),
            pooled: OnceLock::new(),
        })
    }

    /// The same program in a pool, if it has run often enough and fits.
    fn pooled_twin(&self) -> Option<&Self> {
        if self.runs.load(Ordering::Relaxed) < RUNS_BEFORE_POOL {
            self.runs.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let make = || {
            let core = self.core.pooled_core().filter(|_| self.fits_pool)?;
            let twin =
                Self::new(core.clone(), &core.load_cached(self.digest)?, self.digest, self.size).ok()?;
            Some(Box::new(Self { described: Arc::clone(&self.described), ..twin }))
        };
        self.pooled.get_or_init(make).as_deref()
    }

    /// True if the program is a step rather than a command program.
    pub(crate) fn is_step(&self) -> bool {
        self.kind == Kind::Step
    }

    pub(crate) fn cached_description(&self) -> Result<Option<&Described>, RunError> {
        if self.kind != Kind::Step {
            return Ok(None);
        }
        let ask = || {
            let wit = run::describe_step(self).map_err(|error| error.to_string())?;
            Described::from_wit(wit)
        };
        match self.described.get_or_init(ask) {
            Ok(described) => Ok(Some(described)),
            Err(message) => Err(RunError::BadDescription { message: message.clone() }),
        }
    }
}

type Parts = (EntryPoint, Kind, Vec<String>, Vec<String>);

fn component_entry(core: &Core, component: &component::Component) -> Result<Parts, LoadError> {
    let ty = component.component_type();
    let imports: Vec<String> = ty
        .imports(&core.engine)
        .filter(|(_, import)| matches!(import.ty, ComponentItem::ComponentInstance(_)))
        .map(|(name, _)| name.to_owned())
        .collect();
    let exports: Vec<String> = ty.exports(&core.engine).map(|(name, _)| name.to_owned()).collect();
    let find = |parent: Option<&ComponentExportIndex>, name: &str| {
        component
            .get_export_index(parent, name)
            .ok_or_else(|| LoadError::MissingExport { found: exports.join(", ") })
    };
    let pre = core.linker.instantiate_pre(component).map_err(mismatch_error)?;
    let (entry, kind) = match exports.iter().find(|name| names::is_cli_run(name)) {
        Some(name) => {
            (EntryPoint::Command { pre, run: find(Some(&find(None, name)?), "run")? }, Kind::Command)
        }
        None => {
            (EntryPoint::Step { pre, describe: find(None, "describe")?, run: find(None, "run")? }, Kind::Step)
        }
    };
    Ok((entry, kind, imports, exports))
}

/// True if a program imports one of these functions of the contract's `host`. An imported interface
/// contains only the functions that the program, or its language's library, uses.
fn imports_any(core: &Core, component: &component::Component, functions: &[&str]) -> bool {
    let ty = component.component_type();
    ty.imports(&core.engine).any(|(interface, import)| match import.ty {
        ComponentItem::ComponentInstance(instance) if interface.starts_with("lobster:step/host@") => {
            instance.exports(&core.engine).any(|(name, _)| functions.contains(&name))
        }
        _ => false,
    })
}

fn module_entry(core: &Core, module: &wasmtime::Module) -> Result<Parts, LoadError> {
    let imports = module.imports().map(|import| format!("{}.{}", import.module(), import.name())).collect();
    let exports = module.exports().map(|export| export.name().to_owned()).collect();
    let pre = core.module_linker.instantiate_pre(module).map_err(mismatch_error)?;
    Ok((EntryPoint::Module { pre }, Kind::Module, imports, exports))
}

#[expect(clippy::needless_pass_by_value, reason = "it is a map_err function")]
fn mismatch_error(error: wasmtime::Error) -> LoadError {
    LoadError::Mismatch { message: format!("{error:#}") }
}

impl Component {
    /// Digests with which the program may open blobs: the digests in its arguments and its input. Empty
    /// if the program cannot open blobs.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn named_blobs(
        &self,
        args: &str,
        input: &mut dyn io::Read,
    ) -> io::Result<impl Iterator<Item = Digest> + use<>> {
        let mut given = ReadableBlobs::new(self.0.opens_blobs, args);
        let mut piece = vec![0; if self.0.opens_blobs { 64 << 10 } else { 0 }];
        loop {
            match input.read(&mut piece) {
                Ok(0) => return Ok(given.into_digests()),
                Ok(length) => given.add_bytes(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Form of the program.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// BLAKE3 digest of its bytes as they were loaded.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// True if the program can read or keep values of the run. Its output may then depend on earlier
    /// steps, and later steps may depend on it.
    #[must_use]
    pub fn uses_values(&self) -> bool {
        self.0.uses_values
    }

    #[cfg(test)]
    pub(crate) fn moved_to_pool(&self) -> bool {
        matches!(self.0.pooled.get(), Some(Some(_)))
    }

    /// Reports facts about the program without running it.
    #[must_use]
    pub fn inspect(&self) -> Inspection {
        let (can, cannot) = describe_abilities(&self.0.imports);
        Inspection {
            kind: self.0.kind,
            digest: self.0.digest,
            size: self.0.size,
            imports: self.0.imports.clone(),
            exports: self.0.exports.clone(),
            can,
            cannot,
            host: names::host_contracts(),
        }
    }

    /// The step's description. The step runs without grants and under tight limits, once per process.
    /// `None` for command programs, which have no description.
    ///
    /// # Errors
    /// The step fails, or its schemas are not usable.
    pub fn describe(&self) -> Result<Option<&Description>, RunError> {
        Ok(self.0.cached_description()?.map(|described| &described.description))
    }

    /// Checks that the program takes these arguments (JSON). A step checks them against its schema; a
    /// command program takes words, `{"argv": ["a", "b"]}`.
    ///
    /// # Errors
    /// [`RunError::BadArgs`] with the position, or the step's description cannot be read.
    pub fn check_args(&self, args: &str) -> Result<(), RunError> {
        match self.0.cached_description()? {
            Some(described) => run::check_args(described, args),
            None => run::command_words(args).map(drop),
        }
    }

    /// Checks that the program could start with these grants.
    ///
    /// # Errors
    /// [`RunError::NotGranted`] for an import that needs another grant, or [`RunError::BadGrant`].
    pub fn check_grants(&self, grants: &Grants) -> Result<(), RunError> {
        grants.check_guest_paths()?;
        run::check_grants(&self.0, grants)
    }

    /// True if everything that the program learns from outside with these grants can be recorded.
    #[must_use]
    pub fn is_recordable(&self, grants: &Grants) -> bool {
        names::raw_socket(&self.0.imports, self.0.is_step(), grants).is_none()
    }

    /// Command line for these arguments (JSON); empty for a step.
    ///
    /// # Errors
    /// [`RunError::BadArgs`] if a command program cannot take them.
    pub fn command_words(&self, args: &str) -> Result<Vec<String>, RunError> {
        if self.kind() == Kind::Step { Ok(Vec::new()) } else { run::command_words(args) }
    }

    /// Runs the program once, in a fresh instance, on the calling thread. Any number of runs may be
    /// active at the same time.
    ///
    /// # Errors
    /// The program is refused, fails, is stopped or reaches a limit. A command program that ends with a
    /// code other than 0 is an [`Outcome`].
    pub fn run(&self, invocation: Invocation) -> Result<Outcome, RunError> {
        let usual = invocation.limits.tables <= POOL_TABLE_ELEMENTS;
        if let Some(pooled) = self.0.pooled_twin().filter(|_| usual)
            && let Some(_place) = pooled.core.reserve_run()
        {
            return run::run(pooled, invocation);
        }
        run::run(&self.0, invocation)
    }
}

/// A capability that comes with an interface: prefixes of the interface, the sentence for programs that
/// import it, and the sentence for others.
const ABILITIES: [(&[&str], &str, &str); 6] = [
    (
        &["wasi:filesystem/types@"],
        "read or write files of directories that are granted",
        "open files: it imports no file system",
    ),
    (
        &["wasi:http/", names::OWN_HTTP],
        "make HTTP requests to hosts that are granted; refused without such a grant",
        "make HTTP requests",
    ),
    (
        &["wasi:sockets/"],
        "connect to hosts that are granted; refused without such a grant",
        "open connections",
    ),
    (&["wasi:cli/environment@"], "see environment variables that are granted", "see environment variables"),
    (&["wasi:clocks/"], "tell the time: virtual time, unless the clock is granted", "tell the time"),
    (&["wasi:random/"], "use randomness: seeded, unless randomness is granted", "use randomness"),
];

fn describe_abilities(imports: &[String]) -> (Vec<String>, Vec<String>) {
    let (mut can, mut cannot) = (Vec::new(), Vec::new());
    // A preview-1 module imports single functions; its possible abilities are fixed.
    let preview1 = imports.iter().any(|import| import.starts_with(PREVIEW1));
    for (prefixes, able, unable) in ABILITIES {
        let network = prefixes.iter().any(|prefix| names::uses_network(prefix));
        let has = |import: &String| prefixes.iter().any(|prefix| import.starts_with(prefix));
        if (preview1 && !network) || imports.iter().any(has) {
            can.push(able.to_owned());
        } else {
            cannot.push(unable.to_owned());
        }
    }
    if imports.iter().any(|import| import.starts_with("lobster:step/host@")) {
        can.push("log, report progress, keep values for the run and use its blobs".to_owned());
    }
    cannot.push("start processes, load native code or see other steps".to_owned());
    (can, cannot)
}

impl Described {
    fn from_wit(wit: wit::Description) -> Result<Self, String> {
        check_words(&wit)?;
        let schema = |which: &str, text: &str| {
            Schema::from_json(text).map_err(|error| format!("{which} is not a JSON Schema: {error}"))
        };
        let args = schema("args-schema", &wit.args_schema)?;
        let optional = |which: &str, text: &Option<String>| {
            text.as_deref().map(|text| schema(which, text).map(Arc::new)).transpose()
        };
        let input = optional("input-schema", &wit.input_schema)?;
        let output = optional("output-schema", &wit.output_schema)?;
        Ok(Self { description: wit.into(), args, input, output })
    }

    /// Lowers `limits` to the values that the step's description sets.
    pub(crate) fn lower_limits(&self, limits: Limits) -> Limits {
        let Description { fuel, memory, output, timeout_ms, .. } = self.description;
        let wall = timeout_ms.map(std::time::Duration::from_millis);
        limits.lowered_to(Ceilings { fuel, memory, output, wall }, SetBy::Description)
    }
}

/// Longest name and version of a step in bytes.
const MAX_NAME: usize = 128;

/// Checks the step's name, version and summary. They are shown as they are, so they must not contain
/// characters that mislead a reader.
fn check_words(wit: &wit::Description) -> Result<(), String> {
    const SHOWN: usize = 80;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if wit.name.is_empty() || wit.name.len() > MAX_NAME || !wit.name.chars().all(plain) {
        return Err(format!(
            "its name {:?} is not made of letters, digits, `-`, `_` and `.`",
            text::prefix(&wit.name, SHOWN, Count::Chars)
        ));
    }
    for (what, words, most) in [("version", &wit.version, MAX_NAME), ("summary", &wit.summary, MAX_SUMMARY)] {
        if words.len() > most {
            return Err(format!("its {what} is longer than {most} bytes"));
        }
        if words.contains(char::is_control) {
            return Err(format!(
                "its {what} has control characters: {:?}",
                text::prefix(words, SHOWN, Count::Chars)
            ));
        }
    }
    Ok(())
}

/// Longest summary of a step in bytes: one line.
const MAX_SUMMARY: usize = 1000;

impl From<wit::Description> for Description {
    fn from(wit: wit::Description) -> Self {
        Self {
            name: wit.name,
            version: wit.version,
            summary: wit.summary,
            args_schema: wit.args_schema,
            input_schema: wit.input_schema,
            output_schema: wit.output_schema,
            wants: wit.wants,
            fuel: wit.limits.fuel,
            memory: wit.limits.memory,
            output: wit.limits.output,
            timeout_ms: wit.limits.timeout_ms,
            examples: wit.examples,
        }
    }
}
