"""A local server that speaks the chat completions protocol, and misbehaves when it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Server:
    """Answers with ``script`` in order, the last one for ever; keeps what it was sent."""

    base_url: str
    script: list[Any]
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


@contextmanager
def serve(*script: Any) -> Iterator[Server]:
    """A server for the block. ``script``: its answers in order: a text, a whole reply, a status
    with a body, or a function of handler and request that gives one of these or None."""
    state = Server("", list(script))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.requests.append(body)
            state.keys.append(self.headers.get("Authorization", ""))
            reply = state.script.pop(0) if len(state.script) > 1 else state.script[0]
            if callable(reply):
                reply = reply(self, body)
            if reply is not None:
                self._send(reply)

        def _send(self, reply: Any) -> None:
            status, data = reply if isinstance(reply, tuple) else (200, reply)
            if isinstance(data, str) and status == 200:
                data = completion(data)
            raw = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: Any) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    state.base_url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def completion(
    text: str | None, finish: str = "stop", usage: Any = (11, 7), **message: Any
) -> dict[str, Any]:
    """A whole reply. ``usage``: tokens of question and answer, or None to say nothing of them."""
    told: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "stub",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
    }
    if usage is not None:
        told["usage"] = {
            "prompt_tokens": usage[0],
            "completion_tokens": usage[1],
            "total_tokens": usage[0] + usage[1],
        }
    return told


def error(status: int, message: str = "no") -> tuple[int, dict[str, Any]]:
    """An error as such servers send it."""
    return status, {"error": {"message": message, "type": "stub", "code": None}}


def slow(seconds: float, text: str) -> Callable[..., Any]:
    """An answer that comes after a while."""

    def reply(handler: BaseHTTPRequestHandler, body: Any) -> str:
        time.sleep(seconds)
        return text

    return reply


def dribble(seconds: float) -> Callable[..., Any]:
    """A byte now and then, so that no time limit between two bytes ever sees it."""

    def reply(handler: BaseHTTPRequestHandler, body: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                handler.wfile.write(b" ")
                handler.wfile.flush()
            except OSError:
                return
            time.sleep(0.05)

    return reply


def hang_up(handler: BaseHTTPRequestHandler, body: Any) -> None:
    """Half of an answer, and the line goes dead."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    handler.wfile.write(b'{"id": "1", "choi')
    handler.close_connection = True
