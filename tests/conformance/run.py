#!/usr/bin/env python3
"""Black-box conformance runner for a `lobster` command line.

    run.py --bin "CMD WITH ARGS" --cases DIR [--only GLOB] [--jobs N] [--json OUT]
           [--verbose] [--skip-quirks] [--keep] [--except DIR] [--as VERSION]

Every line of a `*.jsonl` file under DIR is one case, and every `*.json` file is
one: private files, an optional mock HTTP server on the loopback, and one or more
calls of the binary with what each call must answer.  See README.md for the
format.  The runner needs Python 3.11 and nothing else; it starts only the binary
under test, waits for it, and removes the case's private directories afterwards.
`record.py` writes expectations.

The last line is always `<n> passed, <m> failed`; the exit status is 0 only when
nothing failed.
"""

import argparse
import concurrent.futures
import datetime
import fnmatch
import http.server
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time

CASE_TIMEOUT_S = 20.0
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"

# Values under these keys differ from run to run (or are private to an
# implementation), so only their presence is compared.  A case lists a key in
# "exact_keys" to compare it all the same.
VOLATILE_KEYS = {
    "resumeToken": "<token>",
    "approvalId": "<approval-id>",
    "stateKey": "<state-key>",
    "createdAt": "<timestamp>",
    "storedAt": "<timestamp>",
    "consumedAt": "<timestamp>",
    "durationMs": "<duration>",
    "elapsedMs": "<duration>",
    "pid": "<pid>",
    "hostname": "<host>",
    "cacheKey": "<hash>",
    "artifactHashes": "<hash>",
}
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I)
ISO = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
HOST = socket.gethostname()


class Normaliser:
    """Replaces what legitimately differs between two runs by fixed names."""

    def __init__(self, exact_keys=()):
        self.names = {}  # text seen in this run -> its stable name
        self.keys = {k: v for k, v in VOLATILE_KEYS.items() if k not in exact_keys}

    def name(self, text, stable):
        if text:
            self.names[text] = stable

    def text(self, value):
        for seen in sorted(self.names, key=len, reverse=True):
            value = value.replace(seen, self.names[seen])
        value = UUID.sub("<uuid>", value)
        value = ISO.sub(self._timestamp, value)
        if len(HOST) > 3:
            value = re.sub(r"\b%s\b" % re.escape(HOST), "<host>", value)
        return value

    @staticmethod
    def _timestamp(match):
        """Only a time close to now is a clock reading; the rest is case data."""
        try:
            when = datetime.datetime.fromisoformat(match.group(0))
        except ValueError:
            return match.group(0)
        age = abs((datetime.datetime.now(datetime.timezone.utc) - when).total_seconds())
        return "<timestamp>" if age < 86400 else match.group(0)

    def json(self, value, key=None):
        if key in self.keys and value is not None:
            stable = self.keys[key]
            return [stable] * len(value) if isinstance(value, list) else stable
        if isinstance(value, dict):
            out = {self.text(k): self.json(v, k) for k, v in value.items()}
            if out.get("ok") is False and isinstance(out.get("error"), dict) and "message" in out["error"]:
                out["error"]["message"] = "<message>"
            return out
        if isinstance(value, list):
            return [self.json(v) for v in value]
        return self.text(value) if isinstance(value, str) else value


# ---------------------------------------------------------------- comparison


def ignore(value, pointers):
    """Blanks the places named by pointers ('*' is one level, '**' any depth)."""
    for pointer in pointers:
        _blank(value, [p.replace("~1", "/").replace("~0", "~") for p in pointer.split("/")[1:]])
    return value


def _blank(value, parts):
    head, rest = parts[0], parts[1:]
    if head == "**":
        _blank(value, rest)
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for k in keys:
        if head == "**":
            _blank(value[k], parts)
        elif head in ("*", str(k)):
            if rest:
                _blank(value[k], rest)
            else:
                value[k] = "<ignored>"


