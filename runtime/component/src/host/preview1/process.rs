//! Command line, environment, clocks, randomness, waiting and exit.

use std::time::{Duration, Instant};

use rand::Rng;
use wasmtime::{Caller, Linker};
use wasmtime_wasi::I32Exit;

use super::{Done, Mem, NOT_SOCKET, NOT_SUPPORTED, error_number, run_call, to_nanos};
use crate::RunError;
use crate::host::clocks::{Clock, RESOLUTION};
use crate::host::filesystem::{ErrorCode, FsError};
use crate::kind::PREVIEW1;
use crate::state::State;

/// Interval at which a real wait checks if it has to stop.
const LOOK: Duration = Duration::from_millis(5);

/// Random bytes that are generated at once.
const MAX_RANDOM: usize = 1 << 20;

/// Most events that one call waits for: each uses memory during the wait.
const MAX_EVENTS: u32 = 10_000;

pub(super) fn link_functions(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "args_sizes_get", |mut c: C<'_>, count: u32, size: u32| {
        run_call(&mut c, |mem, state| put_sizes(mem, &state.preview1.args, count, size))
    })?;
    l.func_wrap(PREVIEW1, "args_get", |mut c: C<'_>, table: u32, text: u32| {
        run_call(&mut c, |mem, state| put_strings(mem, &state.preview1.args, table, text))
    })?;
    l.func_wrap(PREVIEW1, "environ_sizes_get", |mut c: C<'_>, count: u32, size: u32| {
        run_call(&mut c, |mem, state| put_sizes(mem, &environment_strings(&state.preview1.env), count, size))
    })?;
    l.func_wrap(PREVIEW1, "environ_get", |mut c: C<'_>, table: u32, text: u32| {
        run_call(&mut c, |mem, state| {
            put_strings(mem, &environment_strings(&state.preview1.env), table, text)
        })
    })?;
    l.func_wrap(PREVIEW1, "clock_res_get", |mut c: C<'_>, _: u32, at: u32| {
        run_call(&mut c, |mem, _| mem.put_u64(at, RESOLUTION))
    })?;
    l.func_wrap(PREVIEW1, "clock_time_get", |mut c: C<'_>, id: u32, _: u64, at: u32| {
        run_call(&mut c, |mem, state| mem.put_u64(at, clock_time(&state.clock, id)?))
    })?;
    l.func_wrap(PREVIEW1, "random_get", |mut c: C<'_>, at: u32, len: u32| {
        run_call(&mut c, |mem, state| {
            mem.get(at, len)?;
            for from in (0..len).step_by(MAX_RANDOM) {
                state.check_stop()?;
                let mut bytes = vec![0; MAX_RANDOM.min((len - from) as usize)];
                state.preview1.random.fill_bytes(&mut bytes);
                state.pipes.count_moved(bytes.len());
                mem.put_bytes(at + from, &bytes)?;
            }
            Ok(())
        })
    })?;
    l.func_wrap(PREVIEW1, "poll_oneoff", |mut c: C<'_>, from: u32, to: u32, count: u32, got: u32| {
        run_call(&mut c, |mem, state| poll(mem, state, from, to, count, got))
    })?;
    l.func_wrap(PREVIEW1, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(I32Exit(code)))
    })?;
    l.func_wrap(PREVIEW1, "proc_raise", |_: i32| NOT_SUPPORTED)?;
    l.func_wrap(PREVIEW1, "sched_yield", || 0)?;
    // There are no sockets: no open descriptor is one.
    l.func_wrap(PREVIEW1, "sock_accept", |mut c: C<'_>, fd: u32, _: i32, _: i32| no_socket(&mut c, fd))?;
    l.func_wrap(PREVIEW1, "sock_recv", |mut c: C<'_>, fd: u32, _: i32, _: i32, _: i32, _: i32, _: i32| {
        no_socket(&mut c, fd)
    })?;
    l.func_wrap(PREVIEW1, "sock_send", |mut c: C<'_>, fd: u32, _: i32, _: i32, _: i32, _: i32| {
        no_socket(&mut c, fd)
    })?;
    l.func_wrap(PREVIEW1, "sock_shutdown", |mut c: C<'_>, fd: u32, _: i32| no_socket(&mut c, fd))?;
    Ok(())
}

