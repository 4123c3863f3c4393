//! One run: a fresh store and instance, the call and its result.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use serde_json::Value;
use wasmtime::component::{
    ComponentNamedList, InstancePre, Lift, Lower, Resource, ResourceTable, ResourceTableError,
};
use wasmtime::{CallHook, Store, ThrownException, Trap, UpdateDeadline, WasmBacktrace};
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};
use wasmtime_wasi_http::WasiHttpCtx;

use crate::component::{Described, EntryPoint, Inner};
use crate::host::clocks::Clock;
use crate::host::filesystem::Filesystem;
use crate::host::http::Http;
use crate::host::io::{Pipes, Stdio, StepInput, StepOutput};
use crate::host::network::NetGrants;
use crate::host::preview1::Preview1;
use crate::host::random::{Real, Seeded};
use crate::host::readable_blobs::ReadableBlobs;
use crate::host::services::Tracer;
use crate::host::step_wit::types as wit;
use crate::nesting::explain_rejected_args;
use crate::state::{Limiter, State, Stop};
use crate::untyped::Untyped;
use crate::{
    Grants, Invocation, Limits, LimitsSetBy, Outcome, RunError, SetBy, StagedWrites, StepError, names,
};
use lobster_base::text::{self, Count};

/// Interval at which a run that waits in the host checks if it should stop.
const LOOK: Duration = Duration::from_millis(5);

/// Most bytes that a program may pass to the host in one call: the host copies them.
const MAX_HOST_CALL: usize = 32 << 20;

/// Most handles (streams, timers, descriptors) that a program may hold at once: each uses memory of the
/// host.
const MAX_HANDLES: usize = 10_000;

/// The same limit for a program that can reach the network: a request uses up to 128 KiB, and a socket
/// uses a descriptor and its buffers.
const MAX_NETWORK_HANDLES: usize = 1_000;

/// Most bytes in the fields of one request.
const MAX_FIELDS: usize = 64 << 10;

fn max_handles(component: &Inner) -> usize {
    if component.imports.iter().any(|import| names::uses_network(import)) {
        MAX_NETWORK_HANDLES
    } else {
        MAX_HANDLES
    }
}

/// Most random bytes in one call.
const MAX_RANDOM: u64 = 1 << 20;

/// Name of the program on its command line.
const ARGV0: &str = "step";

/// Fuel per call into the host, so that fuel also limits the host's work.
const HOST_CALL_FUEL: u64 = 500;

/// Bytes of input or output per unit of fuel.
const BYTES_PER_FUEL: u64 = 16;

/// Limits of `describe`, which only has to return a constant.
const DESCRIBE_LIMITS: Limits = Limits {
    fuel: 5_000_000_000,
    memory: 128 << 20,
    tables: 200_000,
    instances: 256,
    output: 1 << 20,
    files: 0,
    wall: Duration::from_secs(10),
    host_call: Duration::from_secs(1),
    set_by: LimitsSetBy { fuel: SetBy::Host, memory: SetBy::Host, output: SetBy::Host, wall: SetBy::Host },
};

pub(crate) fn run(component: &Inner, mut invocation: Invocation) -> Result<Outcome, RunError> {
    check_grants(component, &invocation.grants)?;
    let raw = names::raw_socket(&component.imports, component.is_step(), &invocation.grants);
    if let (Some(import), true) = (raw, invocation.trace.is_some()) {
        return Err(RunError::NotRecordable { import: import.clone() });
    }
    let described = component.cached_description()?;
    if let Some(described) = described {
        check_args(described, &invocation.args)?;
        if invocation.described_limits {
            invocation.limits = described.lower_limits(invocation.limits);
        }
    }
    let args = std::mem::take(&mut invocation.args);
    let given = ReadableBlobs::new(component.opens_blobs, &args);
    let mut run = Run::new(component, invocation, described, given)?;
    let result = match &component.entry {
        EntryPoint::Step { pre, run: index, .. } => {
            let io = run.push_io()?;
            let called = run.call_export::<_, (Result<(), wit::StepError>,)>(pre, *index, (args, io.0, io.1));
            called.map(|(result,)| result.map(|()| 0).map_err(Into::into))
        }
        EntryPoint::Command { pre, run: index } => {
            let called = run.call_export::<_, (Result<(), ()>,)>(pre, *index, ());
            called.map(|(result,)| Ok(i32::from(result.is_err())))
        }
        EntryPoint::Module { pre } => run.run_module(pre).map(|()| Ok(0)),
    };
    run.into_outcome(result)
}