def differences(want, got, at=""):
    """Structural JSON differences; a bool is never a number, 1 and 1.0 are one value."""
    if isinstance(want, dict) and isinstance(got, dict):
        for k in sorted(want.keys() | got.keys()):
            here = f"{at}/{k}"
            if k not in got:
                yield f"{here}: missing, expected {brief(want[k])}"
            elif k not in want:
                yield f"{here}: unexpected {brief(got[k])}"
            else:
                yield from differences(want[k], got[k], here)
    elif isinstance(want, list) and isinstance(got, list):
        if len(want) != len(got):
            yield f"{at or '/'}: expected {len(want)} items, got {len(got)}: {brief(got)}"
        for i, (a, b) in enumerate(zip(want, got)):
            yield from differences(a, b, f"{at}/{i}")
    elif isinstance(want, bool) != isinstance(got, bool) or want != got:
        yield f"{at or '/'}: expected {brief(want)}, got {brief(got)}"


def brief(value, limit=160):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = repr(text) if isinstance(value, str) else text
    return text if len(text) <= limit else text[: limit - 1] + "…"


def parse_json(text):
    """(True, value) for a JSON object or array, else (False, None)."""
    try:
        value = json.loads(text)
    except ValueError:
        return False, None
    return isinstance(value, (dict, list)), value


def pointer(value, path):
    for part in path.split("/")[1:]:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value


# --------------------------------------------------------------- mock server


class Mock:
    """A loopback HTTP server that answers from the case and remembers requests.

    The first unused endpoint with the request's method and path answers; when
    all of them were used, the last one answers again.  Anything else is 404.
    """

    def __init__(self, endpoints):
        self.endpoints = [dict(e) for e in endpoints]
        self.requests = []
        self.lock = threading.Lock()
        mock = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                mock.answer(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = handle_any

            def log_message(self, *_args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, handler):
        raw = handler.rfile.read(int(handler.headers.get("content-length") or 0)).decode("utf-8", "replace")
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            body = raw
        headers = {h: handler.headers[h] for h in ("authorization", "content-type") if h in handler.headers}
        with self.lock:
            self.requests.append(
                {"method": handler.command, "path": handler.path, "headers": headers, "body": body}
            )
            fits = [e for e in self.endpoints if (e["method"], e["path"]) == (handler.command, handler.path)]
            chosen = next((e for e in fits if not e.get("used")), fits[-1] if fits else None)
            if chosen is not None:
                chosen["used"] = True
        reply = chosen or {"status": 404, "json": {"error": "no such endpoint"}}
        if reply.get("delay_ms"):
            time.sleep(min(reply["delay_ms"], 5000) / 1000)
        payload = (reply["text"] if "text" in reply else json.dumps(reply.get("json"))).encode()
        try:
            handler.send_response(reply.get("status", 200))
            for k, v in {"content-type": "application/json", **reply.get("headers", {})}.items():
                handler.send_header(k, v)
            handler.send_header("content-length", str(len(payload)))
            handler.end_headers()
            handler.wfile.write(payload)
        except OSError:
            pass  # the client went away, which some cases want

    def close(self):
        self.server.shutdown()
        self.server.server_close()


# -------------------------------------------------------------- running cases


class Sandbox:
    """The private directories, names and mock server of one case run."""

    def __init__(self, case):
        self.case = case
        self.root = pathlib.Path(os.path.realpath(tempfile.mkdtemp(prefix="lobster-case-")))
        self.mock = Mock(case["serve"]) if case.get("serve") is not None else None
        self.values = {"PORT": str(self.mock.port)} if self.mock else {}
        self.normal = Normaliser(case.get("exact_keys", ()))
        for name, sub in (("DIR", "work"), ("STATE", "state"), ("HOME", "home")):
            (self.root / sub).mkdir()
            self.values[name] = str(self.root / sub)
            self.normal.name(self.values[name], "{{%s}}" % name)
        self.normal.name(str(self.root), "{{ROOT}}")
        if self.mock:
            for host in ("127.0.0.1", "localhost"):
                self.normal.name(f"{host}:{self.mock.port}", "%s:{{PORT}}" % host)
        # A login shell may reset PATH; the private profile puts the case's back.
        self.path = f"{self.values['DIR']}/bin:{SYSTEM_PATH}"
        profile = f"PATH='{self.path}'\nexport PATH\n" + case.get("profile", "")
        (self.root / "home" / ".profile").write_text(profile, "utf-8")
        for rel, text in case.get("files", {}).items():
            target = self.file(rel)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self.fill(text), "utf-8")
            if text.startswith("#!"):
                target.chmod(0o755)

    def file(self, rel):
        return pathlib.Path(self.values["DIR"]) / self.fill(rel)

    def fill(self, text):
        """Puts known {{NAME}}s in; {{NAME|truncate}} drops a value's last 8 characters."""
        for name, value in self.values.items():
            text = text.replace("{{%s}}" % name, value).replace("{{%s|truncate}}" % name, value[:-8])
        return text

    def env(self, *overrides):
        env = {"PATH": self.path, "HOME": self.values["HOME"], "LANG": "C.UTF-8", "TZ": "UTC"}
        env["LOBSTER_STATE_DIR"] = self.values["STATE"]
        for extra in overrides:
            for k, v in (extra or {}).items():
                env.pop(k, None) if v is None else env.__setitem__(k, self.fill(v))
        return env

    def close(self, keep):
        if self.mock:
            self.mock.close()
        if not keep:
            shutil.rmtree(self.root, ignore_errors=True)


