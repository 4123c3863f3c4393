#!/usr/bin/env python3
"""Tool calls over stdio: 1,000 one after the other, and 50 at once, with the server's memory, also when it is idle again.

tests/bench/mcp.py [LOBSTER]        bars: 500 calls/s; no error; memory flat
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOBSTER = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/lobster")
CALLS, AT_ONCE, ROUNDS = 1000, 50, 20
# Longer than the server waits before it gives memory back.
IDLE = 25


class Client:
    def __init__(self, home: Path):
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "LOBSTER_STATE_DIR": str(home / "state")}
        self.process = subprocess.Popen(
            [LOBSTER, "mcp", "--components", str(home / "steps")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=home,
        )
        self.next = 0
        self.request("initialize", {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"},
        })
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.request("tools/list", {})

    def write(self, *messages):
        self.process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self.process.stdin.flush()

    def message(self, method, params):
        self.next += 1
        return {"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}

    def answer(self):
        answer = json.loads(self.process.stdout.readline())
        assert "error" not in answer and not answer["result"].get("isError"), answer
        return answer["result"]

    def request(self, method, params):
        self.write(self.message(method, params))
        return self.answer()

    def call(self, number):
        arguments = {"mode": "extract", "pattern": "a+", "input": [f"b{'a' * (number % 50)}b {number}"]}
        return self.message("tools/call", {"name": "regex", "arguments": arguments})

    def memory(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


home = Path(tempfile.mkdtemp(prefix="lobster-bench-"))
try:
    (home / "steps").mkdir()
    shutil.copy(ROOT / "guest-steps/dist/regex.wasm", home / "steps")
    client = Client(home)
    for number in range(100):
        client.write(client.call(number))
        client.answer()
    before, cpu = client.memory(), client.cpu()
    begun = time.monotonic()
    for number in range(CALLS):
        client.write(client.call(1000 + number))
        client.answer()
    took = time.monotonic() - begun
    after, cpu = client.memory(), client.cpu() - cpu
    print(f"sequential: {CALLS / took:.0f} calls/s ({cpu / CALLS * 1000:.2f} ms of processor each); memory {before:.1f} MiB before, {after:.1f} MiB after")
    levels = []
    begun = time.monotonic()
    for round in range(ROUNDS):
        client.write(*(client.call(10_000 + round * AT_ONCE + number) for number in range(AT_ONCE)))
        for _ in range(AT_ONCE):
            client.answer()
        levels.append(client.memory())
    took = time.monotonic() - begun
    print(
        f"{AT_ONCE} at once: {ROUNDS * AT_ONCE / took:.0f} calls/s, no error; memory {levels[0]:.1f} MiB after the "
        f"first round, {levels[-1]:.1f} MiB after {ROUNDS}"
    )
    time.sleep(IDLE)
    print(f"idle for {IDLE} s: memory {client.memory():.1f} MiB")
    client.process.stdin.close()
    assert client.process.wait(30) == 0
finally:
    shutil.rmtree(home)
