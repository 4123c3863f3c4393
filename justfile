# The whole development page: `just` lists it.
default:
    @just --list

# build the binary
build:
    cargo build --release

# all tests, as CI runs them
test:
    cargo test --release --workspace

# what CI checks before it tests
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# checks the subjects of commits in this clone from now on
hooks:
    git config core.hooksPath .ci/hooks

# the example that the README begins with
example:
    cargo run --release -- run examples/inbox-triage/triage.lobster

# the documents as a site in target/book; needs mdbook
docs:
    docs/site.sh

# what was printed goes into the documents and examples, where it differs from what they show
docs-update:
    UPDATE_EXPECTED=1 cargo test --workspace --test lobster -- documents:: examples:: reference::

# random workflows with closed stdin; nightly
unattended RUNS="1000":
    LOBSTER_UNATTENDED_RUNS={{RUNS}} LOBSTER_UNATTENDED_SEED=$(date +%j) cargo test --release --workspace --test lobster -- unattended::random --nocapture

# recorded behaviour of the incumbent, held against our binary
conformance *ARGS:
    python3 tests/conformance/run.py --bin target/release/lobster --cases tests/conformance/cases {{ARGS}}

# the recorded cases again, from npm's VERSION or from LOBSTER_INCUMBENT=DIR; what it prints is what changed
record VERSION="2026.9.13" *ARGS:
    tests/conformance/record.sh {{VERSION}} {{ARGS}}

# the tests that the incumbent ships, against our binary; nightly
incumbent *ARGS:
    cargo build --release
    LOBSTER_REQUIRE_INCUMBENT=1 tests/incumbent/run.sh target/release/lobster {{ARGS}}

# random pipelines and workflow files, ours against the incumbent's: each difference needs a row in docs/differences.md; nightly
differential CASES="2500" *ARGS:
    cargo build --release
    LOBSTER_REQUIRE_INCUMBENT=1 tests/incumbent/run.sh target/release/lobster --differential --cases {{CASES}} --seed $(date +%Y%j) {{ARGS}}

# the npm package, and OpenClaw's own plugin over our binary
openclaw:
    tests/openclaw/run.sh target/release/lobster

# OpenClaw's real gateways over our binary, 950 MiB of packages; nightly
gateway:
    tests/openclaw/gateway.sh target/release/lobster

# the checked-in components again, from their sources, bit for bit
guests:
    guest-steps/build.sh --check

# every template of `step new`, built with the tools and registries that are here; nightly
templates *LANGUAGES:
    cargo build --release
    guest-steps/templates/check.sh target/release/lobster --whole {{LANGUAGES}}

# 30 packages of npm and 30 of PyPI in the templates, against node and CPython; nightly
packages *NAMES:
    cargo build --release
    tests/packages/run.py target/release/lobster {{NAMES}}

# the official tests of WASI preview 1 against tests/wasi/expected.toml
wasi *TESTS:
    tests/wasi/run.py target/release/lobster {{TESTS}}

# what compiling in a process of its own costs
bench-compiling *PROGRAMS:
    cargo run --release -p lobster-component --example compiling -- {{PROGRAMS}}

# the ledger of ticks against its model; two servers of which one is frozen or killed; webhooks and waiting runs under kill -9; starts, schedules and connections in numbers; nightly
serve MODELS="6" TICKS="1000" DELIVERIES="1000" KILLS="20" WAITS="10000" STARTS="500" SCHEDULES="10000" CONNECTIONS="10000" EVENTS="200" EVENT_KILLS="64":
    LOBSTER_SCHEDULE_MODELS={{MODELS}} LOBSTER_SCHEDULES=10000 cargo test --release -p lobster-serve --lib schedule -- --nocapture
    LOBSTER_SERVE_TICKS={{TICKS}} LOBSTER_SERVE_DELIVERIES={{DELIVERIES}} LOBSTER_SERVE_KILLS={{KILLS}} LOBSTER_SERVE_WAITS={{WAITS}} LOBSTER_SERVE_STARTS={{STARTS}} LOBSTER_SERVE_SCHEDULES={{SCHEDULES}} LOBSTER_SERVE_CONNECTIONS={{CONNECTIONS}} LOBSTER_SERVE_EVENTS={{EVENTS}} LOBSTER_SERVE_EVENT_KILLS={{EVENT_KILLS}} cargo test --release --workspace --test lobster -- schedules:: serve_ --nocapture

