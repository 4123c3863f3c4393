//! The engine: one wasmtime configuration, one set of host functions, the code cache and the components
//! in memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use wasmtime::component::Linker;
use wasmtime::{Collector, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::cache::{CodeCache, Compiled, from_fresh_code};
use crate::compiler::{CompileLimits, CompilerProgram, Patience};
use crate::complexity::MAX_PROGRAM;
use crate::component::{Component, Inner};
use crate::file::read_file;
use crate::kind::Form;
use crate::state::State;
use crate::ticker::Ticker;
use crate::{CodeLimits, CodeUse, Digest, LoadError, cache, complexity, host, kind, names};
use lobster_base::sync::lock;

/// Method by which runs get their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// On demand for the first runs of a program, and from a pool once it runs repeatedly. No program
    /// can see the difference.
    #[default]
    Adaptive,
    /// Each run maps the memory that it needs: cheapest to start.
    OnDemand,
    /// Address space is reserved once and reused: cheapest for each run.
    Pooling,
}

/// Settings of an [`Engine`].
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// Directory for compiled code, created with mode 0700. Without one, each process compiles anew.
    pub code_cache: Option<PathBuf>,
    pub allocation: Allocation,
    /// Program that compiles in a separate process. Without one, programs are compiled in this process,
    /// where neither time nor memory is limited; that is for trusted programs.
    pub compiler: Option<CompilerProgram>,
    /// Limits of that program, unless a [`Patience`] has others.
    pub compile_limits: CompileLimits,
    /// Directory for the writes of a run until they are committed; by default the system's temporary
    /// directory.
    pub staging: Option<PathBuf>,
}

/// Loads components. Creating an engine costs nothing until the first load. Clones share the engine.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    config: EngineConfig,
    core: Mutex<Option<Arc<Core>>>,
    loaded: Mutex<HashMap<Digest, Slot>>,
}

/// A component that is in memory or being loaded; the lock makes a second loader wait for the first.
type Slot = Arc<Mutex<Weak<Inner>>>;

/// State that all runs share.
pub(crate) struct Core {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) module_linker: wasmtime::Linker<State>,
    pub(crate) ticker: Ticker,
    pub(crate) staging: PathBuf,
    cache: Option<CodeCache>,
    config: EngineConfig,
    /// The same engine with a pool, once some program has run often enough; `None` if the pool could
    /// not be created.
    pool: OnceLock<Option<Arc<Core>>>,
    /// Number of runs in the pool.
    under_way: AtomicUsize,
}

/// A run's reservation in the pool, until it is dropped.
pub(crate) struct PoolSlot<'a>(&'a Core);

impl Drop for PoolSlot<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine {
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        Self(Arc::new(Shared { config, core: Mutex::default(), loaded: Mutex::default() }))
    }

    /// Loads the program in the file `path`, within bounds.
    ///
    /// # Errors
    /// The file cannot be read or is not a program that runs as a step, the time is up or the load is
    /// cancelled.
    pub fn load_file_within(
        &self,
        path: impl AsRef<Path>,
        patience: &Patience,
    ) -> Result<Component, LoadError> {
        self.load_bytes_within(&read_file(path.as_ref())?, patience)
    }

    /// Loads a program, within bounds. The same bytes are compiled once per machine (with a code cache)
    /// and kept once per process.
    ///
    /// # Errors
    /// The bytes are not a program that runs as a step, the time is up or the load is cancelled.
    pub fn load_bytes_within(&self, bytes: &[u8], patience: &Patience) -> Result<Component, LoadError> {
        self.load_known(blake3::hash(bytes), bytes.len() as u64, patience, || Ok(Cow::Borrowed(bytes)))
    }

    /// Loads the program with this digest and size, within bounds. Calls `bytes` only if the program
    /// has to be compiled; the bytes must have that digest.
    ///
    /// # Errors
    /// As [`Engine::load_bytes_within`], or an error of `bytes`.
    pub fn load_known<'b, E: From<LoadError>>(
        &self,
        digest: Digest,
        size: u64,
        patience: &Patience,
        bytes: impl FnOnce() -> Result<Cow<'b, [u8]>, E>,
    ) -> Result<Component, E> {
        if size > MAX_PROGRAM {
            return Err(too_large(size).into());
        }
        let mut patience = patience.clone();
        if !patience.anew {
            patience.limits = self.0.config.compile_limits;
        }
        let slot = {
            let mut loaded = lock(&self.0.loaded);
            loaded.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || slot.lock().is_ok_and(|s| s.strong_count() > 0)
            });
            loaded.entry(digest).or_default().clone()
        };
        // Another thread may be compiling it.
        let mut held = patience.lock_mutex(&slot)?;
        if let Some(inner) = held.upgrade() {
            return Ok(Component(inner));
        }
        let core = self.shared_core()?;
        let compiled = core.load_or_compile(bytes, digest, &patience)?;
        let inner = Arc::new(Inner::new(core, &compiled, digest, size)?);
        *held = Arc::downgrade(&inner);
        Ok(Component(inner))
    }

    /// Limits of compiling one program, unless a [`Patience`] has others.
    #[must_use]
    pub fn compile_limits(&self) -> CompileLimits {
        self.0.config.compile_limits
    }

    /// Size of the compiled code on disk.
    #[must_use]
    pub fn code_use(&self) -> CodeUse {
        self.0.config.code_cache.as_deref().map_or_else(CodeUse::default, cache::usage)
    }

    /// Removes compiled code until it fits `limits`; returns the size of the removed code. Removed code
    /// is compiled again when needed.
    pub fn prune_code(&self, limits: &CodeLimits) -> CodeUse {
        self.0.config.code_cache.as_deref().map_or_else(CodeUse::default, |dir| cache::prune(dir, limits))
    }

    fn shared_core(&self) -> Result<Arc<Core>, LoadError> {
        let mut core = lock(&self.0.core);
        if let Some(core) = &*core {
            return Ok(core.clone());
        }
        let new = Arc::new(Core::new(&self.0.config)?);
        *core = Some(new.clone());
        Ok(new)
    }
}