def run_call(command, box, call, deadline):
    """Runs the binary once; returns (exit, stdout, stderr), exit None on a timeout."""
    argv = command + [box.fill(a) for a in call["argv"]]
    env = box.env(box.case.get("env"), call.get("env"))
    text = call.get("stdin")
    text = None if text is None else box.fill(text).encode()
    master = None
    if call.get("tty"):
        master, stdin = os.openpty()
        mode = termios.tcgetattr(stdin)
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(stdin, termios.TCSANOW, mode)
    else:
        stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            argv, stdin=stdin, stdout=out, stderr=err, env=env,
            cwd=box.file(call.get("cwd", ".")), start_new_session=True,
        )
        try:
            if master is not None:
                os.close(stdin)
                os.write(master, text or b"")
            elif text is not None:
                threading.Thread(target=feed, args=(process.stdin, text), daemon=True).start()
            if call.get("signal"):
                flag = box.file(call["signal"]["when_file"])
                while not flag.exists() and process.poll() is None and time.monotonic() < deadline:
                    time.sleep(0.02)
                time.sleep(0.1)
                if process.poll() is None:
                    os.kill(process.pid, getattr(signal, call["signal"]["name"]))
            code = process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = None
        finally:
            if master is not None:
                os.close(master)
        out.seek(0), err.seek(0)
        return code, out.read().decode("utf-8", "replace"), err.read().decode("utf-8", "replace")


def feed(pipe, data):
    try:
        pipe.write(data)
        pipe.close()
    except OSError:
        pass


def observe_file(box, rel):
    path = box.file(rel)
    if not path.exists():
        return None
    text = path.read_text("utf-8", "replace")
    ok, value = parse_json(text)
    return {"json": box.normal.json(value)} if ok else {"text": box.normal.text(text)}


def check_stdout(want, text, box, skip):
    """Problems of one stdout against its expectation; also used to record it."""
    if "has" in want:
        return [f"stdout lacks {brief(t)}" for t in want["has"] if t not in text]
    if "matches" in want:
        return [] if re.fullmatch(want["matches"], text) else [f"stdout {brief(text)} does not match {want['matches']}"]
    if "json" in want:
        ok, value = parse_json(text)
        if not ok:
            return [f"stdout is not JSON: {brief(text)}"]
        return list(differences(ignore(box.normal.json(want["json"]), skip), ignore(box.normal.json(value), skip)))
    expected, got = box.normal.text(want["text"]), box.normal.text(text)
    return [] if expected == got else [f"stdout: expected {brief(expected, 400)}, got {brief(got, 400)}"]


