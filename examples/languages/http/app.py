"""Reads a URL, and posts to it."""

from lobster_http import request
from lobster_step import Step, exported


class Fetch(Step):
    name = "fetch"
    version = "0.1.0"
    summary = "Reads a URL, and posts to it"
    args = {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}}
    output = {}
    wants = [("net", "", "to read the URL")]

    def run(self, args, input, output):
        answer = request(args["url"], headers={"x-from": "python"})
        output.emit({"status": answer.status, "type": answer.headers.get("content-type"), "text": answer.text()})
        posted = request(args["url"], "POST", body="ü" * 5000)
        output.emit({"status": posted.status})


WitWorld = exported(Fetch)