impl Core {
    fn new(config: &EngineConfig) -> Result<Self, LoadError> {
        let config = config.clone();
        let fail = |error: wasmtime::Error| LoadError::Engine { message: format!("{error:#}") };
        let engine = wasmtime::Engine::new(&wasm_config(config.allocation)).map_err(fail)?;
        let mut linker = Linker::new(&engine);
        host::add_to_linker(&mut linker).map_err(fail)?;
        let mut module_linker = wasmtime::Linker::new(&engine);
        host::preview1::add_to_linker(&mut module_linker).map_err(fail)?;
        let cache = match &config.code_cache {
            Some(dir) => CodeCache::open(dir, &engine)?,
            None => None,
        };
        let staging = config.staging.clone().unwrap_or_else(std::env::temp_dir);
        Ok(Self {
            engine,
            linker,
            module_linker,
            ticker: Ticker::default(),
            staging,
            cache,
            config,
            pool: OnceLock::new(),
            under_way: AtomicUsize::new(0),
        })
    }

    /// The same engine with a pool, if this engine may switch to one. Only cached code can be shared
    /// with it without compiling again.
    pub(crate) fn pooled_core(&self) -> Option<&Arc<Self>> {
        if self.config.allocation != Allocation::Adaptive || self.cache.is_none() {
            return None;
        }
        let make = || {
            let config = EngineConfig { allocation: Allocation::Pooling, ..self.config.clone() };
            Self::new(&config)
                .inspect_err(|error| tracing::debug!(%error, "no address space for a pool of instances"))
                .ok()
                .map(Arc::new)
        };
        self.pool.get_or_init(make).as_ref()
    }

    /// Reserves room for one run in this pool, if there is any.
    pub(crate) fn reserve_run(&self) -> Option<PoolSlot<'_>> {
        let place = PoolSlot(self);
        (self.under_way.fetch_add(1, Ordering::Relaxed) < POOL_RUNS).then_some(place)
    }

    /// Loads the program from the code cache; `None` if it is not there.
    pub(crate) fn load_cached(&self, digest: Digest) -> Option<Compiled> {
        self.cache.as_ref()?.read_code(&self.engine, digest)
    }

    fn load_or_compile<'b, E: From<LoadError>>(
        &self,
        bytes: impl FnOnce() -> Result<Cow<'b, [u8]>, E>,
        digest: Digest,
        patience: &Patience,
    ) -> Result<Compiled, E> {
        let compile = || {
            let bytes = bytes()?;
            let code = match &self.config.compiler {
                Some(compiler) => compiler.compile(&bytes, self.config.allocation, patience),
                None => machine_code(&self.engine, &bytes),
            };
            Ok(code.inspect_err(|error| {
                self.cache.iter().for_each(|cache| cache.note_refusal(digest, error));
            })?)
        };
        match &self.cache {
            Some(cache) => cache.load_or_compile(&self.engine, digest, patience, compile),
            None => Ok(from_fresh_code(&self.engine, &compile()?)?),
        }
    }
}

