//! The engine: one wasmtime configuration, one set of host functions, the
//! code cache and the components in memory.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use wasmtime::component::Linker;
use wasmtime::{InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::cache::{CodeCache, Compiled, from_fresh_code};
use crate::component::{Component, Inner};
use crate::kind::Form;
use crate::state::State;
use crate::ticker::Ticker;
use crate::{CodeLimits, CodeUse, Digest, LoadError, cache, host, kind, names};

/// How the memory of runs is obtained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Each run maps what it needs: cheapest to start, for one-shot processes.
    #[default]
    OnDemand,
    /// Address space is reserved once and reused: for long-lived servers.
    Pooling,
}

/// What an [`Engine`] is made with.
#[derive(Clone, Debug, Default)]
pub struct EngineConfig {
    /// Directory for compiled code, created with mode 0700; none compiles anew in each process.
    pub code_cache: Option<PathBuf>,
    pub allocation: Allocation,
    /// Where what a run writes is kept until it is committed; the system's temporary directory if none.
    pub staging: Option<PathBuf>,
}

/// Loads components. Creating one costs nothing until the first is loaded.
/// Clones are the same engine.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

struct Shared {
    config: EngineConfig,
    core: Mutex<Option<Arc<Core>>>,
    loaded: Mutex<HashMap<Digest, Slot>>,
}

/// A component that is in memory or being loaded; the lock makes the second
/// loader wait for the first.
type Slot = Arc<Mutex<Weak<Inner>>>;

/// What all runs share.
pub(crate) struct Core {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) module_linker: wasmtime::Linker<State>,
    pub(crate) ticker: Ticker,
    pub(crate) staging: PathBuf,
    cache: Option<CodeCache>,
}

impl Engine {
    #[must_use]
    pub fn new(config: EngineConfig) -> Self {
        Self(Arc::new(Shared { config, core: Mutex::default(), loaded: Mutex::default() }))
    }

    /// Loads the program in the file `path`.
    ///
    /// # Errors
    /// When it cannot be read or is no program that runs as a step.
    pub fn load_file(&self, path: impl AsRef<Path>) -> Result<Component, LoadError> {
        let path = path.as_ref();
        let bytes =
            std::fs::read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        self.load_bytes(&bytes)
    }

    /// Loads a program. The same bytes are compiled once per machine (with a
    /// code cache) and held once per process.
    ///
    /// # Errors
    /// When they are no program that runs as a step.
    pub fn load_bytes(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        self.load_known(blake3::hash(bytes), bytes.len() as u64, || Ok(Cow::Borrowed(bytes)))
    }

    /// Loads the program of this digest and size. Its bytes are asked for only
    /// if it has to be compiled; they must be the ones that have the digest.
    ///
    /// # Errors
    /// As [`Engine::load_bytes`], or what `bytes` fails with.
    pub fn load_known<'b, E: From<LoadError>>(
        &self,
        digest: Digest,
        size: u64,
        bytes: impl FnOnce() -> Result<Cow<'b, [u8]>, E>,
    ) -> Result<Component, E> {
        let slot = {
            let mut loaded = self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner);
            loaded.retain(|_, slot| {
                Arc::strong_count(slot) > 1 || slot.lock().is_ok_and(|s| s.strong_count() > 0)
            });
            loaded.entry(digest).or_default().clone()
        };
        let mut held = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = held.upgrade() {
            return Ok(Component(inner));
        }
        let core = self.core()?;
        let compiled = core.compile(bytes, digest)?;
        let inner = Arc::new(Inner::new(core, &compiled, digest, size)?);
        *held = Arc::downgrade(&inner);
        Ok(Component(inner))
    }

    /// What compiled code takes on disk.
    #[must_use]
    pub fn code_use(&self) -> CodeUse {
        self.0.config.code_cache.as_deref().map_or_else(CodeUse::default, cache::usage)
    }

    /// Removes compiled code until it fits `limits`; gives what went. Whatever
    /// goes is compiled again when it is needed.
    pub fn prune_code(&self, limits: &CodeLimits) -> CodeUse {
        self.0.config.code_cache.as_deref().map_or_else(CodeUse::default, |dir| cache::prune(dir, limits))
    }

    fn core(&self) -> Result<Arc<Core>, LoadError> {
        let mut core = self.0.core.lock().unwrap_or_else(PoisonError::into_inner);
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
        let fail = |error: wasmtime::Error| LoadError::Engine { message: format!("{error:#}") };
        let engine = wasmtime::Engine::new(&wasm_config(config.allocation)).map_err(fail)?;
        let mut linker = Linker::new(&engine);
        host::add_to_linker(&mut linker).map_err(fail)?;
        let mut module_linker = wasmtime::Linker::new(&engine);
        host::preview1::add_to_linker(&mut module_linker).map_err(fail)?;
        let cache = config.code_cache.as_deref().map(|dir| CodeCache::open(dir, &engine)).transpose()?;
        let staging = config.staging.clone().unwrap_or_else(std::env::temp_dir);
        Ok(Self { engine, linker, module_linker, ticker: Ticker::default(), staging, cache })
    }

    fn compile<'b, E: From<LoadError>>(
        &self,
        bytes: impl FnOnce() -> Result<Cow<'b, [u8]>, E>,
        digest: Digest,
    ) -> Result<Compiled, E> {
        let compile = || Ok(self.machine_code(&bytes()?)?);
        match &self.cache {
            Some(cache) => cache.load(&self.engine, digest, compile),
            None => Ok(from_fresh_code(&self.engine, &compile()?)?),
        }
    }

    fn machine_code(&self, bytes: &[u8]) -> Result<Vec<u8>, LoadError> {
        let code = match kind::form(bytes)? {
            Form::Component(component) => {
                names::check(&component)?;
                self.engine.precompile_component(&component)
            }
            Form::Module(module) => self.engine.precompile_module(module),
        };
        code.map_err(|error| LoadError::Malformed { message: format!("{error:#}") })
    }
}

fn wasm_config(allocation: Allocation) -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        // The same bits on every machine (invariant C3).
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true);
    if allocation == Allocation::Pooling {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
    }
    config
}

/// Room for 128 runs at once of components as large as Python's.
fn pool() -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(128)
        .total_core_instances(2048)
        .total_memories(256)
        .total_tables(1024)
        .total_stacks(128)
        .max_memories_per_module(4)
        .max_tables_per_module(8)
        .max_core_instance_size(8 << 20)
        .max_component_instance_size(8 << 20)
        .table_elements(100_000);
    pool
}
