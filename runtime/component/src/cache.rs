//! Compiled code on disk: one directory per compiler setting, which holds one file of machine code per
//! component and a record of the code's digest.
//!
//! Machine code runs with the rights of this process. It is therefore loaded only from a directory that
//! only the user can write, only from files that this crate wrote, and only while the bytes match the
//! recorded digest. They are hashed once after each start of the machine and after each change.

mod eviction;
mod seen;

use std::fs::{DirBuilder, File, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lobster_base::regular_file;
use wasmtime::component::Component;
use wasmtime::{Module, Precompiled};

use crate::compiler::{CompileLimits, Patience};
use crate::{Digest, LoadError};
use seen::SeenMark;

pub use eviction::{CodeLimits, CodeUse, MAX_CODE};
pub(crate) use eviction::{prune, usage};

/// Name prefix of an incomplete file.
const DRAFT: &str = ".new-";

/// Changes whenever this crate, rather than the compiler, starts to turn the same program into other
/// code, for example with another adapter.
const HOW_COMPILED: &str = "lobster-component 0.1, modules as they are, adapter 48.0.8";

/// A program as machine code.
pub(crate) enum Compiled {
    Component(Component),
    Module(Module),
}

pub(crate) struct CodeCache {
    /// Parent of the directories of all compilers.
    root: PathBuf,
    /// Directory of this compiler.
    dir: PathBuf,
}

impl CodeCache {
    /// Opens the cache in `dir`. `None` if there can be no cache; the run then takes longer but does
    /// not fail.
    pub(crate) fn open(dir: &Path, engine: &wasmtime::Engine) -> Result<Option<Self>, LoadError> {
        // A different hash, for example after an upgrade of Rust, only causes a new compilation.
        let mut setting = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut setting);
        HOW_COMPILED.hash(&mut setting);
        let own = dir.join(format!("{:016x}", setting.finish()));
        for dir in [dir, &own] {
            match private_dir(dir) {
                Ok(()) => {}
                Err(Refused::Absent(error)) => {
                    tracing::warn!(dir = %dir.display(), %error, "no code cache is available; everything is compiled");
                    return Ok(None);
                }
                Err(Refused::Unsafe(why)) => {
                    return Err(LoadError::CacheUnsafe { path: dir.to_owned(), why });
                }
            }
        }
        Ok(Some(Self { root: dir.to_owned(), dir: own }))
    }

    /// Returns the component from its cached code, or has `compile` compile it and caches the result. A
    /// cache that cannot be written costs time but does not fail the run.
    pub(crate) fn load_or_compile<E: From<LoadError>>(
        &self,
        engine: &wasmtime::Engine,
        digest: Digest,
        patience: &Patience,
        compile: impl FnOnce() -> Result<Vec<u8>, E>,
    ) -> Result<Compiled, E> {
        if let Some(component) = self.read_code(engine, digest) {
            eviction::note_use(&self.program_file(digest, "blake3"));
            return Ok(component);
        }
        let lock = match self.lock_program(digest, patience)? {
            Ok(lock) => Some(lock),
            Err(error) => {
                tracing::warn!(dir = %self.dir.display(), %error, "the code cache cannot be locked");
                None
            }
        };
        // Another process may have compiled it while this one waited.
        if let Some(component) = self.read_code(engine, digest) {
            return Ok(component);
        }
        if let Some(refusal) = self.recorded_refusal(digest, &patience.limits).filter(|_| !patience.anew) {
            return Err(refusal.into());
        }
        let code = compile()?;
        let stored = self.write_code(digest, &code).inspect_err(|error| {
            tracing::warn!(dir = %self.dir.display(), %error, "compiled code is not cached");
        });
        let component = stored.ok().and_then(|()| self.read_code(engine, digest));
        // The process that adds code also makes room; its own code is the newest and is protected by
        // the lock.
        prune(&self.root, &CodeLimits::default());
        drop(lock);
        component.map_or_else(|| Ok(from_fresh_code(engine, &code)?), Ok)
    }

    /// Records that a program exceeded the compile limits, so that the next start fails at once.
    pub(crate) fn note_refusal(&self, digest: Digest, error: &LoadError) {
        if matches!(error, LoadError::CompilerMemory { .. } | LoadError::Timeout { .. }) {
            // Without the note, the program is compiled again.
            let _ = self.write_atomically(
                &self.program_file(digest, "refused"),
                &serde_json::to_vec(error).unwrap_or_default(),
            );
        }
    }

    /// Error of an earlier compilation, unless the program may now take more.
    fn recorded_refusal(&self, digest: Digest, now: &CompileLimits) -> Option<LoadError> {
        let text = regular_file::read_own_text(&self.program_file(digest, "refused")).ok()?;
        serde_json::from_str(&text).ok().filter(|error| match error {
            LoadError::CompilerMemory { limit } => now.memory <= *limit,
            LoadError::Timeout { limit } => now.time <= *limit,
            _ => false,
        })
    }

    /// A file of a program: `cwasm`, `blake3`, `seen`, `refused` or `lock`.
    fn program_file(&self, digest: Digest, extension: &str) -> PathBuf {
        self.dir.join(format!("{}.{extension}", digest.to_hex()))
    }

    /// Waits for another process that compiles the same program, as long as there is time.
    fn lock_program(&self, digest: Digest, patience: &Patience) -> Result<io::Result<File>, LoadError> {
        let path = self.program_file(digest, "lock");
        let mut options = File::options();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = match regular_file::open_own(&mut options, &path) {
            Ok(file) => file,
            Err(error) => return Ok(Err(error)),
        };
        let locked = patience.wait_until(|| match file.try_lock() {
            Ok(()) => Some(Ok(())),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(error)) => Some(Err(error)),
        })?;
        Ok(locked.map(|()| file))
    }

    pub(crate) fn read_code(&self, engine: &wasmtime::Engine, digest: Digest) -> Option<Compiled> {
        let path = self.program_file(digest, "cwasm");
        let recorded = regular_file::read_own_text(&self.program_file(digest, "blake3")).ok()?;
        // From here on, the code is opened by name.
        regular_file::open_own(File::options().read(true), &path).ok()?;
        // Taken before the bytes are read, so that a change in between is noticed.
        let (mark, seen) = (SeenMark::for_file(&path), self.program_file(digest, "seen"));
        if !mark.as_ref().is_some_and(|mark| mark.is_noted(&seen)) {
            let mut hasher = blake3::Hasher::new();
            hasher.update_mmap(&path).ok()?;
            if hasher.finalize().to_hex().as_str() != recorded {
                tracing::warn!(path = %path.display(), "cached code does not have its recorded digest; compiling again");
                return None;
            }
            // Without the note, the code is checked again.
            if let Some(Err(error)) = mark.map(|mark| self.write_atomically(&seen, mark.as_bytes())) {
                tracing::debug!(path = %seen.display(), %error, "cannot record the check of compiled code");
            }
        }
        let kind = wasmtime::Engine::detect_precompiled_file(&path).ok()??;
        #[expect(unsafe_code, reason = "loading our own machine code is what the cache is for")]
        // SAFETY: the file is the output of `precompile_component` or `precompile_module`: only this
        // user can write to the directory, files in it are only replaced by rename, and the digest
        // recorded when this crate wrote it still matches, or matched when the file last changed.
        let loaded = unsafe {
            match kind {
                Precompiled::Component => Component::deserialize_file(engine, &path).map(Compiled::Component),
                Precompiled::Module => Module::deserialize_file(engine, &path).map(Compiled::Module),
            }
        };
        loaded
            .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "cached code is unusable"))
            .ok()
    }

    /// Writes the code first and the record last: a record never exists without its code, and code
    /// without a record is not read.
    fn write_code(&self, digest: Digest, code: &[u8]) -> io::Result<()> {
        self.write_atomically(&self.program_file(digest, "cwasm"), code)?;
        let _ = std::fs::remove_file(self.program_file(digest, "refused"));
        self.write_atomically(&self.program_file(digest, "blake3"), blake3::hash(code).to_hex().as_bytes())
    }

    /// Writes a file of this cache completely or not at all.
    fn write_atomically(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(DRAFT).tempfile_in(&self.dir)?;
        file.write_all(bytes)?;
        file.persist(path)?;
        Ok(())
    }
}

