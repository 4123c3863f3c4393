//! Executors that are other programs: they read requests as lines of JSON on stdin and
//! answer with lines of JSON on stdout. `docs/executor.md` describes the protocol.

mod client;
mod connection;
mod message;
mod worker;

pub use client::StdioExecutor;
pub use connection::{ExecutorProgram, HELLO_TIME};
pub use message::{CHUNK, MAX_LINE, PROTOCOL, Reply, Request};
pub use worker::{WorkerError, WorkerServices};
