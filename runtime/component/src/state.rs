//! State of one run inside the engine: the store's data and its limits.

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

/// Data of a store, created for one run and dropped with it.
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
    /// True if the program asked for values of the run or for blobs.
    pub(crate) read_state: bool,
    /// True if it asked for values of the run.
    pub(crate) read_values: bool,
    /// Calls of the program into the host or the engine.
    pub(crate) host_calls: u64,
    /// True if the host was entered for a tick of the clock.
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
    /// Returns an error if the run has to end; for long host calls.
    pub(crate) fn check_stop(&self) -> Result<(), FsError> {
        self.files.stage.check_stop()
    }
}

/// Conditions that end a run early.
pub(crate) struct Stop {
    pub(crate) deadline: Option<Instant>,
    pub(crate) limits: Limits,
    pub(crate) cancel: Cancel,
}

impl Stop {
    /// For operations outside of a run.
    #[cfg(test)]
    pub(crate) fn never() -> Arc<Self> {
        Arc::new(Self { deadline: None, limits: Limits::default(), cancel: Arc::new(|| None) })
    }

    pub(crate) fn reason(&self) -> Option<RunError> {
        if let Some(reason) = (self.cancel)() {
            return Some(RunError::Cancelled { reason });
        }
        self.timeout_error()
    }

    /// Error of a run that exceeded its time.
    pub(crate) fn timeout_error(&self) -> Option<RunError> {
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        late.then(|| self.limits.timed_out())
    }
}

/// Limits of memory, tables and instances of a run. If the host itself runs out, the run ends, so that
/// a program never sees how much memory the host has.
pub(crate) struct Limiter {
    limits: Limits,
    memory: Budget,
    tables: Budget,
    /// Error of an allocation that the host could not make. The engine continues if it was for
    /// exceptions.
    failed: Option<String>,
}

/// Sum over all memories, or over all tables. A growth beyond the limit fails inside the program, as on
/// a machine without more memory. The requested size is kept to name the limit if the program then
/// fails.
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

    /// True if one of them may grow; `maximum` is the maximum of its type.
    fn try_grow(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> bool {
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

    /// Highest number of bytes of memory in use at one time.
    pub(crate) fn peak_memory(&self) -> u64 {
        self.memory.peak
    }

    /// Limit that a trapped program reached before, its own or the host's.
    pub(crate) fn reached_limit(&self) -> Option<RunError> {
        if let Some(message) = &self.failed {
            return Some(RunError::HostMemory { message: message.clone() });
        }
        let memory = self.memory.denied.map(|asked| self.limits.memory_exceeded(asked));
        memory.or_else(|| {
            self.tables.denied.map(|asked| RunError::TableLimit { limit: self.limits.tables, asked })
        })
    }

    /// A growth beyond the maximum of a memory's type only gets here for memories with pages of one
    /// byte, which are off. [`Budget::try_grow`] rejects it earlier for all others.
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
        Ok(self.memory.try_grow(current, desired, maximum))
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
        Ok(self.tables.try_grow(current, desired, maximum))
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
