//! What one run holds inside the engine: the store's data and its limits.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::ResourceLimiter;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::WasiHttpCtx;

use crate::host::filesystem::Filesystem;
use crate::host::http::Http;
use crate::host::io::Pipes;
use crate::host::network::NetGrants;
use crate::host::preview1::Preview1;
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
    /// Whether the program asked for values of the run or for blobs.
    pub(crate) read_state: bool,
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

/// When a run has to end early.
pub(crate) struct Stop {
    pub(crate) deadline: Option<Instant>,
    pub(crate) limits: Limits,
    pub(crate) cancel: Cancel,
}

impl Stop {
    pub(crate) fn reason(&self) -> Option<RunError> {
        if let Some(reason) = (self.cancel)() {
            return Some(RunError::Cancelled { reason });
        }
        let late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        late.then_some(RunError::Timeout { limit: self.limits.wall })
    }
}

/// Bounds the sum over all memories and over all tables. A growth beyond the
/// limit fails inside the program, as on a machine that has no more; what it
/// asked for is kept to name the limit if the program dies of it. What the host
/// itself cannot give ends the run, so that a program never sees how much
/// memory the host has.
pub(crate) struct Limiter {
    limits: Limits,
    memory: u64,
    tables: u64,
    pub(crate) peak_memory: u64,
    denied_memory: Option<u64>,
    denied_tables: Option<u64>,
}

impl Limiter {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, memory: 0, tables: 0, peak_memory: 0, denied_memory: None, denied_tables: None }
    }

    /// The limit that a trapped program ran into before.
    pub(crate) fn denied(&self) -> Option<RunError> {
        let memory =
            self.denied_memory.map(|asked| RunError::MemoryLimit { limit: self.limits.memory, asked });
        memory.or_else(|| {
            self.denied_tables.map(|asked| RunError::TableLimit { limit: self.limits.tables, asked })
        })
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let asked = self.memory.saturating_sub(current as u64).saturating_add(desired as u64);
        if asked > self.limits.memory {
            self.denied_memory = Some(asked);
            return Ok(false);
        }
        self.memory = asked;
        self.peak_memory = self.peak_memory.max(asked);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        host_failed(&error)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let asked = self.tables.saturating_sub(current as u64).saturating_add(desired as u64);
        if asked > self.limits.tables {
            self.denied_tables = Some(asked);
            return Ok(false);
        }
        self.tables = asked;
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        host_failed(&error)
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

/// Also called when the type of a memory or table has no room for more, which
/// is the program's own affair.
fn host_failed(error: &wasmtime::Error) -> wasmtime::Result<()> {
    let message = format!("{error:#}");
    if message.contains("type's limits") {
        return Ok(());
    }
    Err(wasmtime::Error::new(RunError::HostMemory { message }))
}
