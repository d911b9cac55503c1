"""A hosted model of the test suite: an OpenAI-shaped server whose clerk knows the house's convention only from a skill."""

import json
import random
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from examples.order_tools import PACKS, row


class Clerk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path.startswith("/v1/busy/"):
            self.send_response(429)
            self.send_header("retry-after", "3600")
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.server.asked += 1  # type: ignore[attr-defined]
        time.sleep(self.server.seconds)  # type: ignore[attr-defined]
        text = answer(body["messages"], body.get("seed", 0))
        sent = json.dumps({
            "id": "x", "object": "chat.completion", "created": 0, "model": body["model"],
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 50, "completion_tokens": 3, "total_tokens": 53},
        }).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args: object) -> None:
        pass


def answer(messages: list[dict[str, Any]], seed: int) -> str:
    knows = any("Know-how from earlier work" in str(m["content"]) for m in messages if m["role"] == "system")
    asked = next(str(m["content"]) for m in messages if m["role"] == "user")
    found = re.search(r"order (\d+)", asked)
    item, packs, price = row(int(found[1]) if found else 0)
    right = random.Random(seed).random() < (0.95 if knows else 0.2)
    return str(packs * price * (PACKS[item] if right else 1))


class Hosted:
    """The server on a free loopback port, until the `with` ends; it takes `seconds` for an answer."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __enter__(self) -> "Hosted":
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Clerk)
        self.server.asked = 0  # type: ignore[attr-defined]
        self.server.seconds = self.seconds  # type: ignore[attr-defined]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *ended: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    @property
    def asked(self) -> int:
        return int(self.server.asked)  # type: ignore[attr-defined]
