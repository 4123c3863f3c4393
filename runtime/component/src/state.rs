//! What one run holds inside the engine: the store's data and its limits.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::WasiHttpCtx;

use crate::host::filesystem::{Filesystem, FsError};
use crate::host::http::Http;
use crate::host::io::Pipes;
use crate::host::network::NetGrants;
use crate::host::preview1::Preview1;
use crate::host::readable_blobs::ReadableBlobs;
use crate::host::services::Services;
use crate::{Cancel, Limits, RunError};

/// The data of a store. Made for one run and dropped with it.
pub(crate) struct State {
    pub(crate) table: ResourceTable,
    pub(crate) wasi: WasiCtx,
    pub(crate) limiter: Limiter,
    pub(crate) pipes: Pipes,
    pub(crate) files: Filesystem,
    pub(crate) net: Arc<NetGrants>,
    pub(crate) http: Http,
    pub(crate) http_limits: WasiHttpCtx,
    pub(crate) preview1: Preview1,
    pub(crate) services: Services,
    pub(crate) given: ReadableBlobs,
    /// Whether the program asked for values of the run or for blobs.
    pub(crate) read_state: bool,
    /// Whether it asked for values of the run.
    pub(crate) read_values: bool,
    /// Calls of the program into the host or the engine.
    pub(crate) host_calls: u64,
    /// Whether the host is entered for a tick of the clock.
    pub(crate) ticked: bool,
    pub(crate) clock: crate::host::clocks::Clock,
    pub(crate) stop: Arc<Stop>,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl State {
    /// Ends the run if it is to end: for calls of the host that take long.
    pub(crate) fn look(&self) -> Result<(), FsError> {
        self.files.stage.look()
    }
}

/// When a run has to end early.
pub(crate) struct Stop {
    pub(crate) deadline: Option<Instant>,
    pub(crate) limits: Limits,
    pub(crate) cancel: Cancel,
}

impl Stop {
    /// For what is not a run.
    #[cfg(test)]
    pub(crate) fn never() -> Arc<Self> {
        Arc::new(Self { deadline: None, limits: Limits::default(), cancel: Arc::new(|| None) })
    }

    pub(crate) fn reason(&self) -> Option<RunError> {
        if let Some(reason) = (self.cancel)() {
            return Some(RunError::Cancelled { reason });
        }
        self.late()
    }

    /// The error of a run that took longer than it may.
    pub(crate) fn late(&self) -> Option<RunError> {
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        late.then(|| self.limits.timed_out())
    }
}

/// What a run may hold of memory, tables and instances. What the host itself
/// cannot give ends the run, so that a program never sees how much memory the
/// host has.
pub(crate) struct Limiter {
    limits: Limits,
    memory: Budget,
    tables: Budget,
    /// What the host could not give. The engine goes on without it if it was for exceptions.
    failed: Option<String>,
}

/// The sum over all memories, or over all tables. A growth beyond the limit
/// fails inside the program, as on a machine that has no more; what it asked for
/// is kept to name the limit if the program dies of it.
struct Budget {
    limit: u64,
    held: u64,
    peak: u64,
    denied: Option<u64>,
}

impl Budget {
    fn new(limit: u64) -> Self {
        Self { limit, held: 0, peak: 0, denied: None }
    }

    /// Whether one of them may grow; `maximum` is that of its type.
    fn grow(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> bool {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return false;
        }
        let asked = self.held.saturating_sub(current as u64).saturating_add(desired as u64);
        if asked > self.limit {
            self.denied = Some(asked);
            return false;
        }
        self.held = asked;
        self.peak = self.peak.max(asked);
        true
    }
}

impl Limiter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, memory: Budget::new(limits.memory), tables: Budget::new(limits.tables), failed: None }
    }

    /// Most bytes of memory held at once.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.memory.peak
    }

    /// The limit that a trapped program ran into before, its own or the host's.
    pub(crate) fn denied(&self) -> Option<RunError> {
        if let Some(message) = &self.failed {
            return Some(RunError::HostMemory { message: message.clone() });
        }
        let memory = self.memory.denied.map(|asked| self.limits.memory_exceeded(asked));
        memory.or_else(|| {
            self.tables.denied.map(|asked| RunError::TableLimit { limit: self.limits.tables, asked })
        })
    }

    /// Only memories with pages of one byte, which are off here, also come to this when their
    /// type has no room for more; of others, [`Budget::grow`] has refused it before.
    fn host_failed(&mut self, error: &wasmtime::Error) -> wasmtime::Result<()> {
        let message = format!("{error:#}");
        self.failed = Some(message.clone());
        Err(wasmtime::Error::new(RunError::HostMemory { message }))
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.memory.grow(current, desired, maximum))
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.host_failed(&error)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.tables.grow(current, desired, maximum))
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.host_failed(&error)
    }

    fn instances(&self) -> usize {
        self.limits.instances
    }

    fn tables(&self) -> usize {
        self.limits.instances
    }

    fn memories(&self) -> usize {
        self.limits.instances
    }
}