def record_stdout(want, text, box):
    if "has" in want or "matches" in want:
        return want
    ok, value = parse_json(text)
    return {"json": box.normal.json(value)} if ok and "text" not in want else {"text": box.normal.text(text)}


def error_message(stdout, stderr):
    ok, value = parse_json(stdout)
    if ok and isinstance(value, dict) and isinstance(value.get("error"), dict):
        return str(value["error"].get("message", ""))
    return stderr


def run_case(command, case, record=False, keep=False):
    """Runs one case; returns its problems.  With record, fills the expectations."""
    problems = []
    box = Sandbox(case)
    deadline = time.monotonic() + CASE_TIMEOUT_S
    try:
        for index, call in enumerate(case["calls"], 1):
            where = f"call {index}: " if len(case["calls"]) > 1 else ""
            expect = call.setdefault("expect", {})
            code, stdout, stderr = run_call(command, box, call, deadline)
            if code is None:
                problems.append(f"{where}timed out after {CASE_TIMEOUT_S:.0f} s")
                break
            for name, path in call.get("capture", {}).items():
                try:
                    box.values[name] = str(pointer(json.loads(stdout), path))
                    if len(box.values[name]) >= 8:  # a token or id, not a common word
                        box.normal.name(box.values[name], "{{%s}}" % name)
                except (ValueError, KeyError, IndexError, TypeError):
                    problems.append(f"{where}nothing to capture at {path} in {brief(stdout)}")
            message = error_message(stdout, stderr)
            if record:
                expect["exit"] = code
                expect["stdout"] = record_stdout(expect.get("stdout", {}), stdout, box)
                ignore(expect["stdout"].get("json"), expect.get("ignore", []))
                if "files" in expect:
                    expect["files"] = {rel: observe_file(box, rel) for rel in expect["files"]}
            if code != expect["exit"]:
                problems.append(f"{where}exit {code}, expected {expect['exit']}; stderr {brief(stderr.strip())}")
            problems += [where + p for p in check_stdout(expect["stdout"], stdout, box, expect.get("ignore", []))]
            problems += [f"{where}message lacks {brief(t)}: {brief(message.strip())}"
                         for t in expect.get("message_has", []) if box.fill(t) not in message]
            problems += [f"{where}stderr lacks {brief(t)}: {brief(stderr.strip(), 400)}"
                         for t in expect.get("stderr_has", []) if box.fill(t) not in stderr]
            for rel, want in expect.get("files", {}).items():
                got = observe_file(box, rel)
                pair = [ignore(box.normal.json(v), expect.get("ignore", [])) for v in (want, got)]
                problems += [f"{where}file {rel}{d}" for d in differences(*pair)]
            if any("nothing to capture" in p for p in problems):
                break
        if box.mock:
            seen = [box.normal.json(r) for r in box.mock.requests]
            skip = case.get("requests_ignore", [])
            if record:
                case["requests"] = ignore(seen, skip)
            want = box.normal.json(case.get("requests", []))
            problems += [f"requests{d}" for d in differences(ignore(want, skip), ignore(seen, skip))]
    finally:
        keep = keep and bool(problems)
        box.close(keep)
    return problems + ([f"kept {box.root}"] if keep else [])


# --------------------------------------------------------------- command line


def read_cases(directory):
    """Every case under a directory, in the order of the files' names."""
    for path in sorted(pathlib.Path(directory).rglob("*.json*")):
        if path.suffix == ".jsonl":
            yield from (json.loads(line) for line in path.read_text("utf-8").splitlines())
        elif path.suffix == ".json":
            yield json.loads(path.read_text("utf-8"))


def name_of(case):
    return f"{case['area']}/{case['id']}"


