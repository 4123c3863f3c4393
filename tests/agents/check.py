#!/usr/bin/env python3
"""Runs real coding agents in the jail of the node template against a fake model on this machine.

    check.py LOBSTER PACKAGES [NAME...]

PACKAGES is the directory into which npm has installed them (run.sh).
"""

import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

SAID = "hello from the model"


def events(*data):
    """Server-sent events; those of OpenAI and Anthropic name their type."""
    lines = []
    for one in data:
        if isinstance(one, dict) and "type" in one:
            lines.append("event: " + one["type"])
        lines.append("data: " + (one if isinstance(one, str) else json.dumps(one)) + "\n")
    return "\n".join(lines) + "\n"


def messages():
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "fake", "content": []}
    delta = {"type": "text_delta", "text": SAID}
    return events(
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    )


def responses():
    text = {"type": "output_text", "text": SAID, "annotations": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": [text]}
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": "r1", "object": "response", "model": "fake"}
    return events(
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "item_id": "m1", "output_index": 0, "content_index": 0, "delta": SAID},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [item], "usage": usage}},
    )


def completions():
    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": [choice]}

    return events(chunk({"role": "assistant", "content": SAID}), chunk({}, "stop"), "[DONE]")


def gemini():
    content = {"role": "model", "parts": [{"text": SAID}]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return events({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"})


ANSWERS = {"/messages": messages, "/responses": responses, "/chat/completions": completions,
           ":streamGenerateContent": gemini}


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked = []

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.split("?")[0]
        Model.asked.append(path)
        answer = next((make() for end, make in ANSWERS.items() if path.endswith(end)), None)
        self.answer(answer or "{}", 200 if answer else 404, "text/event-stream" if answer else "application/json")

    def do_GET(self):
        Model.asked.append(self.path)
        self.answer('{"data": [], "models": []}', 200, "application/json")

    def answer(self, text, status, kind):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def agents(modules, url):
    """What each is started with: its program, words and variables, and files of the workspace."""
    provider = '{name="fake",base_url="%s/v1",wire_api="responses",env_key="FAKE_KEY"}' % url
    models = {"fake": {"name": "fake", "limit": {"context": 100000, "output": 4096}}}
    options = {"baseURL": url + "/v1", "apiKey": "unused"}
    provided = {"fake": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}}
    opencode = {"autoupdate": False, "share": "disabled", "provider": provided, "model": "fake/fake",
                "small_model": "fake/fake"}
    codex = next((modules / "@openai").glob("codex-linux-*/vendor/*/bin/codex"))
    return {
        "claude": (
            modules / "@anthropic-ai/claude-code/bin/claude.exe",
            ["-p", "Say hello", "--permission-mode", "bypassPermissions"],
            {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "unused", "IS_SANDBOX": "1",
             "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
            {},
        ),
        "codex": (
            codex,
            ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "fake",
             "-c", "model_provider=fake", "-c", f"model_providers.fake={provider}", "Say hello"],
            {"FAKE_KEY": "unused"},
            {},
        ),
        "opencode": (
            modules / "opencode-ai/bin/opencode.exe",
            ["run", "--model", "fake/fake", "Say hello"],
            {"OPENCODE_CONFIG_CONTENT": json.dumps(opencode), "OPENCODE_DISABLE_MODELS_FETCH": "1"},
            {},
        ),
        "gemini": (
            "node",
            [str(modules / "@google/gemini-cli/bundle/gemini.js"), "-m", "fake", "-p", "Say hello"],
            {"GEMINI_API_KEY": "unused", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"},
            {".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}})},
        ),
    }


def run(lobster, modules, name, agent, port):
    program, words, variables, files = agent
    with tempfile.TemporaryDirectory() as place:
        work = pathlib.Path(place, "work")
        for file, text in {**files, "package.json": "{}"}.items():
            (work / file).parent.mkdir(parents=True, exist_ok=True)
            (work / file).write_text(text)
        env = {"PATH": "/usr/bin:/bin", "HOME": place, "LOBSTER_STATE_DIR": place + "/state"}
        template = subprocess.run([lobster, "policy", "init", "--kind", "node"], env=env, capture_output=True, text=True)
        pin = "" if program == "node" else f'[programs]\npin = {{ {name} = "{program}" }}\n'
        # A rule with hosts names every option; the exact words do.
        command = [name if pin else "node", *words]
        rule = {"id": name, "effect": "allow", "argv": command}
        grant = f'fs_write = ["@workspace"], fs_read = ["{modules}"], net = {{ hosts = ["127.0.0.1:{port}"] }}'
        rules = "".join(f"{key} = {json.dumps(value)}\n" for key, value in rule.items())
        policy = f"{template.stdout}\n{pin}[[rule]]\n{rules}grant = {{ {grant} }}\n"
        pathlib.Path(place, "policy.toml").write_text(policy)
        step = {"id": "a", "env": variables, "exec": command}
        (work / "flow.lobster").write_text(json.dumps({"steps": [step]}))
        Model.asked.clear()
        call = [lobster, "run", "--mode", "tool", "--policy", "../policy.toml", "flow.lobster"]
        answer = subprocess.run(call, cwd=work, env=env, capture_output=True, text=True, timeout=300)
        if SAID in answer.stdout and json.loads(answer.stdout)["ok"]:
            return None
        return f"{answer.stdout[-3000:]}{answer.stderr[-2000:]}asked: {Model.asked}"


def main():
    lobster, packages, *chosen = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    modules = pathlib.Path(packages).resolve() / "node_modules"
    all_agents = agents(modules, f"http://127.0.0.1:{server.server_port}")
    failed = 0
    for name in chosen or all_agents:
        wrong = run(os.path.abspath(lobster), modules, name, all_agents[name], server.server_port)
        failed += wrong is not None
        print(f"{name}: {wrong or 'started, and said what the model said'}", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
