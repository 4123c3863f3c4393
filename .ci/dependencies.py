#!/usr/bin/env python3
"""Holds deny.toml and the manifests against the locked dependency graph, without network.

Licences, sources, banned crates, version wildcards and unused dependencies: what
`cargo deny check licenses sources bans` and `cargo machete` look at, in a second
and without installing them. Advisories need their database: .ci/nightly asks
cargo-deny for them.
"""
import json
import pathlib
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"

# (package, crate): named nowhere and still needed.
SILENT = {("lobster-cli", "num-traits")}


def main():
    rules = tomllib.loads((ROOT / "deny.toml").read_text("utf-8"))
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    for target in rules["graph"]["targets"]:
        command += ["--filter-platform", target]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    nodes = {node["id"] for node in metadata["resolve"]["nodes"]}
    packages = [package for package in metadata["packages"] if package["id"] in nodes]
    problems = list(judge(packages, rules))
    libraries = {package["name"]: library(package) for package in packages}
    for package in packages:
        if package["source"] is None:
            problems += unused(package, libraries)
    problems += compiled_twice()
    for problem in sorted(problems):
        print(problem)
    print(f"{len(packages)} packages, {len(problems)} problems")
    sys.exit(bool(problems))


def judge(packages, rules):
    allowed = set(rules["licenses"]["allow"])
    banned = {ban["crate"]: ban["reason"] for ban in rules["bans"]["deny"]}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if package["name"] in banned:
            yield f"{name}: banned: {banned[package['name']]}"
        if package["source"] not in (None, REGISTRY):
            yield f"{name}: comes from {package['source']}"
        if not package["license"]:
            if not package["license_file"]:
                yield f"{name}: names no licence"
            else:
                yield f"{name}: has a licence of its own in {package['license_file']}"
        elif not licensed(package["license"], allowed):
            yield f"{name}: {package['license']} is not allowed by deny.toml"
        if package["source"] is None:
            for dependency in package["dependencies"]:
                if dependency["req"] == "*" and not dependency.get("path"):
                    yield f"{name}: {dependency['name']} has no version"


def compiled_twice():
    """Packages that the program and the tests want with different features.

    `cargo build` and `cargo test` would each compile them, and all that depends on them.
    """
    def features(*scope):
        command = ["cargo", "tree", "--locked", "--prefix", "none", "--format", "{p}|{f}", *scope]
        lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = {}
        for line in filter(None, lines.splitlines()):
            package, names = line.removesuffix(" (*)").split("|")
            found.setdefault(package.split(" (")[0], set()).add(names)
        return found

    everything = features("--workspace", "--edges", "normal,build,dev")
    for package, variants in features("--package", "lobster-cli", "--edges", "normal,build").items():
        if not variants <= everything.get(package, variants):
            yield (
                f"{package}: the program wants the features {', '.join(sorted(variants))}, the tests"
                f" {', '.join(sorted(everything[package]))}: it is compiled twice, as is all that depends on it;"
                " name it in cli/Cargo.toml with what the tests want"
            )


def licensed(expression, allowed):
    """Whether an SPDX expression can be met; the old `A/B` is `A OR B`."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))

    def either():
        met = both()
        while words and words[0] == "OR":
            words.pop(0)
            met = both() or met
        return met

    def both():
        met = one()
        while words and words[0] == "AND":
            words.pop(0)
            met = one() and met
        return met

    def one():
        word = words.pop(0)
        if word == "(":
            met = either()
            words.pop(0)
            return met
        if words and words[0] == "WITH":
            words.pop(0)
            word = f"{word} WITH {words.pop(0)}"
        return word in allowed

    return either()


def library(package):
    """The name by which sources call a package: that of its library, `webpki` of rustls-webpki."""
    targets = (target["name"] for target in package["targets"] if {"lib", "rlib", "proc-macro"} & set(target["kind"]))
    return next(targets, package["name"]).replace("-", "_")


def unused(package, libraries):
    folder = pathlib.Path(package["manifest_path"]).parent
    members = [path.parent for path in folder.glob("*/Cargo.toml")]
    texts = {"src": "", "dev": "", "build": ""}
    for path in folder.rglob("*.rs"):
        if any(member in path.parents for member in members) or "target" in path.parts:
            continue
        place = path.relative_to(folder).parts[0]
        dev = place in ("examples", "tests", "benches") or folder.name == "tests" and path.name != "with_faults.rs"
        texts["build" if place == "build.rs" else "dev" if dev else "src"] += path.read_text("utf-8")
    # A file that another crate's tests are made of counts there, too.
    for included in re.findall(r'#\[path = "(\.\./[^"]+)"\]', texts["src"] + texts["dev"]):
        for base in (folder, folder / "src"):
            if (base / included).is_file():
                texts["src"] += (base / included).read_text("utf-8")
    for dependency in package["dependencies"]:
        if (package["name"], dependency["name"]) in SILENT:
            continue
        scope = {None: texts["src"], "build": texts["build"], "dev": texts["src"] + texts["dev"]}[dependency["kind"]]
        crate = (dependency["rename"] or libraries.get(dependency["name"], dependency["name"])).replace("-", "_")
        if not re.search(rf"\b{crate}\b(::|\s*[;,{{}}]|\s+as\b)", scope):
            kind = f" ({dependency['kind']})" if dependency["kind"] else ""
            yield f"{package['name']}: does not use {dependency['name']}{kind}"


if __name__ == "__main__":
    main()
