#!/usr/bin/env python3
"""`mcp.call` and `mcp:` against the official server-everything, on stdio and HTTP, and replayed without it."""
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

lobster, node, server = sys.argv[1], sys.argv[2], str(Path(sys.argv[3]).resolve())


def call(home: Path, *words: str, ok: int = 0) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LOBSTER_STATE_DIR": str(home / "state")}
    done = subprocess.run([lobster, *words], cwd=home, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == ok, done
    return done.stdout


def drive(config: str, stop) -> None:
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "lobster.mcp.toml").write_text("version = 1\n[server.every]\n" + config)
        call(home, "mcp", "lock")
        call(home, "mcp", "lock", "--check")
        (home / "flow.lobster").write_text(
            "steps:\n"
            "  - {id: weather, mcp: {server: every, tool: get-structured-content}, args: {location: New York}}\n"
            "  - {id: say, mcp: {server: every, tool: echo}, args: {message: $weather.json.temperature degrees}}\n"
            "  - {id: image, mcp: {server: every, tool: get-tiny-image}}\n"
            "  - {id: sums, pipeline: 'js [1,2] | mcp.call --server every --tool get-sum --args-json ''{\"a\":1}'' --each --item-key b'}\n"
            "  - {id: out, js: '[steps.say, steps.sums, steps.image.some(block => block.type == \"image\")]'}\n"
        )
        live = json.loads(call(home, "run", "--mode", "tool", "flow.lobster"))["output"]
        assert live == ["Echo: 33 degrees", ["The sum of 1 and 1 is 2.", "The sum of 1 and 2 is 3."], True], live
        run = json.loads(call(home, "runs", "--json", "--limit", "1"))[0]["id"]
        stop()
        (home / "lobster.mcp.toml").unlink()
        said = call(home, "replay", run)
        assert "5 answered from the record" in said, said


drive(f"command = {json.dumps([node, server, 'stdio'])}\n", lambda: None)
print("stdio: locked, called, replayed without the server")

port = "39231"
http = subprocess.Popen(
    [node, server, "streamableHttp"], env={**os.environ, "PORT": port}, stderr=subprocess.PIPE, text=True
)
try:
    for line in http.stderr:
        if re.search(r"listening|port", line):
            break
    drive(f'url = "http://127.0.0.1:{port}/mcp"\n', lambda: (http.terminate(), http.wait()))
    print("http: locked, called, replayed without the server")
finally:
    http.kill()
