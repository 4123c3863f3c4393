"""HTTP requests to hosts that the step is granted.

A step that imports this module is built for the world step-http. Its description asks for the
hosts: ``wants = [("net", "api.example:443", "to read the weather")]``.
"""

import json as _json
from urllib.parse import urlsplit

from componentize_py_types import Err
from lobster_step import StepError
from wit_world.imports import outgoing_handler, streams
from wit_world.imports import wasi_http_types as http

AT_ONCE = 4096


class Response:
    """What a host answered."""

    def __init__(self, status, headers, body):
        self.status = status
        #: By name in lower case.
        self.headers = headers
        #: Bytes.
        self.body = body

    @property
    def ok(self):
        return 200 <= self.status < 300

    def text(self):
        return self.body.decode()

    def json(self):
        return _json.loads(self.body)


def request(url, method="GET", headers=None, body=None):
    """Makes one request and waits for the whole answer. Redirects are not followed.

    ``body`` is text or bytes. What is refused, or fails before there is an answer, is the
    StepError ``http``, which may be tried again; an answer of any status is an answer.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise StepError("bad-args", f"{url} is not an http or https URL")
    body = body.encode() if isinstance(body, str) else body
    try:
        return _answer(_asked(parts, method.upper(), headers or {}), body)
    except Err as error:
        why = type(error.value).__name__.removeprefix("ErrorCode_")
        raise StepError("http", f"{method} {url}: {why}", why != "HttpRequestDenied") from None


def _asked(parts, method, headers):
    fields = http.Fields.from_list([(name, str(value).encode()) for name, value in headers.items()])
    asked = http.OutgoingRequest(fields)
    known = getattr(http, f"Method_{method.capitalize()}", None)
    asked.set_method(known() if known else http.Method_Other(method))
    asked.set_scheme(http.Scheme_Https() if parts.scheme == "https" else http.Scheme_Http())
    asked.set_authority(parts.netloc)
    asked.set_path_with_query((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    return asked


def _answer(asked, body):
    outgoing = asked.body()
    waiting = outgoing_handler.handle(asked, None)
    if body:
        with outgoing.write() as stream:
            for at in range(0, len(body), AT_ONCE):
                stream.blocking_write_and_flush(body[at : at + AT_ONCE])
    http.OutgoingBody.finish(outgoing, None)
    with waiting.subscribe() as pollable:
        pollable.block()
    # Whether it is there, whether it was taken before, whether it is an answer.
    result = waiting.get()
    while not isinstance(result, http.IncomingResponse):
        if isinstance(result, Err):
            raise result
        result = result.value
    headers = {name.lower(): value.decode("latin-1") for name, value in result.headers().entries()}
    return Response(result.status(), headers, _read(result.consume()))


def _read(body):
    parts = []
    with body.stream() as stream:
        while True:
            try:
                parts.append(stream.blocking_read(AT_ONCE * 16))
            except Err as error:
                if isinstance(error.value, streams.StreamError_Closed):
                    return b"".join(parts)
                raise
