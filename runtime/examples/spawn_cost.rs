//! What a native step costs to start, as ratios to a plain `posix_spawn`.
//!
//! `cargo run --release -p lobster-runtime --example spawn_cost [rounds]`
//!
//! All ways take turns in every round, so that a busy machine is equally
//! unfair to each; the figures are the minimum, the 10th percentile and the
//! median of one run of `/bin/true`.

use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use lobster_runtime::cancel::CancelToken;
use lobster_runtime::sandbox::{
    Confinement, JailSpec, OutputSinks, ProcessLimits, Sandbox, SandboxConfig, SpawnRequest, Stdin,
};

type Way<'a> = (&'a str, Box<dyn Fn() -> Result<(), String> + 'a>);

struct Ignore;

/// Counts what a process prints at full speed.
struct Count(u64);

impl OutputSinks for Count {
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.0 += chunk.len() as u64;
        Ok(())
    }
    fn write_stderr(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.write_stdout(chunk)
    }
}

impl OutputSinks for Ignore {
    fn write_stdout(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn write_stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

fn plain() -> Result<(), String> {
    Command::new("/bin/true")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())
        .map(drop)
}

fn sandboxed(sandbox: &Sandbox, confinement: &Confinement, limits: &ProcessLimits) -> Result<(), String> {
    let request = SpawnRequest {
        argv: vec!["/bin/true".into()],
        env: Vec::new(),
        cwd: "/".into(),
        stdin: Stdin::Empty,
        limits: limits.clone(),
        confinement: confinement.clone(),
        upstream: None,
    };
    sandbox.run(&request, &mut Ignore, &CancelToken::new()).map_err(|error| error.to_string()).map(drop)
}

/// Bytes of this process that are resident, from `/proc/self/statm`.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn flood(sandbox: &Sandbox) -> Result<(), String> {
    let seconds = 10;
    let request = SpawnRequest {
        argv: vec!["yes".into()],
        env: Vec::new(),
        cwd: "/".into(),
        stdin: Stdin::Empty,
        limits: ProcessLimits { wall: Some(Duration::from_secs(seconds)), ..ProcessLimits::default() },
        confinement: Confinement::None,
        upstream: None,
    };
    let before = resident();
    let mut count = Count(0);
    sandbox.run(&request, &mut count, &CancelToken::new()).map_err(|error| error.to_string())?;
    let grown = resident().saturating_sub(before);
    println!(
        "flood for {seconds} s: {} MB/s, memory grew by {} KiB",
        count.0 / 1_000_000 / seconds,
        grown / 1024
    );
    Ok(())
}

fn measure(rounds: usize, title: &str, ways: &[Way<'_>]) -> Result<(), String> {
    let mut times = vec![Vec::with_capacity(rounds); ways.len()];
    for round in 0..rounds + 3 {
        for (way, times) in ways.iter().zip(&mut times) {
            let begin = Instant::now();
            way.1()?;
            // The first rounds start the helper and warm the caches.
            if round >= 3 {
                times.push(begin.elapsed());
            }
        }
    }
    println!("{title}");
    let mut base = [Duration::ZERO; 3];
    for (index, ((name, _), times)) in ways.iter().zip(&mut times).enumerate() {
        times.sort();
        let figures = [times[0], times[times.len() / 10], times[times.len() / 2]];
        if index == 0 {
            base = figures;
        }
        let cells: Vec<String> = figures
            .iter()
            .zip(&base)
            .map(|(time, base)| {
                format!(
                    "{:7.3} ms ({:4.2}x)",
                    time.as_secs_f64() * 1e3,
                    time.as_secs_f64() / base.as_secs_f64()
                )
            })
            .collect();
        println!("  {name:<20} min {}  p10 {}  median {}", cells[0], cells[1], cells[2]);
    }
    Ok(())
}

/// A workspace with this many files, 10 in a directory.
fn workspace(files: usize) -> io::Result<tempfile::TempDir> {
    let dir = tempfile::tempdir_in("/var/tmp")?;
    for directory in 0..files / 10 {
        let path = dir.path().join(format!("package-{}/part-{directory}", directory % 100));
        std::fs::create_dir_all(&path)?;
        for file in 0..10 {
            std::fs::write(path.join(format!("source-{file}.js")), "")?;
        }
    }
    std::fs::write(dir.path().join(".env"), "")?;
    Ok(dir)
}

/// The jail of a step that may write its workspace, as a policy makes it.
fn project(files: &tempfile::TempDir, spec: &JailSpec) -> Confinement {
    let patterns =
        ["**/.env", "**/.env.*", "!**/.env.example", "**/.ssh", "**/.aws", "**/.netrc", "**/id_rsa"];
    Confinement::Jail(JailSpec {
        write: vec![files.path().to_owned()],
        deny_patterns: patterns.map(str::to_owned).to_vec(),
        protect_repositories: true,
        system: spec.read.clone(),
        ..spec.clone()
    })
}

fn bench() -> Result<(), String> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(300);
    let sandbox = Sandbox::new(SandboxConfig::default());
    let none = Confinement::None;
    let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
    let spec = JailSpec {
        read: paths(&["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"]),
        write: paths(&["/var/tmp"]),
        private: paths(&["/tmp", "/dev/shm"]),
        ..JailSpec::default()
    };
    let sizes = [10, 1_000, 10_000, 100_000].map(workspace);
    let workspaces = sizes.into_iter().collect::<io::Result<Vec<_>>>().map_err(|error| error.to_string())?;
    let projects: Vec<Confinement> = workspaces.iter().map(|files| project(files, &spec)).collect();
    let walls = Confinement::LandlockSeccomp(spec.clone());
    let jail = Confinement::Jail(spec);
    let free = ProcessLimits::default();
    let limited = ProcessLimits { memory: Some(1 << 30), processes: Some(256), ..ProcessLimits::default() };
    let ways: Vec<Way<'_>> = vec![
        ("plain posix_spawn", Box::new(plain)),
        ("unconfined", Box::new(|| sandboxed(&sandbox, &none, &free))),
        ("Landlock + seccomp", Box::new(|| sandboxed(&sandbox, &walls, &free))),
        ("jail", Box::new(|| sandboxed(&sandbox, &jail, &free))),
        ("jail, tree limits", Box::new(|| sandboxed(&sandbox, &jail, &limited))),
    ];
    measure(rounds, "small process", &ways)?;
    let names = ["10 files", "1,000 files", "10,000 files", "100,000 files"];
    let mut searched: Vec<Way<'_>> = vec![("plain posix_spawn", Box::new(plain))];
    for (name, confinement) in names.iter().zip(&projects) {
        searched.push((name, Box::new(|| sandboxed(&sandbox, confinement, &free))));
    }
    measure(rounds.min(100), "a jail with patterns, in a workspace of", &searched)?;
    let ballast = vec![1u8; 512 << 20];
    measure(rounds, "with 512 MiB resident", &ways)?;
    drop(ballast);
    flood(&sandbox)?;
    Ok(())
}

fn main() -> ExitCode {
    if let Some(code) = lobster_runtime::init() {
        return code;
    }
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spawn_cost: {error}");
            ExitCode::FAILURE
        }
    }
}
