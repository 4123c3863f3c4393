//! Small programs in WebAssembly text, and a function that runs them.

use wit_component::StringEncoding;
use wit_parser::Resolve;

/// A core module for the step world: wit-bindgen's output, written by hand. `body` is the body of
/// `run(args, args-len, input, output) -> result area`; it ends by calling `$ok` or `$fail`. The
/// fixture uses the memory below 4096.
pub(crate) fn step(body: &str) -> Vec<u8> {
    step_with("", body)
}

/// Like [`step`], with additional fields of the module in front.
pub(crate) fn step_with(fields: &str, body: &str) -> Vec<u8> {
    described_step("{}", None, None, fields, body)
}

/// A step with these schemas.
pub(crate) fn described_step(
    args: &str,
    input: Option<&str>,
    output: Option<&str>,
    fields: &str,
    body: &str,
) -> Vec<u8> {
    let (input, output) = (input.unwrap_or(""), output.unwrap_or(""));
    let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let text = format!("fixture0.1.0One line.{args}{input}{output}");
    // The strings of the description follow one another from 1024.
    let mut at = 1024;
    let mut next = |length: usize| {
        let start = at;
        at += length;
        (start, length)
    };
    let (name, version, summary) = (next(7), next(5), next(9));
    let (args, input, output) = (next(args.len()), next(input.len()), next(output.len()));
    let pair = |at: usize, (start, length): (usize, usize)| {
        format!(
            "(i32.store (i32.const {at}) (i32.const {start})) (i32.store (i32.const {}) (i32.const {length}))",
            at + 4
        )
    };
    let option = |at: usize, text: (usize, usize)| {
        if text.1 == 0 {
            return String::new();
        }
        format!("(i32.store8 (i32.const {at}) (i32.const 1)) {}", pair(at + 4, text))
    };
    let (name, version, summary) = (pair(512, name), pair(520, version), pair(528, summary));
    let (args, input, output) = (pair(536, args), option(544, input), option(556, output));
    let wat = format!(
        r#"(module
        (import "lobster:step/io@0.1.0" "[method]output.write" (func $write (param i32 i32 i32 i32)))
        (import "lobster:step/io@0.1.0" "[method]output.emit" (func $emit (param i32 i32 i32 i32)))
        (import "lobster:step/io@0.1.0" "[method]input.read" (func $read (param i32 i32 i32)))
        (import "lobster:step/io@0.1.0" "[method]input.next" (func $next (param i32 i32 i32)))
        (import "lobster:step/host@0.1.0" "log" (func $log (param i32 i32 i32 i32 i32)))
        (memory (export "memory") 2)
        (data (i32.const 1024) "{data}")
        (global $heap (mut i32) (i32.const 8192))
        (func (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
            (global.set $heap (i32.add (local.get $at) (local.get $size)))
            (block $fits
                (br_if $fits (i32.le_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536))))
                (br_if $fits (i32.ne (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1))) (i32.const -1)))
                unreachable)
            (local.get $at))
        (func (export "describe") (result i32)
            {name} {version} {summary} {args} {input} {output}
            (i32.const 512))
        (func $ok (result i32) (i32.store8 (i32.const 16) (i32.const 0)) (i32.const 16))
        (func $fail (param $code i32) (param $code_len i32) (result i32)
            (i32.store8 (i32.const 16) (i32.const 1))
            (i32.store (i32.const 20) (local.get $code)) (i32.store (i32.const 24) (local.get $code_len))
            (i32.store (i32.const 28) (local.get $code)) (i32.store (i32.const 32) (local.get $code_len))
            (i32.store8 (i32.const 36) (i32.const 1))
            (i32.const 16))
        {fields}
        (func (export "run") (param $args i32) (param $len i32) (param $input i32) (param $output i32) (result i32)
            (local $n i32) (local $p i32)
            {body}))"#,
        data = escape(&text),
    );
    let mut module = wat::parse_str(&wat).unwrap_or_else(|error| panic!("{error}\n{wat}"));
    let mut resolve = Resolve::default();
    let wit = include_str!("../../../../wit/step.wit");
    let package = resolve.push_source("step.wit", wit).expect("the contract parses");
    let world = resolve.select_world(&[package], Some("step")).expect("the world exists");
    wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)
        .expect("the world fits the module");
    module
}

/// Writes its arguments to its output.
pub(crate) const ECHO_ARGS: &str =
    "(call $write (local.get $output) (local.get $args) (local.get $len) (i32.const 64)) (call $ok)";

/// Copies its input to its output, 4 KiB at a time.
pub(crate) const COPY: &str = "
    (block $done (loop $more
        (call $read (local.get $input) (i32.const 4096) (i32.const 64))
        (br_if $done (i32.load8_u (i32.const 64)))
        (br_if $done (i32.eqz (i32.load (i32.const 72))))
        (call $write (local.get $output) (i32.load (i32.const 68)) (i32.load (i32.const 72)) (i32.const 96))
        (br_if $done (i32.load8_u (i32.const 96)))
        (global.set $heap (i32.const 8192))
        (br $more)))
    (call $ok)";

/// Takes items and emits the same items in the same portions.
pub(crate) const FORWARD: &str = "
    (block $done (loop $more
        (call $next (local.get $input) (i32.const 100) (i32.const 64))
        (br_if $done (i32.load8_u (i32.const 64)))
        (br_if $done (i32.eqz (i32.load (i32.const 72))))
        (call $emit (local.get $output) (i32.load (i32.const 68)) (i32.load (i32.const 72)) (i32.const 96))
        (br_if $done (i32.load8_u (i32.const 96)))
        (global.set $heap (i32.const 8192))
        (br $more)))
    (call $ok)";

/// A preview-1 command module: its imports as they are used, and `$say` for stdout.
pub(crate) fn command(fields: &str, start: &str) -> Vec<u8> {
    let wat = format!(
        r#"(module
        (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
        (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "path_open"
            (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "fd_readdir" (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
        (memory (export "memory") 2)
        (func $put (param $fd i32) (param $at i32) (param $len i32)
            (i32.store (i32.const 0) (local.get $at)) (i32.store (i32.const 4) (local.get $len))
            (drop (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
        {fields}
        (func (export "_start") (local $n i32) (local $fd i32)
            {start}))"#
    );
    wat::parse_str(&wat).unwrap_or_else(|error| panic!("{error}\n{wat}"))
}

/// A preview-1 command as a `wasi:cli/command` component, made with the official adapter.
pub(crate) fn as_component(command: &[u8]) -> Vec<u8> {
    use wasi_preview1_component_adapter_provider as adapter;
    wit_component::ComponentEncoder::default()
        .module(command)
        .and_then(|encoder| {
            encoder
                .adapter(
                    adapter::WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME,
                    adapter::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
                )?
                .encode()
        })
        .expect("the adapter fits")
}