/// Asks a step for its description, without grants.
pub(crate) fn describe_step(component: &Inner) -> Result<wit::Description, RunError> {
    let EntryPoint::Step { pre, describe, .. } = &component.entry else {
        return Err(RunError::BadDescription { message: "a command program has none".to_owned() });
    };
    let invocation = Invocation { limits: DESCRIBE_LIMITS, ..Invocation::new("{}", Box::new(Vec::new())) };
    let mut run = Run::new(component, invocation, None, ReadableBlobs::new(false, ""))?;
    match run.call_export::<_, (wit::Description,)>(pre, *describe, ()) {
        Ok((description,)) => Ok(description),
        Err(error) => Err(run.explain_trap(error)),
    }
}

pub(crate) fn check_grants(component: &Inner, grants: &Grants) -> Result<(), RunError> {
    NetGrants::parse_hosts(&grants.net)?;
    let Some((import, hint)) = names::ungranted_import(&component.imports, grants) else { return Ok(()) };
    // A step declares its needs. If it can run without hosts, or only its language's runtime imports
    // sockets, hosts are closed to it.
    if component.cached_description()?.is_some_and(|described| !described.description.needs_hosts()) {
        return Ok(());
    }
    Err(RunError::NotGranted { import, hint })
}

/// Command line that the arguments of a command program stand for.
pub(crate) fn command_words(text: &str) -> Result<Vec<String>, RunError> {
    let bad = |path: String, message: String| RunError::BadArgs { path, message };
    let args: Value = lobster_base::json::parse_message(text.as_bytes())
        .map_err(|error| bad("$".to_owned(), explain_rejected_args(text, &error)))?;
    let Value::Object(args) = args else {
        return Err(bad("$".to_owned(), "arguments are a JSON object".to_owned()));
    };
    if let Some(name) = args.keys().find(|name| *name != "argv") {
        let message = "a command program takes words alone: write them as a list in `argv`".to_owned();
        return Err(bad(format!("$.{name}"), message));
    }
    match args.get("argv") {
        None => Ok(Vec::new()),
        Some(Value::Array(words)) => words
            .iter()
            .enumerate()
            .map(|(index, word)| match word {
                Value::String(text) => Ok(text.clone()),
                Value::Number(number) => Ok(number.to_string()),
                Value::Bool(flag) => Ok(flag.to_string()),
                Value::Null | Value::Array(_) | Value::Object(_) => {
                    Err(bad(format!("$.argv[{index}]"), "a word is a text".to_owned()))
                }
            })
            .collect(),
        Some(_) => Err(bad("$.argv".to_owned(), "it is not a list of words".to_owned())),
    }
}

pub(crate) fn check_args(described: &Described, args: &str) -> Result<(), RunError> {
    let bad = |path: String, message: String| Err(RunError::BadArgs { path, message });
    match lobster_base::json::parse_message::<Value>(args.as_bytes()) {
        Ok(value) if value.is_object() => match described.args.check_value(&value) {
            Ok(()) => Ok(()),
            Err(misfit) => bad(misfit.path, misfit.message),
        },
        Ok(_) => bad("$".to_owned(), "arguments are a JSON object".to_owned()),
        Err(error) => bad("$".to_owned(), explain_rejected_args(args, &error)),
    }
}

/// Counts each host call, charges its fuel and ends the run when its record is full.
fn count_host_calls(store: &mut Store<State>, entered: Arc<AtomicU64>, record: Tracer) {
    store.call_hook(move |mut store, hook| {
        match hook {
            CallHook::CallingHost => {
                entered.fetch_add(1, Ordering::Relaxed);
            }
            CallHook::ReturningFromHost => {
                let state = store.data_mut();
                // The clock's ticks also pass here, but they are not calls of the program: counting
                // them would reveal the time.
                if !std::mem::take(&mut state.ticked) {
                    state.host_calls += 1;
                    let cost = HOST_CALL_FUEL + state.pipes.take_moved() / BYTES_PER_FUEL;
                    let left = store.get_fuel()?.saturating_sub(cost);
                    store.set_fuel(left)?;
                    if let Some(full) = record.overfull_error() {
                        return Err(wasmtime::Error::new(full));
                    }
                }
            }
            CallHook::CallingWasm | CallHook::ReturningFromWasm => {}
        }
        Ok(())
    });
}

