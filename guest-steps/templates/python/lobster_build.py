#!/usr/bin/env python3
"""Builds a step in Python: `python3 lobster_build.py NAME.wasm`.

The tool (componentize-py) lies in .venv, what requirements.txt or pyproject.toml names in
.packages; both are made when they are missing and when what they are made of changes.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOOL = "componentize-py==0.25.1"
#: The Python that is in the component, for which packages are chosen.
GUEST = "3.14"
VENV = pathlib.Path(".venv")
PACKAGES = pathlib.Path(".packages")
#: Files that name dependencies.
REQUIREMENTS = pathlib.Path("requirements.txt")
PROJECT = pathlib.Path("pyproject.toml")
#: What a step imports beside the contract.
WORLDS = pathlib.Path("wit-python")
#: How a call of the tool ends that has no tool.
MISSING = 127


def main():
    if sys.version_info < (3, 10):
        fail(f"Python 3.10 or newer is needed; python3 is {sys.version.split()[0]}", MISSING)
    if len(sys.argv) not in (2, 3):
        fail("usage: lobster_build.py NAME.wasm [WIT]", 2)
    tool = find_tool()
    install_packages()
    build(tool, sys.argv[1], *sys.argv[2:])


def fail(message, code=1):
    print(f"build: {message}", file=sys.stderr)
    sys.exit(code)


def venv_program(name):
    return VENV / ("Scripts" if os.name == "nt" else "bin") / name


def find_tool():
    """componentize-py of the version that this project was made for."""
    tool, stamp = venv_program("componentize-py"), VENV / ".tool"
    if tool.exists() and stamp.exists() and stamp.read_text() == TOOL:
        return str(tool)
    try:
        import venv
    except ImportError:
        fail("Python's venv is missing (Debian, Ubuntu: apt-get install python3-venv)", MISSING)
    if not venv_program("python").exists():
        venv.create(VENV, with_pip=True)
    pip([TOOL], f"{TOOL} cannot be installed")
    stamp.write_text(TOOL)
    return str(tool)


def pip(words, failure, program=("-m", "pip")):
    command = [str(venv_program("python")), *program, "install", "--quiet", "--disable-pip-version-check", *words]
    if subprocess.run(command).returncode != 0:
        fail(f"{failure}; the lines above are what pip says")


#: Runs pip as if the step's Python ran it. Its options for another Python do not reach the
#: conditions of requirements (`python_version >= "3.13"`) and the Python that a package requires,
#: and refuse packages that are only published as sources.
PIP_FOR_GUEST = f"""
import sys
from pip._internal.cli import cmdoptions
from pip._internal.resolution.resolvelib.candidates import RequiresPythonCandidate as Running
from pip._vendor.packaging import markers
own = markers.default_environment
there = dict(python_version="{GUEST}", python_full_version="{GUEST}.0", implementation_version="{GUEST}.0",
    sys_platform="wasi", platform_system="wasi", platform_machine="wasm32", os_name="posix")
markers.default_environment = lambda: {{**own(), **there}}
cmdoptions.check_dist_restriction = lambda *words, **named: None
begin = Running.__init__
Running.__init__ = lambda self, version: begin(self, ({GUEST.replace(".", ", ")}, 0))
from pip._internal.cli.main import main
sys.exit(main())
"""

#: Wheels of these platforms are taken without their native code.
PLATFORMS = ("any", "manylinux2014_x86_64", "manylinux_2_28_x86_64")


def pip_for_guest(words, failure):
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    python = ["--python-version", GUEST, "--implementation", "cp", *platforms]
    pip([*python, *words], failure, ("-c", PIP_FOR_GUEST))


def dependencies():
    """The lines of requirements.txt and the dependencies of pyproject.toml."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines() if REQUIREMENTS.exists() else []
    # Earlier projects had the tool itself in the list.
    lines = [line for line in lines if not re.match(r"\s*componentize-py\b", line)]
    if PROJECT.exists():
        try:
            import tomllib
        except ImportError:
            from pip._vendor import tomli as tomllib
        try:
            project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            fail(f"{PROJECT}: {error}")
        lines += project.get("project", {}).get("dependencies", [])
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def install_packages():
    lines = dependencies()
    text = "".join(line + "\n" for line in lines)
    stamp = PACKAGES / ".from"
    made_of = hashlib.sha256((text + TOOL + GUEST).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == made_of:
        return
    shutil.rmtree(PACKAGES, ignore_errors=True)
    PACKAGES.mkdir()
    if lines:
        # Beside the project's own list, so that relative paths in it hold.
        listed = pathlib.Path(".requirements.lobster.txt")
        listed.write_text(text, encoding="utf-8")
        try:
            failure = f"the packages of this project cannot be installed for Python {GUEST}"
            pip_for_guest(["--target", str(PACKAGES), "-r", str(listed)], failure)
        finally:
            listed.unlink()
    natives = sorted(PACKAGES.rglob("*.so")) + sorted(PACKAGES.rglob("*.pyd"))
    for native in natives:
        native.unlink()
    if natives:
        names = sorted({native.relative_to(PACKAGES).parts[0] for native in natives})
        print(f"build: native code cannot run in a component and is left out of: {', '.join(names)}", file=sys.stderr)
    stamp.write_text(made_of)


def build(tool, to, wit="wit"):
    world = "step"
    if WORLDS.is_dir():
        wit, world = str(WORLDS), "step-http" if uses_http() else "step-python"
    command = [tool, "-d", wit, "-w", world, "componentize", "app", "-p", ".", "-p", str(PACKAGES), "-o", to]
    # Without it the tool adds the packages of whichever python3 is on PATH.
    environment = {**os.environ, "VIRTUAL_ENV": str(PACKAGES.resolve())}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode != 0:
        fail(explain(done.stderr))
    # That the packages lie flat is as it should be.
    sys.stderr.writelines(line for line in done.stderr.splitlines(True) if "site-packages" not in line)


def uses_http():
    """Whether the step imports lobster_http, and so is built for the world that has HTTP."""
    sources = [path for path in pathlib.Path(".").glob("*.py") if not path.name.startswith("lobster_")]
    asked = re.compile(r"^\s*(import|from)\s+lobster_http\b", re.MULTILINE)
    return any(asked.search(path.read_text(encoding="utf-8")) for path in sources)


def explain(text):
    """What went wrong in app.py, without the tool's own stack, and what to do."""
    # The tool tells Python's traceback, a cause, and then where in itself that happened.
    told = re.split(r"\n\s*(?:Stack backtrace:|Caused by:)", text)[0]
    if "hostcalls has been exhausted" in text:
        return "the step's memory is over 128 MiB once app.py is imported, which is more than the tool can keep"
    told = re.sub(r"^Traceback \(most recent call last\):\n(?:  .*\n)*AssertionError: ", "", told).strip()
    missing = re.search(r"ModuleNotFoundError: No module named '([^'.]+)[^']*'", text)
    if missing and missing[1] in sys.stdlib_module_names:
        return f"{told}\n\nThe library of Python {GUEST}, as far as it runs in a component, has no module {missing[1]}"
    if missing:
        return (
            f"{told}\n\nThe module {missing[1]} was not found. Name the package that has it in requirements.txt; "
            "a package with native code cannot run in a component"
        )
    if 'File "' in told:
        return f"app.py could not be imported:\n{told}"
    return told or text[:4000]


if __name__ == "__main__":
    main()
