//! Embeds the templates of `lobster step new`: every file below `guest-steps/templates`, with symbolic
//! links followed. A directory without `build.sh` is not a template.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Files that building a template leaves.
const LEFTOVERS: [&str; 7] =
    ["target", "node_modules", ".venv", ".packages", "__pycache__", "build", "package-lock.json"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../guest-steps/templates");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut code = String::from("static FILES: &[File] = &[\n");
    for language in sorted(&root)? {
        if language.join("build.sh").is_file() {
            embed(&language, &language, &mut code)?;
        }
    }
    code.push_str("];\n");
    fs::write(Path::new(&std::env::var("OUT_DIR")?).join("templates.rs"), code)?;
    link_at_fixed_address()
}

/// Links the program at a fixed address. A position-independent program has 128,000 places that the
/// loader rewrites at each start, and each process that lobster forks copies those pages. Libraries,
/// heap, stack and compiled WebAssembly keep random addresses (docs/security.md).
fn link_at_fixed_address() -> Result<(), Box<dyn Error>> {
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}"));
    if target("OS")? == "linux" && target("ENV")? == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
    Ok(())
}

fn embed(language: &Path, dir: &Path, code: &mut String) -> Result<(), Box<dyn Error>> {
    for path in sorted(dir)? {
        let name = path.file_name().ok_or("a file without a name")?.to_string_lossy();
        if LEFTOVERS.contains(&&*name) || name.ends_with(".wasm") {
            continue;
        }
        if path.is_dir() {
            embed(language, &path, code)?;
            continue;
        }
        println!("cargo::rerun-if-changed={}", path.display());
        let file = path.strip_prefix(language)?.to_string_lossy().into_owned();
        let language = language.file_name().ok_or("a template without a name")?.to_string_lossy();
        let source = path.canonicalize()?.to_string_lossy().into_owned();
        writeln!(
            code,
            "    File {{ language: {language:?}, path: {file:?}, bytes: include_bytes!({source:?}) }},"
        )?;
    }
    Ok(())
}

fn sorted(dir: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut paths =
        fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}
