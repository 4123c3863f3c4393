#!/usr/bin/env python3
"""Records what the official Python SDKs send and read, for tests/sdk_shapes.rs.

    python3 -m venv DIR && DIR/bin/pip install -r tests/models/requirements.txt
    DIR/bin/python tests/models/record.py > tests/models/shapes.json

For each SDK: the requests of equal calls for a stream (`requests`), the types of its requests as JSON Schema
(`schemas`), a whole response as its own types write it (`responses`), the events of a stream as its types write
and its client reads them (`streams`), and how often it sends a request that is answered with a status (`statuses`).
Nothing leaves this machine.
"""

import base64
import http.server
import json
import sys
import threading
from importlib.metadata import version

import anthropic
import openai
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from google import genai
from google.genai import types
from openai.types import CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

KEY = "sk-recorded-not-a-key"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
STATUSES = [400, 401, 403, 404, 408, 409, 422, 429, 500, 503]


class Server(http.server.ThreadingHTTPServer):
    """Keeps requests, and answers with what it is told."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen = []
        self.answer = (200, {})
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.seen.append((self.path, dict(self.headers), json.loads(body)))
        status, answer = self.server.answer
        is_stream = isinstance(answer, list)
        answer = "".join(map(event, answer)).encode() if is_stream else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
        self.send_header("retry-after-ms", "1")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def event(data):
    if isinstance(data, str):
        return f"data: {data}\n\n"
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n"


def data_url(kind, data):
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


CHAT = ChatCompletion.model_validate({
    "id": "chatcmpl-1", "object": "chat.completion", "created": 1760000000, "model": "gpt-4o-2024-08-06",
    "choices": [{"index": 0, "finish_reason": "stop", "logprobs": None,
                 "message": {"role": "assistant", "content": "{\"n\": 7}", "refusal": None, "annotations": []}}],
    "usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
              "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
              "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0}},
})
RESPONSE = Response.model_validate({
    "id": "resp_1", "object": "response", "created_at": 1760000000, "status": "completed", "model": "gpt-4o-2024-08-06",
    "output": [{"type": "reasoning", "id": "rs_1", "summary": []},
               {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "{\"n\": 7}", "annotations": []}]}],
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "instructions": None, "metadata": {},
    "temperature": 1.0, "top_p": 1.0, "error": None, "incomplete_details": None,
    "usage": {"input_tokens": 19, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 10,
              "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 29},
})
EMBEDDINGS = CreateEmbeddingResponse.model_validate({
    "object": "list", "model": "text-embedding-3-small", "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -1.0]}],
    "usage": {"prompt_tokens": 2, "total_tokens": 2},
})


def message(content):
    return Message.model_validate({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-haiku-4-5-20251001", "content": content,
        "stop_reason": "tool_use" if content[0]["type"] == "tool_use" else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 19, "output_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    })


GEMINI = types.GenerateContentResponse.model_validate({
    "candidates": [{"content": {"role": "model", "parts": [{"text": "{\"n\": 7}"}]}, "finishReason": "STOP", "index": 0}],
    "modelVersion": "gemini-2.5-flash", "responseId": "r1",
    "usageMetadata": {"promptTokenCount": 19, "candidatesTokenCount": 10, "totalTokenCount": 29},
})


def dumped(model):
    return model.model_dump(mode="json", by_alias=True)


def chunk(delta, finish=None, **more):
    choices = [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]
    return ChatCompletionChunk.model_validate({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1760000000, "model": "gpt-4o-2024-08-06",
        "choices": choices, **more})


def response_events():
    adapter = TypeAdapter(ResponseStreamEvent)
    whole = dumped(RESPONSE)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    item = whole["output"][1]
    part = item["content"][0]
    of_item = {"item_id": "msg_1", "output_index": 1}
    of_part = {**of_item, "content_index": 0}
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {"type": "response.output_item.added", "output_index": 1, "item": {**item, "status": "in_progress", "content": []}},
        {"type": "response.content_part.added", **of_part, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **of_part, "delta": "{\"n\"", "logprobs": []},
        {"type": "response.output_text.delta", **of_part, "delta": ": 7}", "logprobs": []},
        {"type": "response.output_text.done", **of_part, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **of_part, "part": part},
        {"type": "response.output_item.done", "output_index": 1, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return [dumped(adapter.validate_python({**event, "sequence_number": at})) for at, event in enumerate(events)]


def message_events(block, deltas, reason):
    adapter = TypeAdapter(RawMessageStreamEvent)
    start = {**dumped(message([{"type": "text", "text": ""}])), "content": [], "stop_reason": None}
    start["usage"] = {**start["usage"], "output_tokens": 1}
    events = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]
    return [dumped(adapter.validate_python(event)) for event in events]


def gemini_chunk(text, finish=None):
    return types.GenerateContentResponse.model_validate({
        **GEMINI.model_dump(mode="json", by_alias=True, exclude_none=True),
        "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0, **({"finishReason": finish} if finish else {})}],
    })


def openai_calls(client):
    chat = lambda **more: client.chat.completions.create(**{"model": "gpt-4o", "stream": True, "stream_options": {"include_usage": True}, "messages": [{"role": "user", "content": "Hello"}], **more})
    image = [{"type": "text", "text": "Hello"}, {"type": "image_url", "image_url": {"url": data_url("image/png", PNG)}}]
    return {
        "text": lambda: chat(),
        "system": lambda: chat(messages=[{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hello"}]),
        "limit": lambda: chat(max_completion_tokens=64, temperature=0.5),
        "stop": lambda: chat(stop=["END"]),
        "seed": lambda: chat(seed=7),
        "effort": lambda: chat(reasoning_effort="low"),
        "image": lambda: chat(messages=[{"role": "user", "content": image}]),
        "schema": lambda: chat(response_format={"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}),
    }


def responses_calls(client):
    ask = lambda **more: client.responses.create(**{"model": "gpt-4o", "input": "Hello", "store": False, "stream": True, **more})
    return {
        "text": lambda: ask(),
        "system": lambda: ask(instructions="Be brief"),
        "limit": lambda: ask(max_output_tokens=64, temperature=0.5),
        "effort": lambda: ask(reasoning={"effort": "low"}),
        "schema": lambda: ask(text={"format": {"type": "json_schema", "name": "answer", "strict": True, "schema": SCHEMA}}),
    }


def anthropic_calls(client):
    ask = lambda **more: client.messages.create(**{"model": "claude-haiku-4-5", "max_tokens": 64, "stream": True, "messages": [{"role": "user", "content": "Hello"}], **more})
    image = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}}, {"type": "text", "text": "Hello"}]
    return {
        "limit": lambda: ask(),
        "system": lambda: ask(system="Be brief"),
        "stop": lambda: ask(stop_sequences=["END"]),
        "effort": lambda: ask(output_config={"effort": "low"}),
        "image": lambda: ask(messages=[{"role": "user", "content": image}]),
        "schema": lambda: ask(tools=[{"name": "answer", "input_schema": SCHEMA}], tool_choice={"type": "tool", "name": "answer"}),
    }


def gemini_calls(client):
    ask = lambda **config: client.models.generate_content_stream(model="gemini-2.5-flash", contents="Hello", config=types.GenerateContentConfig(**config))
    return {
        "text": lambda: ask(),
        "system": lambda: ask(system_instruction="Be brief"),
        "limit": lambda: ask(max_output_tokens=64, temperature=0.5),
        "stop": lambda: ask(stop_sequences=["END"]),
        "seed": lambda: ask(seed=7),
    }


def clients(url, retries):
    return {
        "openai": openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=retries),
        "openai-responses": openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=retries),
        "anthropic": anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=retries),
        "gemini": genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=url)),
    }


CALLS = {"openai": openai_calls, "openai-responses": responses_calls, "anthropic": anthropic_calls, "gemini": gemini_calls}
RESPONSES = {
    "openai": {"text": dumped(CHAT), "embeddings": dumped(EMBEDDINGS)},
    "openai-responses": {"text": dumped(RESPONSE)},
    "anthropic": {
        "text": dumped(message([{"type": "text", "text": "{\"n\": 7}"}])),
        "schema": dumped(message([{"type": "tool_use", "id": "toolu_1", "name": "answer", "input": {"n": 7}}])),
    },
    "gemini": {"text": dumped(GEMINI)},
}


STREAMS = {
    "openai": {"text": [
        *map(dumped, [
            chunk({"role": "assistant", "content": "", "refusal": None}), chunk({"content": "{\"n\""}), chunk({"content": ": 7}"}),
            chunk({}, "stop"), chunk({}, usage=dumped(CHAT)["usage"]).model_copy(update={"choices": []}),
        ]), "[DONE]",
    ]},
    "openai-responses": {"text": response_events()},
    "anthropic": {
        "text": message_events(
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": "{\"n\""}, {"type": "text_delta", "text": ": 7}"}], "end_turn"),
        "schema": message_events(
            {"type": "tool_use", "id": "toolu_1", "name": "answer", "input": {}},
            [{"type": "input_json_delta", "partial_json": part} for part in ("", "{\"n\"", ": 7}")], "tool_use"),
    },
    "gemini": {"text": [dumped(gemini_chunk("{\"n\"")), dumped(gemini_chunk(": 7}", "STOP"))]},
}


def closed(schema):
    """The same without texts, and with objects that have no other fields than those of the types."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for name, part in schema.items():
        if name in ("title", "description", "default") and not isinstance(part, dict):
            continue
        if name in ("properties", "$defs"):
            out[name] = {key: closed(value) for key, value in part.items()}
        else:
            out[name] = closed(part)
    if "properties" in out:
        out.setdefault("additionalProperties", False)
    return out


