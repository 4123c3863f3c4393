//! Errors of wasmtime that have no type of their own.
//!
//! This is the only place where lobster tells errors of wasmtime apart by their text: wasmtime creates
//! them with `bail!` or with a private type, so there is no other way. Its version is pinned exactly,
//! and the tests below provoke each error in wasmtime itself, so a release that changes a text fails
//! them. An unrecognised error is treated as an error of the host, which ends the run.
//! `docs/ARCHITECTURE.md` ("Failures") lists the other places.

/// Subject of such an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untyped {
    /// More instances, memories or tables than the store's limiter allows.
    TooManyInstances,
    /// One host call passes more bytes than the fuel for host calls allows.
    HostCallFuel,
}

const WORDS: [(&str, Untyped); 2] = [
    ("count too high at", Untyped::TooManyInstances),
    ("fuel allocated for hostcalls has been exhausted", Untyped::HostCallFuel),
];

impl Untyped {
    pub(crate) fn from_error(error: &wasmtime::Error) -> Option<Self> {
        // Not the whole chain: its outer parts name functions of the program.
        let text = error.root_cause().to_string();
        WORDS.iter().find(|(words, _)| text.contains(words)).map(|(_, untyped)| *untyped)
    }
}

#[cfg(test)]
mod tests {
    use wasmtime::{Engine, Instance, Module, ResourceLimiter, Store, component};

    use super::*;

    /// Allows this many instances.
    struct Limiter(usize);

    impl ResourceLimiter for Limiter {
        fn memory_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
            Ok(true)
        }

        fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
            Ok(true)
        }

        fn instances(&self) -> usize {
            self.0
        }
    }

    fn limited_store(instances: usize) -> Store<Limiter> {
        let mut store = Store::new(&Engine::default(), Limiter(instances));
        store.limiter(|limiter| limiter);
        store
    }

    #[test]
    fn too_many_instances() {
        let mut store = limited_store(1);
        let module = Module::new(store.engine(), wat::parse_str("(module)").unwrap()).unwrap();
        Instance::new(&mut store, &module, &[]).unwrap();
        let error = Instance::new(&mut store, &module, &[]).unwrap_err();
        assert_eq!(Untyped::from_error(&error), Some(Untyped::TooManyInstances), "{error:#}");
    }

    #[test]
    fn a_host_call_that_carries_too_much() {
        let mut store = limited_store(8);
        store.set_hostcall_fuel(8);
        let text = r#"(component
            (import "f" (func $f (param "text" string)))
            (core module $libc (memory (export "memory") 1))
            (core instance $libc (instantiate $libc))
            (core func $f (canon lower (func $f) (memory $libc "memory")))
            (core module $m
                (import "" "f" (func $f (param i32 i32)))
                (func (export "run") (call $f (i32.const 0) (i32.const 100))))
            (core instance $m (instantiate $m (with "" (instance (export "f" (func $f))))))
            (func (export "run") (canon lift (core func $m "run"))))"#;
        let component = component::Component::new(store.engine(), wat::parse_str(text).unwrap()).unwrap();
        let mut linker = component::Linker::new(store.engine());
        linker.root().func_wrap("f", |_, (_,): (String,)| Ok(())).unwrap();
        let instance = linker.instantiate(&mut store, &component).unwrap();
        let run = instance.get_typed_func::<(), ()>(&mut store, "run").unwrap();
        let error = run.call(&mut store, ()).unwrap_err();
        assert_eq!(Untyped::from_error(&error), Some(Untyped::HostCallFuel), "{error:#}");
    }
}