# bytes from outside, mutated, a minute for each target of fuzz/src/lib.rs; nightly
fuzz SECONDS="60" *TARGETS:
    cargo run --locked --profile fuzz -p lobster-fuzz --bin lobster-fuzz -- --seconds {{SECONDS}} --seed $(date +%Y%j) {{TARGETS}}

# random workflows killed and failing at random system calls; nightly
crashes POINTS="10000":
    LOBSTER_CRASH_POINTS={{POINTS}} LOBSTER_CRASH_SEED=$(date +%j) cargo test --workspace --test lobster -- faults::random_workflows_survive --nocapture

# random files of graphs, repeats, waits, choices and loops, held against a model; nightly
models FILES="1000":
    LOBSTER_MODEL_FILES={{FILES}} cargo test --workspace --test lobster -- faults::random_workflows_do --nocapture

# what a policy allows, run in dash, busybox ash and bash; another seed each night
shells TEXTS="20000":
    LOBSTER_REQUIRE_SHELLS=1 LOBSTER_SHELL_FUZZ_TEXTS={{TEXTS}} LOBSTER_SHELL_FUZZ_SEED=$(date +%Y%j) cargo test --release -p lobster-policy --lib shell_fuzz -- --nocapture

# random signals to each kind of process of random runs; nightly
kills KILLS="2000":
    LOBSTER_KILLS={{KILLS}} LOBSTER_KILL_SEED=$(date +%j) cargo test --release --workspace --test lobster -- random_kills --nocapture

# 50 killed steps of every kind, and what they leave on the disk; nightly
left STEPS="50":
    LOBSTER_KILLED_STEPS={{STEPS}} cargo test --release --workspace --test lobster -- left_behind kept_output --nocapture

# random programs of real tools on random trees: staged, committed, undone and dropped against direct; commits killed at every change of the disk; nightly
changes CASES="2000":
    LOBSTER_CHANGES_CASES={{CASES}} LOBSTER_CHANGES_SEED=$(date +%Y%j) LOBSTER_CHANGES_KILLS=1 cargo test --release --workspace --test lobster -- staged piles review:: --nocapture

# random trees and hostile steps: after each commit no link leads out of its grant; nightly
links COMMITS="2000":
    LOBSTER_LINK_COMMITS={{COMMITS}} LOBSTER_LINK_SEED=$(date +%Y%j) cargo test --release --workspace --test lobster -- stray_links:: --nocapture

# `step publish` against a real registry (Debian: docker-registry); nightly
registry:
    tests/published.sh

# copies of a store that 16 processes write to; nightly
backups COPIES="50":
    LOBSTER_BACKUPS={{COPIES}} cargo test --release --workspace --test lobster -- store_copies::a_backup --nocapture

# every page of a store zeroed, and random records damaged; nightly
damages DAMAGES="200":
    LOBSTER_DAMAGES={{DAMAGES}} LOBSTER_DAMAGE_SEED=$(date +%j) cargo test --release --workspace --test lobster -- record_damages store_copies::any_damaged_page --nocapture

# everyday commands in the jail of every template of `policy init`; as root installs what is missing; nightly
everyday TEMPLATES="plain node python rust go":
    tests/everyday/install.sh
    LOBSTER_EVERYDAY_TEMPLATES="{{TEMPLATES}}" cargo test --release --workspace --test lobster -- everyday:: --nocapture

# four coding agents from npm in the jail of the node template, against a fake model; nightly
agents DIR="target/agents":
    cargo build --release
    tests/agents/run.sh target/release/lobster {{DIR}}

