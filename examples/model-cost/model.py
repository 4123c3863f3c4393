"""Plays a model server: /chat/completions as OpenAI and most local servers have it.

    python3 model.py COMMAND...    runs COMMAND while the server answers
"""
import json, os, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = asked["messages"][-1]["content"]
        urgent = "outage" in text or "overdue" in text
        answer = json.dumps({"label": "urgent" if urgent else "later"})
        body = json.dumps({
            "model": asked["model"],
            "choices": [{"message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 400, "completion_tokens": 10, "total_tokens": 410},
        }).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{server.server_port}/v1"
fake = {"LOBSTER_LLM_PROVIDER": "openai", "OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none-needed-here"}
sys.exit(subprocess.run(sys.argv[1:], env={**os.environ, **fake}).returncode)
