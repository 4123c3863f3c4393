"""Answers what the steps in this folder ask, on the port that is given or any; prints the port."""

import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, f"grüezi {self.headers.get('x-from')}".encode())

    def do_POST(self):
        body = b""
        if "content-length" in self.headers:
            body = self.rfile.read(int(self.headers["content-length"]))
        else:
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
        self.answer(201 if body == "ü".encode() * 5000 else 400, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(server.server_port, flush=True)
server.serve_forever()
