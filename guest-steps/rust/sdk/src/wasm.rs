//! The contract's bindings, and the adapter between them and [`Step`].

use std::marker::PhantomData;

use schemars::generate::Contract;

use crate::input::{Kind, Source};
use crate::output::Sink;
use crate::{Capability, Input, Output, Payload, Step, StepError};

/// Generated from the contract; its names would clash with the SDK's own.
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "step",
        pub_export_macro: true,
        default_bindings_module: "lobster_step::wasm::bindings",
    });
}

use bindings::Guest;
use bindings::lobster::step::{host, io, types};

/// Makes a component of a step.
pub struct Adapter<S>(PhantomData<S>);

impl<S: Step> Guest for Adapter<S> {
    fn describe() -> types::Description {
        describe::<S>()
    }

    fn run(args: String, input: io::Input, output: io::Output) -> Result<(), types::StepError> {
        // A panic would otherwise be a bare trap: a component without WASI has
        // no standard error to leave its text on.
        std::panic::set_hook(Box::new(|panic| {
            host::log(host::Level::Error, &panic.to_string(), "");
        }));
        let mut input = Input::new(Box::new(HostInput(input)));
        let mut output = Output::new(Box::new(HostOutput(output)));
        crate::run::<S>(&args, &mut input, &mut output).map_err(|error| types::StepError {
            code: error.code,
            message: error.message,
            retryable: error.retryable,
        })
    }
}

fn describe<S: Step>() -> types::Description {
    let said = S::describe();
    let schema = |schema: Option<schemars::Schema>| schema.map(|schema| schema.to_value().to_string());
    types::Description {
        name: said.name,
        version: said.version,
        summary: said.summary,
        args_schema: schemars::schema_for!(S::Args).to_value().to_string(),
        input_schema: schema(S::In::schema(Contract::Deserialize)),
        output_schema: schema(S::Out::schema(Contract::Serialize)),
        wants: said
            .wants
            .into_iter()
            .map(|want| types::Want {
                capability: match want.capability {
                    Capability::Read(path) => types::Capability::Read(path),
                    Capability::Write(path) => types::Capability::Write(path),
                    Capability::Env(name) => types::Capability::Env(name),
                    Capability::Net(peer) => types::Capability::Net(peer),
                    Capability::Clock => types::Capability::Clock,
                    Capability::Random => types::Capability::Random,
                },
                reason: want.reason,
                optional: want.optional,
            })
            .collect(),
        limits: types::SuggestedLimits {
            fuel: said.fuel,
            memory: said.memory,
            output: said.output,
            timeout_ms: said.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        },
        examples: said
            .examples
            .into_iter()
            .map(|example| types::Example {
                summary: example.summary,
                args: example.args.to_string(),
                input: example.input,
                output: example.output,
            })
            .collect(),
    }
}

struct HostInput(io::Input);

impl Source for HostInput {
    fn kind(&self) -> Kind {
        match self.0.payload() {
            io::Payload::Empty => Kind::Empty,
            io::Payload::Bytes => Kind::Bytes,
            io::Payload::Items => Kind::Items,
        }
    }

    fn read(&mut self, max: u32) -> Result<Vec<u8>, StepError> {
        self.0.read(max).map_err(stream_error)
    }

    fn next(&mut self, max: u32) -> Result<Vec<String>, StepError> {
        self.0.next(max).map_err(stream_error)
    }
}

struct HostOutput(io::Output);

impl Sink for HostOutput {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StepError> {
        self.0.write(bytes).map_err(stream_error)
    }

    fn emit(&mut self, items: &[String]) -> Result<(), StepError> {
        self.0.emit(items).map_err(stream_error)
    }
}

fn stream_error(error: io::StreamError) -> StepError {
    StepError::new(error.code, error.message)
}

/// The host functions behind [`crate::host`].
pub(crate) mod real {
    use super::bindings::lobster::step::host::{self, BlobError, BlobReader, BlobWriter};
    use crate::StepError;
    use crate::host::Level;

    /// Bytes of a blob moved at once.
    const BLOB_CHUNK: u32 = 256 * 1024;

    pub(crate) fn log(level: Level, message: &str, fields: &str) {
        let level = match level {
            Level::Trace => host::Level::Trace,
            Level::Debug => host::Level::Debug,
            Level::Info => host::Level::Info,
            Level::Warn => host::Level::Warn,
            Level::Error => host::Level::Error,
        };
        host::log(level, message, fields);
    }

    pub(crate) fn progress(done: u64, total: Option<u64>, message: Option<&str>) {
        host::progress(done, total, message);
    }

    pub(crate) fn state_get(key: &str) -> Option<String> {
        host::state_get(key)
    }

    pub(crate) fn state_set(key: &str, value: &str) {
        host::state_set(key, value);
    }

    pub(crate) fn blob(digest: &str) -> Result<Vec<u8>, StepError> {
        let reader = BlobReader::open(digest).map_err(blob_error)?;
        let mut all = Vec::new();
        loop {
            let more = reader.read(BLOB_CHUNK).map_err(blob_error)?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    pub(crate) fn put_blob(bytes: &[u8]) -> Result<String, StepError> {
        let writer = BlobWriter::new();
        for chunk in bytes.chunks(BLOB_CHUNK as usize) {
            writer.write(chunk).map_err(blob_error)?;
        }
        BlobWriter::finish(writer).map_err(blob_error)
    }

    fn blob_error(error: BlobError) -> StepError {
        StepError::new(error.code, error.message)
    }
}