def as_of(case, version):
    """The case with the expectations of an earlier version; None if that version never ended it."""
    earlier = case.get("earlier", {}).get(version)
    case = {k: v for k, v in case.items() if k != "earlier"}
    if earlier is None:
        return case
    if "problem" in earlier:
        return None
    case["calls"] = [{**call, "expect": expect} for call, expect in zip(case["calls"], earlier["expects"])]
    return {**case, "requests": earlier["requests"]} if "requests" in earlier else case


def load_cases(args):
    left_out = {name_of(case) for case in read_cases(args.exclude)} if args.exclude else set()
    cases = []
    for case in read_cases(args.cases):
        if args.only and not any(fnmatch.fnmatch(name, args.only) for name in (case["id"], name_of(case))):
            continue
        if name_of(case) in left_out or (args.skip_quirks and case.get("quirk")):
            continue
        case = as_of(case, args.version)
        if case is not None:
            cases.append(case)
    return cases


def find_command(text):
    """The words of a command, with paths that hold in any directory."""
    command = [os.path.abspath(word) if os.path.exists(word) else word for word in shlex.split(text)]
    return [shutil.which(command[0]) or command[0], *command[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, help="the command under test, with leading arguments")
    parser.add_argument("--cases", required=True, help="a directory of case files")
    parser.add_argument("--only", help="run only cases whose id or area/id matches this glob")
    parser.add_argument("--jobs", type=int, default=2, help="cases run at the same time (default 2)")
    parser.add_argument("--json", help="write a full report to this file")
    parser.add_argument("--verbose", action="store_true", help="print passing cases and every difference")
    parser.add_argument("--skip-quirks", action="store_true", help="leave out cases marked as quirks")
    parser.add_argument("--keep", action="store_true", help="keep the private directories of failing cases' runs")
    parser.add_argument("--except", dest="exclude", metavar="DIR", help="leave out the cases that stand in this directory too")
    parser.add_argument("--as", dest="version", metavar="VERSION", help="expect what this earlier version of the incumbent gave")
    args = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")

    command = find_command(args.bin)
    cases = load_cases(args)
    report, areas = [], {}

    def work(case):
        started = time.monotonic()
        try:
            problems = run_case(command, case, keep=args.keep)
        except Exception as error:  # a broken case must not stop the others
            problems = [f"runner error: {type(error).__name__}: {error}"]
        return case, problems, time.monotonic() - started

    with concurrent.futures.ThreadPoolExecutor(max(1, args.jobs)) as pool:
        for case, problems, seconds in pool.map(work, cases):
            row = areas.setdefault(case["area"], [0, 0, 0])
            row[1 if problems else 0] += 1
            row[2] += bool(problems and case.get("quirk"))
            report.append({"id": case["id"], "area": case["area"], "ok": not problems, "quirk": bool(case.get("quirk")),
                           "seconds": round(seconds, 3), "problems": problems})
            if problems:
                shown = problems if args.verbose else problems[:2]
                more = f" (+{len(problems) - len(shown)} more)" if len(problems) > len(shown) else ""
                mark = " [quirk]" if case.get("quirk") else ""
                print(f"FAIL {case['area']}/{case['id']}{mark}: {' | '.join(shown)}{more}", flush=True)
            elif args.verbose:
                print(f"ok   {case['area']}/{case['id']} ({seconds:.2f} s)", flush=True)

    print(f"\n{'area':<18}{'passed':>8}{'failed':>8}{'of which quirks':>17}")
    for area, (ok, bad, quirks) in sorted(areas.items()):
        print(f"{area:<18}{ok:>8}{bad:>8}{quirks:>17}")
    passed, failed = sum(r[0] for r in areas.values()), sum(r[1] for r in areas.values())
    if args.json:
        summary = {"bin": args.bin, "passed": passed, "failed": failed, "areas": {
            a: {"passed": r[0], "failed": r[1], "failed_quirks": r[2]} for a, r in sorted(areas.items())}}
        pathlib.Path(args.json).write_text(json.dumps({**summary, "cases": report}, indent=1) + "\n", "utf-8")
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and (passed > 0 or args.exclude) else 1


if __name__ == "__main__":
    sys.exit(main())
