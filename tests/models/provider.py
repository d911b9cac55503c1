"""A hosted provider for tests: a real HTTP server that speaks OpenAI's tongue and misbehaves as it is told."""

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

HANG = -1


@dataclass
class Provider:
    """A server that plays its script, one entry a request, the last one for ever."""

    script: list[tuple[int, dict[str, str], object]] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    most_at_once: int = 0
    port: int = 0
    _busy: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = next(int(line.split(":")[1]) for line in head.splitlines() if line.lower().startswith("content-length"))
                self.bodies.append(json.loads(await reader.readexactly(length)))
                self.heads.append(head)
                status, headers, body = self.script.pop(0) if len(self.script) > 1 else self.script[0]
                self._busy += 1
                self.most_at_once = max(self.most_at_once, self._busy)
                await asyncio.sleep(3600 if status == HANG else 0.005)
                self._busy -= 1
                sent = body if isinstance(body, bytes) else json.dumps(body).encode()
                lines = [f"HTTP/1.1 {status} -", "content-type: application/json", f"content-length: {len(sent)}"]
                lines += [f"{name}: {value}" for name, value in headers.items()]
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + sent)
                await writer.drain()
        writer.close()