# granted roots and policy files exchanged while steps start; nightly
roots TRIES="500":
    LOBSTER_ROOT_SWAPS={{TRIES}} cargo test --release --workspace --test lobster -- swapped_roots --nocapture

# random workflows against a server that counts what it bills; nightly
overspend WORKFLOWS="2000":
    LOBSTER_OVERSPEND_WORKFLOWS={{WORKFLOWS}} LOBSTER_OVERSPEND_SEED=$(date +%j) cargo test --release --workspace --test lobster -- overspend:: --nocapture

# all that is random or long, each night with another seed
nightly:
    .ci/nightly

# the tests that start processes, with a worker carrying them out; nightly
worker *TESTS="flows:: credentials:: models:: overspend:: drop_in:: crash:: unknown_ends:: resume:: forks:: secrets:: kernel_holds:: approved_files:: swapped_roots:: compatibility:: faults::random_workflows_survive":
    LOBSTER_TEST_WORKER=1 LOBSTER_CRASH_POINTS=1000 cargo test --release --workspace --test lobster -- {{TESTS}}

# figures of the record: replay, durability, syncs, large stores, many processes
bench-record:
    cargo build --release --workspace
    cargo build --release --workspace --example fill_store
    python3 tests/bench/record.py

# what it adds to a question to bind a tree of files
bench-approvals:
    cargo build --release
    python3 tests/bench/approvals.py

# approved files swapped between question and answer, and while the command runs; nightly
swaps SHAPES="5000":
    LOBSTER_SWAP_SHAPES={{SHAPES}} LOBSTER_SWAP_ROUNDS=500 LOBSTER_SWAP_SEED=$(date +%j) cargo test --release --workspace --test lobster -- approved_files --nocapture

# the console in a browser; DIR keeps the packages between calls
console DIR="target/console":
    tests/console/run.sh target/release/lobster {{DIR}}

# the console in WebKit, the engine of Safari; nightly
console-webkit:
    tests/console/webkit.sh target/release/lobster

# pictures of each page of the console in each theme and width, against the small ones in tests/console/pictures; DIR keeps whole ones for eyes; nightly
console-pictures DIR="":
    CONSOLE_PICTURES={{DIR}} tests/console/run.sh target/release/lobster target/console --project=pictures

# this build against another one, both in turn
against BINARY *ARGS:
    cargo build --release
    python3 tests/bench/against.py {{BINARY}} {{ARGS}}

# instructions and system calls of eight works, against tests/bench/counts.json; --update writes new figures
counts *ARGS:
    cargo build --release
    python3 tests/bench/counts.py {{ARGS}}

# figures of the console: pages, also in a browser, live updates, 200 viewers, 100,000 runs; DIR keeps the browser's packages
bench-console DIR="target/console":
    cargo build --release --workspace
    cargo build --release --workspace --example fill_store
    tests/console/run.sh target/release/lobster {{DIR}} --list >/dev/null
    python3 tests/bench/console.py --browser {{DIR}}

# ratios against the shell and the incumbent
bench:
    cargo build --release
    python3 tests/bench/bench.py

# what a layer over 100,000 files costs, a commit of 1,000 files, and the memory for a file of 2 GiB
bench-changes:
    cargo build --release
    python3 tests/bench/changes.py

# what a jail and the masking of secrets cost, as ratios
bench-trust:
    cargo run --release -p lobster-runtime --example spawn_cost
    cargo run --release -p lobster-runtime --example masking_cost

# what a credential costs a request, against the same request without
bench-credentials:
    cargo build --release
    python3 tests/bench/credentials.py

# licences, sources, bans, unused dependencies; then what cargo-deny says, if it is installed
deny:
    .ci/dependencies.py
    cargo deny check
    cargo tree -d

# what is shipped: target/dist/lobster, and the archive of it with man pages, completions, licences and its bill of materials
dist:
    cargo build --profile dist
    packaging/archive.py target/dist/lobster target/dist

# what a cold build, rebuilds and the shipped binary cost, also against another commit; an hour
bench-build *COMMIT:
    tests/bench/build.sh {{COMMIT}}