/// Loads code that this process has just compiled.
pub(crate) fn from_fresh_code(engine: &wasmtime::Engine, code: &[u8]) -> Result<Compiled, LoadError> {
    #[expect(unsafe_code, reason = "the only way to load compiled code")]
    // SAFETY: `code` came from `precompile_component` or `precompile_module` of an engine with the same
    // configuration, in this process or in the compiler process that it started.
    let loaded = unsafe {
        match wasmtime::Engine::detect_precompiled(code) {
            Some(Precompiled::Module) => Module::deserialize(engine, code).map(Compiled::Module),
            Some(Precompiled::Component) | None => {
                Component::deserialize(engine, code).map(Compiled::Component)
            }
        }
    };
    loaded.map_err(|error| LoadError::Engine { message: format!("{error:#}") })
}

/// Reason why a directory cannot hold the cache.
enum Refused {
    /// The directory does not exist and cannot be created.
    Absent(io::Error),
    /// The directory exists, but another user could put code into it.
    Unsafe(String),
}

/// Creates `dir` for this user alone, or checks that only this user can use it.
fn private_dir(dir: &Path) -> Result<(), Refused> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    let meta = match std::fs::symlink_metadata(dir) {
        Ok(meta) => meta,
        Err(error) => return Err(Refused::Absent(made.err().unwrap_or(error))),
    };
    if !meta.is_dir() {
        return Err(Refused::Unsafe("it is not a directory but a link or a file".to_owned()));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(Refused::Unsafe(format!("it belongs to user {}", meta.uid())));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(Refused::Unsafe(format!("others may write to it (mode {:o})", meta.mode() & 0o7777)));
    }
    Ok(())
}
