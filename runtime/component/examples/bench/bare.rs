//! The engine alone: the cost of a call before lobster adds anything.

use wasmtime::component::{
    Component, ComponentType, InstancePre, Lift, Linker, Lower, Resource, ResourceType,
};
use wasmtime::{Config, Engine, Store, StoreContextMut};

pub(crate) struct Bare {
    engine: Engine,
    pre: InstancePre<Io>,
}

/// Input and output of a call.
#[derive(Default)]
pub(crate) struct Io {
    input: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) items: Vec<String>,
}

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct StreamError {
    code: String,
    message: String,
}

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct StepError {
    code: String,
    message: String,
    retryable: bool,
}

struct Input;
struct Output;

impl Bare {
    pub(crate) fn new(component: &[u8]) -> Self {
        let mut config = Config::new();
        config.wasm_component_model(true).concurrency_support(false);
        let engine = Engine::new(&config).expect("an engine");
        let component = Component::new(&engine, component).expect("compiles");
        let mut linker = Linker::<Io>::new(&engine);
        // The world gives the resources of `io` names of its own as well.
        let mut root = linker.root();
        root.resource("input", ResourceType::host::<Input>(), |_, _| Ok(())).expect("input");
        root.resource("output", ResourceType::host::<Output>(), |_, _| Ok(())).expect("output");
        let mut io = linker.instance("lobster:step/io@0.1.0").expect("io");
        io.resource("input", ResourceType::host::<Input>(), |_, _| Ok(())).expect("input");
        io.resource("output", ResourceType::host::<Output>(), |_, _| Ok(())).expect("output");
        type Called<T> = wasmtime::Result<(Result<T, StreamError>,)>;
        io.func_wrap(
            "[method]input.read",
            |mut store: StoreContextMut<'_, Io>, (_, max): (Resource<Input>, u32)| -> Called<Vec<u8>> {
                let input = &mut store.data_mut().input;
                let rest = input.split_off(input.len().min(max as usize));
                Ok((Ok(std::mem::replace(input, rest)),))
            },
        )
        .expect("read");
        io.func_wrap("[method]input.payload", |_: StoreContextMut<'_, Io>, (_,): (Resource<Input>,)| {
            Ok((Payload::Bytes,))
        })
        .expect("payload");
        io.func_wrap(
            "[method]output.write",
            |mut store: StoreContextMut<'_, Io>, (_, bytes): (Resource<Output>, Vec<u8>)| -> Called<()> {
                store.data_mut().bytes.extend(bytes);
                Ok((Ok(()),))
            },
        )
        .expect("write");
        io.func_wrap(
            "[method]output.emit",
            |mut store: StoreContextMut<'_, Io>, (_, items): (Resource<Output>, Vec<String>)| -> Called<()> {
                store.data_mut().items.extend(items);
                Ok((Ok(()),))
            },
        )
        .expect("emit");
        linker.define_unknown_imports_as_traps(&component).expect("traps");
        let pre = linker.instantiate_pre(&component).expect("links");
        Self { engine, pre }
    }

    pub(crate) fn run(&self, args: &str, input: &[u8]) -> Io {
        let mut store = Store::new(&self.engine, Io { input: input.to_vec(), ..Io::default() });
        let instance = self.pre.instantiate(&mut store).expect("instantiates");
        type Params<'a> = (&'a str, Resource<Input>, Resource<Output>);
        let run = instance
            .get_typed_func::<Params<'_>, (Result<(), StepError>,)>(&mut store, "run")
            .expect("exports run");
        let params = (args, Resource::new_own(0), Resource::new_own(1));
        let (result,) = run.call(&mut store, params).expect("runs");
        assert!(result.is_ok(), "the step failed");
        store.into_data()
    }
}

#[derive(Clone, Copy, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the contract has them")]
enum Payload {
    #[component(name = "empty")]
    Empty,
    #[component(name = "bytes")]
    Bytes,
    #[component(name = "items")]
    Items,
}