/// Compiles a program to machine code, if it may be compiled.
pub(crate) fn machine_code(engine: &wasmtime::Engine, bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
    let named = |error| complexity::explain_rejection(bytes, error);
    // Other bytes are not checked here; their error says what they are instead.
    if matches!(bytes, [0, b'a', b's', b'm', 1, 0, 0, 0, ..] | [0, b'a', b's', b'm', 0x0d, 0, 1, 0, ..]) {
        complexity::check(bytes).map_err(named)?;
    }
    let form = kind::detect_form(bytes).map_err(named)?;
    let code = match &form {
        Form::Component(component) => {
            names::check_interface(component).map_err(named)?;
            engine.precompile_component(component)
        }
        Form::Module(module) => engine.precompile_module(module),
    };
    code.map_err(|error| named(LoadError::Malformed { message: format!("{error:#}") }))
}

pub(crate) fn too_large(size: u64) -> LoadError {
    LoadError::TooComplex { what: "bytes".into(), found: size, limit: MAX_PROGRAM }
}

/// Call stack of a program in bytes: enough for QuickJS to reach its own limit first (set in
/// `guest-steps/templates/js/stack.mjs`), which scripts can catch.
const MAX_STACK: usize = 16 << 20;

/// Call stack reserved for the functions of the host.
const HOST_STACK: usize = 2 << 20;

pub(crate) fn wasm_config(allocation: Allocation) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(MAX_STACK)
        .async_stack_size(MAX_STACK + HOST_STACK)
        // Exceptions need a garbage-collected heap; no other proposal that needs one is on.
        .wasm_exceptions(true)
        .wasm_gc(false)
        .collector(Collector::Copying)
        // The same bits on every machine (invariant C3).
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        // Traps and backtraces follow frame pointers. A static build would remove one table entry per
        // function.
        .native_unwind_info(false);
    if allocation == Allocation::Pooling {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pooling_config()));
    }
    config
}

/// Number of runs that fit in a pool at the same time.
const POOL_RUNS: usize = 32;

/// Limits of one program in a pool. A program composed of several modules, such as the JavaScript
/// evaluator, has one memory per module.
const POOL_MEMORIES: u32 = 4;
const POOL_TABLES: u32 = 8;

/// Elements of one table in a pool.
pub(crate) const POOL_TABLE_ELEMENTS: u64 = 200_000;

/// Limit of the engine's own record of one instance, in bytes. No memory is reserved for it.
const POOL_INSTANCE_SIZE: usize = 1 << 30;

/// Memory of each kind that stays mapped between runs; the rest is returned to the system.
const POOL_RESIDENT: usize = 256 << 10;

/// True if programs with these needs fit in a pool.
pub(crate) fn fits_pool(needs: &wasmtime::ResourcesRequired) -> bool {
    needs.num_memories <= POOL_MEMORIES
        && needs.num_tables <= POOL_TABLES
        && needs.max_initial_table_size.is_none_or(|elements| elements <= POOL_TABLE_ELEMENTS)
}

/// Room for [`POOL_RUNS`] runs of programs that [`fits_pool`] accepts, each with one more memory for
/// exceptions. Instances are only counted; memories and tables reserve address space.
fn pooling_config() -> PoolingAllocationConfig {
    let runs = u32::try_from(POOL_RUNS).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(u32::MAX)
        .total_core_instances(u32::MAX)
        .total_memories(runs * (POOL_MEMORIES + 1))
        .total_gc_heaps(runs)
        .total_tables(runs * POOL_TABLES)
        .total_stacks(runs)
        .max_memories_per_module(POOL_MEMORIES)
        .max_tables_per_module(POOL_TABLES)
        .max_core_instance_size(POOL_INSTANCE_SIZE)
        .max_component_instance_size(POOL_INSTANCE_SIZE)
        .table_elements(usize::try_from(POOL_TABLE_ELEMENTS).unwrap_or(usize::MAX))
        .linear_memory_keep_resident(POOL_RESIDENT)
        .table_keep_resident(POOL_RESIDENT)
        .pagemap_scan(Enabled::Auto);
    pool
}

#[cfg(test)]
impl Engine {
    pub(crate) fn load_file(&self, path: impl AsRef<Path>) -> Result<Component, LoadError> {
        self.load_file_within(path, &Patience::default())
    }

    pub(crate) fn load_bytes(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        self.load_bytes_within(bytes, &Patience::default())
    }
}
