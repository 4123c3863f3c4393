#!/usr/bin/env python3
"""Packages of npm and PyPI in the templates of `step new`: each is loaded in a step, one of its main
functions is called, and the result is compared with that of the same file in node or CPython.

    run.py LOBSTER [npm|pypi] [NAME...]

The packages are those of npm/package.json and pypi/requirements.txt, the calls npm/NAME.js and
pypi/NAME.py. It fails if fewer work than BARS says. Needs node, npm, Python with venv, and both
registries.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BARS = {"npm": 26, "pypi": 24}
#: Steps in Python that are put into one component: each package is a part of its snapshot.
TOGETHER = 10

STEP = """// @ts-nocheck
import { step } from "./lobster.js";
import use from "./use.js";

export const { describe, run } = step({
  name: "packages",
  version: "0.1.0",
  summary: "Calls a package",
  run(_args, _input, output) {
    output.emit({ result: use() });
  },
});
"""

IN_NODE = 'import("./use.js").then((use) => console.log(JSON.stringify({ result: use.default() })))'

APP = """import importlib

from lobster_step import Step, exported

loaded = {}
for name in @NAMES@:
    try:
        loaded[name] = importlib.import_module(f"uses.{name}")
    except Exception as error:
        loaded[name] = f"{type(error).__name__}: {error}"


class Packages(Step):
    name = "packages"
    version = "0.1.0"
    summary = "Calls a package"
    args = {"type": "object"}

    def run(self, args, input, output):
        module = loaded[args["name"]]
        if isinstance(module, str):
            raise ImportError(module)
        output.emit({"result": module.use()})


WitWorld = exported(Packages)
"""

IN_CPYTHON = """import importlib, json, sys
sys.path[:0] = [".", ".packages"]
print(json.dumps({"result": importlib.import_module("uses." + sys.argv[1]).use()}))
"""


class Failure(Exception):
    """Why a package does not work."""


def run(command, cwd, timeout=900):
    environment = {**os.environ, "TZ": "UTC"}
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failure(f"took longer than {timeout} s") from None
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stderr + done.stdout).splitlines()]
        said = [line for line in lines if "rror" in line] or [line for line in lines if line] or ["it said nothing"]
        raise Failure(said[0][:300])
    return done.stdout


def compare(inside, outside):
    inside, outside = json.loads(inside), json.loads(outside)
    if inside != outside:
        raise Failure(f"gives {json.dumps(inside)[:400]}, outside {json.dumps(outside)[:400]}")


def project(lobster, language, place):
    run([lobster, "step", "new", "--lang", language, "packages", "--dir", str(place)], place.parent)
    shutil.rmtree(place / "cases")
    return place


def check_npm(lobster, names, scratch):
    place = project(lobster, "ts", scratch / "npm")
    package = json.loads((place / "package.json").read_text())
    package["dependencies"] = json.loads((HERE / "npm/package.json").read_text())["dependencies"]
    (place / "package.json").write_text(json.dumps(package))
    (place / "step.ts").write_text(STEP)
    for name in names:
        try:
            shutil.copy(HERE / f"npm/{name}.js", place / "use.js")
            run([lobster, "step", "build", str(place)], place)
            inside = run([lobster, "step", "run", "packages.wasm"], place)
            compare(inside, run(["node", "-e", IN_NODE], place))
            yield name, None
        except Failure as failure:
            yield name, str(failure)


def check_pypi(lobster, names, scratch):
    wanted = (HERE / "pypi/requirements.txt").read_text().splitlines()
    for begin in range(0, len(names), TOGETHER):
        group = names[begin : begin + TOGETHER]
        place = project(lobster, "python", scratch / f"pypi-{begin}")
        lines = [line for line in wanted if line.partition("==")[0] in group]
        (place / "requirements.txt").write_text("\n".join(lines) + "\n")
        (place / "app.py").write_text(APP.replace("@NAMES@", repr(group)))
        (place / "uses").mkdir()
        (place / "uses/__init__.py").touch()
        for name in group:
            shutil.copy(HERE / f"pypi/{name}.py", place / "uses")
        try:
            run([lobster, "step", "build", str(place)], place)
        except Failure as failure:
            yield from ((name, f"its component: {failure}") for name in group)
            continue
        for name in group:
            try:
                inside = run([lobster, "step", "run", "packages.wasm", "--args-json", json.dumps({"name": name})], place)
                compare(inside, run([sys.executable, "-c", IN_CPYTHON, name], place))
                yield name, None
            except Failure as failure:
                yield name, str(failure)


CHECKS = {"npm": (check_npm, ".js"), "pypi": (check_pypi, ".py")}


def main():
    lobster = str(pathlib.Path(sys.argv[1]).resolve())
    registries = [word for word in sys.argv[2:] if word in CHECKS] or list(CHECKS)
    chosen = [word for word in sys.argv[2:] if word not in CHECKS]
    passed = failed = 0
    below = []
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["LOBSTER_STATE_DIR"] = f"{scratch}/state"
        for registry in registries:
            check, ending = CHECKS[registry]
            names = sorted(path.stem for path in (HERE / registry).glob(f"*{ending}"))
            names = [name for name in names if not chosen or name in chosen]
            works = 0
            for name, failure in check(lobster, names, pathlib.Path(scratch)):
                works += failure is None
                print(f"{registry} {name}: {failure or 'works'}", flush=True)
            print(f"{registry}: {works} of {len(names)} work, {BARS[registry]} must", flush=True)
            passed += works
            failed += len(names) - works
            if not chosen and works < BARS[registry]:
                below.append(registry)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if below else 0)


main()