struct Run<'a> {
    component: &'a Inner,
    store: Store<State>,
    pipes: Pipes,
    tracer: Tracer,
    stop: Arc<Stop>,
    /// Number of entries into the host: distinguishes one wait from the next.
    host_calls: Arc<AtomicU64>,
    limits: Limits,
}

impl<'a> Run<'a> {
    fn new(
        component: &'a Inner,
        invocation: Invocation,
        described: Option<&Described>,
        given: ReadableBlobs,
    ) -> Result<Self, RunError> {
        let Invocation { argv, input, output, stderr, grants, mut limits, seed, start_time, .. } = invocation;
        // A program whose first table is larger than the limit was accepted by the compiler, so it may
        // start.
        if component.first_table > limits.tables {
            limits.tables = limits.tables.saturating_add(component.first_table);
        }
        let schemas = described.map_or((None, None), |d| (d.input.clone(), d.output.clone()));
        let pipes = Pipes::new(input, output, stderr, limits, schemas);
        let tracer = Tracer::new(invocation.trace);
        let clock =
            if grants.clock { Clock::real_time(tracer.clone()) } else { Clock::virtual_from(start_time) };
        let is_step = component.is_step();
        let net = NetGrants::parse_hosts(&grants.net)?;
        let mut wasi = build_wasi(&grants, &argv, &seed, &pipes, &clock, &tracer, is_step);
        let has_sockets = names::raw_socket(&component.imports, is_step, &grants).is_some();
        let sockets = if has_sockets { net.clone() } else { NetGrants::parse_hosts(&[])? };
        wasi.allow_tcp(has_sockets).allow_udp(has_sockets);
        let checked = sockets.clone();
        wasi.socket_addr_check(move |address, purpose| {
            Box::pin(std::future::ready(checked.allows(address, purpose)))
        });
        let deadline = Instant::now().checked_add(limits.wall);
        let stop = Arc::new(Stop { deadline, limits, cancel: invocation.cancel });
        let files = Filesystem::open(
            &grants,
            invocation.opened.unwrap_or_else(|| grants.open_dirs()),
            component.core.staging.clone(),
            limits.files,
            start_time,
            stop.clone(),
        )?;
        let host_calls = Arc::new(AtomicU64::new(0));
        let mut table = ResourceTable::new();
        table.set_max_capacity(max_handles(component));
        let mut http_limits = WasiHttpCtx::new();
        http_limits.set_field_size_limit(MAX_FIELDS);
        let random: Box<dyn rand::Rng + Send> = if grants.random {
            Box::new(Real { source: wasmtime_wasi::thread_rng(), tracer: tracer.clone() })
        } else {
            Box::new(Seeded::new(&seed, "secure"))
        };
        let args = std::iter::once(ARGV0.to_owned()).chain(argv).collect();
        let preview1 = Preview1::new(&pipes, &files.guest_paths(), args, grants.env, random);
        let state = State {
            preview1,
            table,
            wasi: wasi.build(),
            limiter: Limiter::new(limits),
            pipes: pipes.clone(),
            files,
            http: Http::new(net, tracer.clone(), invocation.credentials),
            http_limits,
            net: sockets,
            services: invocation.services,
            given,
            read_state: false,
            read_values: false,
            host_calls: 0,
            ticked: false,
            clock,
            stop: stop.clone(),
        };
        let mut store = Store::new(&component.core.engine, state);
        store.set_fuel(limits.fuel).map_err(|error| instantiation_error(&error))?;
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(MAX_HOST_CALL);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| {
            store.data_mut().ticked = true;
            match store.data().stop.reason() {
                Some(reason) => Err(wasmtime::Error::new(reason)),
                None => Ok(UpdateDeadline::Continue(1)),
            }
        });
        count_host_calls(&mut store, host_calls.clone(), tracer.clone());
        Ok(Self { component, store, pipes, tracer, stop, host_calls, limits })
    }

    fn push_io(&mut self) -> Result<(Resource<StepInput>, Resource<StepOutput>), RunError> {
        let table = &mut self.store.data_mut().table;
        let full = |error: ResourceTableError| RunError::Instantiate { message: error.to_string() };
        Ok((table.push(StepInput).map_err(full)?, table.push(StepOutput).map_err(full)?))
    }

    /// Instantiates the program and calls one of its functions.
    fn call_export<P, R>(
        &mut self,
        pre: &InstancePre<State>,
        index: wasmtime::component::ComponentExportIndex,
        params: P,
    ) -> Result<R, wasmtime::Error>
    where
        P: ComponentNamedList + Lower + Send + Sync + 'static,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        if let Some(reason) = self.stop.reason() {
            return Err(wasmtime::Error::new(reason));
        }
        let component = self.component;
        let _ticking = component.core.ticker.start_ticking(&component.core.engine)?;
        let store = &mut self.store;
        let call = async {
            let instance = pre.instantiate_async(&mut *store).await?;
            instance.get_typed_func::<P, R>(&mut *store, index)?.call_async(&mut *store, params).await
        };
        if !component.may_wait {
            return run_on_own_stack(call);
        }
        let watch = wait_for_stop(&self.stop, &self.host_calls);
        block_on(async {
            let (mut call, mut watch) = (pin!(call), pin!(watch));
            std::future::poll_fn(|context| match call.as_mut().poll(context) {
                Poll::Ready(result) => Poll::Ready(result),
                Poll::Pending => watch.as_mut().poll(context).map(|e| Err(wasmtime::Error::new(e))),
            })
            .await
        })?
    }

    /// Instantiates a core module and calls its `_start`.
    fn run_module(&mut self, pre: &wasmtime::InstancePre<State>) -> Result<(), wasmtime::Error> {
        if let Some(reason) = self.stop.reason() {
            return Err(wasmtime::Error::new(reason));
        }
        let core = &self.component.core;
        let _ticking = core.ticker.start_ticking(&core.engine)?;
        let store = &mut self.store;
        run_on_own_stack(async {
            let instance = pre.instantiate_async(&mut *store).await?;
            instance.get_typed_func::<(), ()>(&mut *store, "_start")?.call_async(&mut *store, ()).await
        })
    }

    /// Result of the call after limits and broken streams are checked.
    fn into_outcome(
        self,
        result: Result<Result<i32, StepError>, wasmtime::Error>,
    ) -> Result<Outcome, RunError> {
        let exit_code = match result {
            Ok(Ok(code)) => code,
            Ok(Err(error)) => {
                return Err(self.hidden_failure().unwrap_or(RunError::Step(error)));
            }
            Err(error) => match error.downcast_ref::<I32Exit>() {
                Some(exit) => exit.0,
                None => return Err(self.explain_trap(error)),
            },
        };
        if let Some(failure) = self.hidden_failure() {
            return Err(failure);
        }
        // The run was late, so its result does not matter.
        if let Some(late) = self.stop.timeout_error() {
            return Err(late);
        }
        let carried = self.pipes.carried_output();
        let fuel_used = self.limits.fuel.saturating_sub(self.store.get_fuel().unwrap_or(0));
        let state = self.store.into_data();
        let denied: BTreeSet<_> =
            state.http.net.denied_hosts().into_iter().chain(state.net.denied_hosts()).collect();
        let writes = StagedWrites::from_mounts(state.files.into_mounts())?;
        Ok(Outcome {
            fuel_used,
            peak_memory: state.limiter.peak_memory(),
            output_bytes: carried.bytes,
            output_items: carried.items,
            host_calls: state.host_calls,
            exit_code,
            stderr_tail: self.pipes.stderr_tail(),
            writes,
            read_state: state.read_state,
            read_values: state.read_values,
            denied: denied.into_iter().collect(),
        })
    }

    /// Error that the program did not report.
    fn hidden_failure(&self) -> Option<RunError> {
        let files = || {
            let exceeded = self.store.data().files.stage.exceeded.load(Ordering::Relaxed);
            exceeded.then_some(RunError::FilesLimit { limit: self.limits.files })
        };
        let record = self.tracer.take_divergence().or_else(|| self.tracer.overfull_error());
        record.or_else(|| self.pipes.stream_failure()).or_else(files)
    }

    /// Named error that caused a trap.
    fn explain_trap(&self, error: wasmtime::Error) -> RunError {
        let error = match error.downcast::<RunError>() {
            Ok(own) => return own,
            Err(other) => other,
        };
        if let Some(failure) = self.hidden_failure() {
            return failure;
        }
        let trap = error.downcast_ref::<Trap>().copied();
        match trap {
            Some(Trap::OutOfFuel) => return self.limits.out_of_fuel(),
            Some(Trap::StackOverflow) => return RunError::StackExhausted,
            Some(Trap::Interrupt) => {
                return self.stop.reason().unwrap_or_else(|| self.limits.timed_out());
            }
            _ => {}
        }
        if matches!(error.downcast_ref(), Some(ResourceTableError::Full)) {
            return RunError::HandleLimit { limit: max_handles(self.component) };
        }
        match Untyped::from_error(&error) {
            Some(Untyped::TooManyInstances) => {
                return RunError::InstanceLimit { limit: self.limits.instances };
            }
            Some(Untyped::HostCallFuel) => return RunError::HostCallTooLarge { limit: MAX_HOST_CALL },
            None => {}
        }
        if let Some(limit) = self.store.data().limiter.reached_limit() {
            return limit;
        }
        if error.is::<ThrownException>() {
            return self
                .trapped(format!("it threw an exception that nothing catches{}", trap_frames(&error)));
        }
        match trap {
            Some(trap) => self.trapped(format!("{trap}{}", trap_frames(&error))),
            None if error.downcast_ref::<WasmBacktrace>().is_some() => {
                self.trapped(format!("{}{}", error.root_cause(), trap_frames(&error)))
            }
            None => instantiation_error(&error),
        }
    }

    /// Error of a trap. A program that does not handle the refusal of its output traps, and the refusal
    /// is the reason that people need.
    fn trapped(&self, message: String) -> RunError {
        match self.pipes.refused_output() {
            Some(refusal) => RunError::RefusedOutput { refusal, trap: message },
            None => RunError::Trap { message, stderr: self.pipes.stderr_tail() },
        }
    }
}