fn no_socket(caller: &mut Caller<'_, State>, fd: u32) -> i32 {
    match caller.data_mut().preview1.get_fd(fd) {
        Ok(_) => NOT_SOCKET,
        Err(_) => error_number(ErrorCode::BadDescriptor),
    }
}

fn environment_strings(env: &[(String, String)]) -> Vec<String> {
    env.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn put_sizes(mem: &mut Mem<'_>, texts: &[String], count: u32, size: u32) -> Done {
    mem.put_u32(count, texts.len())?;
    mem.put_u32(size, texts.iter().map(|text| text.len() + 1).sum())
}

fn put_strings(mem: &mut Mem<'_>, texts: &[String], table: u32, text: u32) -> Done {
    let (mut slot, mut at) = (table, text);
    for text in texts {
        mem.put_u32(slot, at as usize)?;
        mem.put_bytes(at, text.as_bytes())?;
        let end = at.wrapping_add(u32::try_from(text.len()).map_err(|_| ErrorCode::Overflow)?);
        mem.put_bytes(end, &[0])?;
        (slot, at) = (slot.wrapping_add(4), end.wrapping_add(1));
    }
    Ok(())
}

fn clock_time(clock: &Clock, id: u32) -> Result<u64, FsError> {
    match id {
        0 => Ok(to_nanos(clock.wall_time())),
        // CPU time would reveal details of the machine, so the program gets the monotonic clock
        // instead.
        1..=3 => Ok(clock.monotonic_nanos()),
        _ => Err(ErrorCode::Invalid.into()),
    }
}

/// Streams and files are always ready, so only a clock can cause a wait.
fn poll(mem: &mut Mem<'_>, state: &mut State, from: u32, to: u32, count: u32, got: u32) -> Done {
    if count > MAX_EVENTS {
        return Err(ErrorCode::Invalid.into());
    }
    mem.get(from, count.checked_mul(48).ok_or(ErrorCode::Invalid)?)?;
    let mut ready = Vec::new();
    let mut timers = Vec::new();
    for index in 0..count {
        let at = from + index * 48;
        let (user, tag) = (mem.get_u64(at)?, mem.get(at + 8, 1)?[0]);
        if tag != 0 {
            let known = state.preview1.get_fd(mem.get_u32(at + 16)?).is_ok();
            ready.push((user, tag, if known { 0 } else { error_number(ErrorCode::BadDescriptor) }));
            continue;
        }
        let (id, wanted) = (mem.get_u32(at + 16)?, mem.get_u64(at + 24)?);
        let absolute = mem.get(at + 40, 1)?[0] & 1 == 1;
        let left = if absolute { wanted.saturating_sub(clock_time(&state.clock, id)?) } else { wanted };
        timers.push((left, user));
    }
    if ready.is_empty() {
        let first = timers.iter().map(|(left, _)| *left).min().ok_or(ErrorCode::Invalid)?;
        wait_or_stop(state, Duration::from_nanos(first))?;
        ready.extend(timers.iter().filter(|(left, _)| *left == first).map(|(_, user)| (*user, 0, 0)));
    }
    let mut at = to;
    for (user, tag, error) in &ready {
        let mut event = [0; 32];
        event[..8].copy_from_slice(&user.to_le_bytes());
        event[8..10].copy_from_slice(&u16::try_from(*error).unwrap_or(0).to_le_bytes());
        event[10] = *tag;
        event[16] = u8::from(*tag != 0);
        mem.put_bytes(at, &event)?;
        at = at.wrapping_add(32);
    }
    mem.put_u32(got, ready.len())
}

fn wait_or_stop(state: &State, duration: Duration) -> Done {
    if state.clock.try_skip(to_nanos(duration)) {
        return Ok(());
    }
    let start = Instant::now();
    let limit = state.stop.limits.host_call;
    while let Some(left) = duration.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        let stop = state
            .stop
            .reason()
            .or_else(|| (start.elapsed() > limit).then_some(RunError::HostCallTimeout { limit }));
        if let Some(reason) = stop {
            return Err(FsError::Trap(wasmtime::Error::new(reason)));
        }
        std::thread::sleep(left.min(LOOK));
    }
    Ok(())
}
