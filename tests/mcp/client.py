#!/usr/bin/env python3
"""What the conformance suite starts as its client, with the address of the server that it plays: runs that call
tools there, after `lobster mcp login` where the scenario wants a login. The suite judges what it was sent; a run
that is refused by the server that it plays is no failure of this program.

    LOBSTER=… client.py URL
"""
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

LOBSTER, URL = os.environ["LOBSTER"], sys.argv[-1]
SCENARIO = os.environ["MCP_CONFORMANCE_SCENARIO"]
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")

# The tools that the played servers have, with arguments; any call says as much as another elsewhere.
CALLS = {
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "sse-retry": [("test_reconnection", {})],
    "http-invalid-tool-headers": [("valid_tool", {"region": "us-west1"})],
    "json-schema-ref-no-deref": [("lookup_user", {"user": {"name": "a"}})],
    "http-custom-headers": [(call["name"], call["arguments"]) for call in CONTEXT.get("toolCalls", [])],
    "sep-2322-client-request-state": [
        (tool, {}) for tool in ("test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type")
    ],
}


def write_config(home):
    lines = ["version = 1", "[server.played]", f"url = {json.dumps(URL)}"]
    if SCENARIO == "auth/pre-registration":
        lines.append(f'login = {{ client_id = "{CONTEXT["client_id"]}", client_secret = "client" }}')
    (home / "lobster.mcp.toml").write_text("\n".join(lines) + "\n")
    (home / "secrets.toml").write_text('[secrets.client]\nenv = "CLIENT_SECRET"\n')


class Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def browse(address):
    """What a browser does that is sent to the login: it goes where it is led."""
    opener = urllib.request.build_opener(Stays)
    for _ in range(5):
        try:
            opener.open(address, timeout=20)
            return
        except urllib.error.HTTPError as answer:
            if answer.code not in (301, 302, 303, 307, 308):
                return
            address = urllib.parse.urljoin(address, answer.headers["location"])


def log_in(home, env):
    login = subprocess.Popen(
        [LOBSTER, "mcp", "login", "played", "--timeout", "20"], cwd=home, env=env, stdout=subprocess.PIPE, text=True
    )
    for line in login.stdout:
        print(line, end="")
        if line.startswith("http"):
            browse(line.strip())
    login.wait()


def call(home, env):
    """Runs the workflow; gives what went wrong, if anything did."""
    words = [LOBSTER, "run", "--mode", "tool", "flow.lobster"]
    run = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, timeout=100)
    print(run.stdout, run.stderr)
    # Whatever the played server does, the answer is an envelope.
    answer = json.loads(run.stdout)
    return "" if answer["ok"] else answer["error"]["message"]


def main():
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        env = {
            "PATH": os.environ["PATH"], "HOME": name, "LOBSTER_STATE_DIR": str(home / "state"),
            "LOBSTER_SECRETS": str(home / "secrets.toml"), "CLIENT_SECRET": CONTEXT.get("client_secret", "unused"),
        }
        write_config(home)
        if SCENARIO.startswith("auth/"):
            log_in(home, env)
        for tool, args in CALLS.get(SCENARIO, [("test-tool", {})]):
            step = {"id": "call", "mcp": {"server": "played", "tool": tool}, "args": args}
            (home / "flow.lobster").write_text(json.dumps({"steps": [step]}))
            if "lobster mcp login" in call(home, env):
                # What the message says is what its reader does.
                log_in(home, env)
                call(home, env)


main()