/// Most bytes of a program's error message. With its code and the note about the cut, this is less than
/// the limit for any failure.
const MAX_MESSAGE: usize = 60 << 10;

/// The innermost named functions of a trap, for people.
fn trap_frames(error: &wasmtime::Error) -> String {
    const SHOWN: usize = 6;
    const MAX_NAME: usize = 400;
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let frames = backtrace.map(WasmBacktrace::frames).unwrap_or_default();
    let names = frames.iter().filter_map(wasmtime::FrameInfo::func_name).take(SHOWN);
    let names: Vec<_> = names.map(|name| text::clip(name, MAX_NAME, Count::Bytes)).collect();
    if names.is_empty() { String::new() } else { format!(" in {}", names.join(" < ")) }
}

fn instantiation_error(error: &wasmtime::Error) -> RunError {
    RunError::Instantiate { message: format!("{error:#}") }
}

impl From<wit::StepError> for StepError {
    fn from(wit::StepError { code, message, retryable }: wit::StepError) -> Self {
        let message = text::clip_telling_rest(&message, MAX_MESSAGE).into_owned();
        Self { code: plain_code(&code), message, retryable }
    }
}

/// Code of an error without a usable one.
const NO_CODE: &str = "step-error";

/// Longest code of a step's error.
const MAX_CODE: usize = 64;

