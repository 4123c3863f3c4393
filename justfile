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

# the example that the README begins with
example:
    cargo run --release -- run examples/inbox-triage/triage.lobster

# recorded behaviour of the incumbent, held against our binary
conformance *ARGS:
    python3 ../shared/conformance/run.py --bin target/release/lobster --cases ../shared/conformance/public {{ARGS}}

# the npm package, and OpenClaw's own plugin over our binary
openclaw:
    tests/openclaw/run.sh target/release/lobster

# the checked-in components again, from their sources, bit for bit
guests:
    guest-steps/build.sh --check

# ratios against the shell and the incumbent
bench:
    cargo build --release
    python3 tests/bench/bench.py

# licences, duplicates, sources of dependencies
deny:
    cargo deny check
    cargo tree -d