def schema_of(kind):
    return closed(TypeAdapter(kind).json_schema(by_alias=True))


def gemini_schema():
    parts = {"contents": list[types.Content], "systemInstruction": types.Content, "generationConfig": types.GenerationConfig}
    defs, properties = {}, {}
    for name, kind in parts.items():
        schema = TypeAdapter(kind).json_schema(by_alias=True)
        defs.update(schema.pop("$defs", {}))
        properties[name] = schema
    return closed({"type": "object", "properties": properties, "required": ["contents"], "$defs": defs})


def record():
    server = Server()
    requests, statuses = {}, {}
    for provider, calls in CALLS.items():
        requests[provider] = {}
        for name, call in calls(clients(server.url, 0)[provider]).items():
            server.seen.clear()
            streams = STREAMS[provider]
            events = streams.get(name, streams["text"])
            server.answer = (200, events)
            # The client reads what these tests play.
            read = sum(1 for _ in call())
            assert read >= len([event for event in events if event != "[DONE]"]), (provider, name, read)
            path, headers, body = server.seen[0]
            sent = {header.lower(): value for header, value in headers.items()}
            wanted = [header for header in sent if KEY in sent[header] or header == "anthropic-version"]
            requests[provider][name] = {"path": path, "headers": {header: sent[header] for header in wanted}, "body": body}
        if provider == "gemini":
            continue  # it sends everything once unless it is told otherwise
        statuses[provider] = {}
        for status in STATUSES:
            server.seen.clear()
            server.answer = (status, {"error": {"message": "no", "type": "played"}})
            try:
                next(iter(calls(clients(server.url, 2)[provider]).values()))()
            except (openai.APIStatusError, anthropic.APIStatusError):
                pass
            statuses[provider][str(status)] = len(server.seen)
    server.seen.clear()
    server.answer = (200, RESPONSES["openai"]["embeddings"])
    clients(server.url, 0)["openai"].embeddings.create(model="text-embedding-3-small", input=["Hello"], encoding_format="float")
    path, headers, body = server.seen[0]
    requests["openai"]["embeddings"] = {"path": path, "headers": {"authorization": f"Bearer {KEY}"}, "body": body}
    return {
        "versions": {name: version(name) for name in ("openai", "anthropic", "google-genai")},
        "requests": requests,
        "responses": RESPONSES,
        "streams": STREAMS,
        "statuses": statuses,
        "schemas": {
            "openai": schema_of(CompletionCreateParamsStreaming),
            "openai-responses": schema_of(ResponseCreateParamsStreaming),
            "embeddings": schema_of(EmbeddingCreateParams),
            "anthropic": schema_of(MessageCreateParamsStreaming),
            "gemini": gemini_schema(),
        },
    }


json.dump(record(), sys.stdout, sort_keys=True, separators=(",", ":"))
print()