/// Normalises a step's code to the contract's form: lower-case words joined by dashes.
fn plain_code(code: &str) -> String {
    let code = text::prefix(code, MAX_CODE, Count::Chars);
    let words = code.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let plain = words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("-");
    if plain.is_empty() { NO_CODE.to_owned() } else { plain }
}

fn build_wasi(
    grants: &Grants,
    argv: &[String],
    seed: &[u8; 32],
    pipes: &Pipes,
    clock: &Clock,
    tracer: &Tracer,
    is_step: bool,
) -> WasiCtxBuilder {
    let mut wasi = WasiCtxBuilder::new();
    wasi.allow_blocking_current_thread(true)
        .max_random_size(MAX_RANDOM)
        .arg(ARGV0)
        .args(argv)
        .envs(&grants.env)
        .wall_clock(clock.clone());
    wasi.stderr(Stdio::Talk(pipes.clone()));
    if is_step {
        wasi.stdout(Stdio::Talk(pipes.clone()));
    } else {
        wasi.stdin(Stdio::Input(pipes.clone())).stdout(Stdio::Output(pipes.clone()));
    }
    if grants.random {
        let real = || Real { source: wasmtime_wasi::thread_rng(), tracer: tracer.clone() };
        let seed = u128::from_le_bytes(tracer.traced_answer("random.seed", rand_bytes));
        wasi.secure_random(real()).insecure_random(real()).insecure_random_seed(seed);
    } else {
        wasi.secure_random(Seeded::new(seed, "secure"))
            .insecure_random(Seeded::new(seed, "insecure"))
            .insecure_random_seed(Seeded::new(seed, "insecure-seed").next_u128());
    }
    wasi
}

