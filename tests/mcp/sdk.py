#!/usr/bin/env python3
"""The official Python SDK's client drives `lobster mcp` by the protocol of 2026-07-28 (stateless).

python3 sdk.py LOBSTER        (needs `pip install -r requirements.txt`)
"""
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.types import ElicitResult

LOBSTER = sys.argv[1]
FLOW = """description: Sends it.
args:
  to: {type: string, required: true}
steps:
  - {id: what, js: '"to " + args.to'}
  - {id: ask, stdin: $what.json, approval: Send it?}
  - {id: done, js: '"sent"'}
"""
WORDS = ["mcp", "--workflows", "flows", "--profile", "open"]


async def drive(server, work: Path, to: str) -> str:
    asked, progress = [], []

    async def answer(_, params):
        asked.append(params.message)
        return ElicitResult(action="accept", content={"approve": True})

    async def heard(done, total, message):
        progress.append(done)

    async with Client(server, elicitation_callback=answer) as client:
        tools = (await client.list_tools()).tools
        assert [tool.name for tool in tools] == ["resume", "run", "runs", "send", "show"], tools
        sent = await client.call_tool("send", {"to": to}, progress_callback=heard)
        assert sent.structured_content["output"] == ["sent"], sent
        assert "Send it?" in asked[0] and f"to {to}" in asked[0], asked
        assert len(progress) >= 2, progress  # the call before and after the question each count from 1
        log = work / "log"
        pipeline = "exec --shell 'while :; do echo tick >> log; sleep 0.05; done'"
        slow = asyncio.create_task(client.call_tool("run", {"pipeline": pipeline, "timeoutMs": 60000}))
        while not log.exists():
            await asyncio.sleep(0.02)
        slow.cancel()
        for _ in range(50):
            before = log.stat().st_size
            await asyncio.sleep(0.3)
            if log.stat().st_size == before:
                break
        else:
            raise AssertionError("what was cancelled still runs")
        log.unlink()
        runs = (await client.call_tool("runs", {"status": "interrupted"})).structured_content["runs"]
        assert len(runs) >= 1, runs
        return client.protocol_version


async def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="lobster-mcp-sdk-"))
    work = home / "work"
    (work / "flows").mkdir(parents=True)
    (work / "flows/send.lobster").write_text(FLOW)
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "LOBSTER_STATE_DIR": str(home / "state")}
    http = subprocess.Popen(
        [LOBSTER, *WORDS, "--http", "127.0.0.1:0", "--no-token"], cwd=work, env=env, stderr=subprocess.PIPE, text=True
    )
    try:
        stdio = StdioServerParameters(command=LOBSTER, args=WORDS, cwd=str(work), env=env)
        print("stdio:", await drive(stdio, work, "stdio"))
        url = re.search(r"http:\S+", http.stderr.readline()).group()
        print("http:", await drive(url, work, "http"))
    finally:
        http.terminate()
        http.wait()
        shutil.rmtree(home)


asyncio.run(main())