fn rand_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    wasmtime_wasi::thread_rng().fill_bytes(&mut bytes);
    bytes
}

/// Returns when a run that waits in the host should stop.
async fn wait_for_stop(stop: &Stop, host_calls: &AtomicU64) -> RunError {
    let mut call = (host_calls.load(Ordering::Relaxed), Instant::now());
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(reason) = stop.reason() {
            return reason;
        }
        let current = host_calls.load(Ordering::Relaxed);
        if current != call.0 {
            call = (current, Instant::now());
        } else if call.1.elapsed() > stop.limits.host_call {
            return RunError::HostCallTimeout { limit: stop.limits.host_call };
        }
    }
}

/// Runs a program that never waits in the host. The engine gives an asynchronous call its own stack,
/// whose size does not depend on the calling thread.
fn run_on_own_stack<T>(call: impl Future<Output = Result<T, wasmtime::Error>>) -> Result<T, wasmtime::Error> {
    let (mut call, mut context) = (pin!(call), Context::from_waker(Waker::noop()));
    loop {
        // Only the exception collector pauses, and it can continue at once.
        if let Poll::Ready(result) = call.as_mut().poll(&mut context) {
            return result;
        }
    }
}

/// Runs a future on this thread's own event loop, which is created on first use.
fn block_on<T: Send>(future: impl Future<Output = T> + Send) -> Result<T, wasmtime::Error> {
    thread_local! {
        static RUNTIME: RefCell<Option<EventLoop>> = const { RefCell::new(None) };
    }
    if tokio::runtime::Handle::try_current().is_ok() {
        // An event loop cannot run inside another, so a caller that has one pays for a thread.
        return std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, || block_on(future))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
    }
    let kept = RUNTIME.with(RefCell::take);
    let event_loop = match kept {
        Some(event_loop) => event_loop,
        None => EventLoop(Some(tokio::runtime::Builder::new_current_thread().enable_all().build()?)),
    };
    let Some(runtime) = &event_loop.0 else { return Err(wasmtime::Error::msg("no event loop")) };
    let result = runtime.block_on(future);
    RUNTIME.with(|cell| cell.replace(Some(event_loop)));
    Ok(result)
}

/// An event loop that, when dropped, does not wait for abandoned name lookups.
struct EventLoop(Option<tokio::runtime::Runtime>);

impl Drop for EventLoop {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_errors_are_lower_case_words() {
        for (given, plain) in [
            ("bad-input", "bad-input"),
            ("Bad Code!", "bad-code"),
            ("not_found", "not-found"),
            ("e\u{1b}[2J9", "e-2j9"),
            ("", "step-error"),
            ("¡!", "step-error"),
        ] {
            assert_eq!(plain_code(given), plain, "{given:?}");
        }
        assert_eq!(plain_code(&"x".repeat(1000)).len(), MAX_CODE);
    }
}
