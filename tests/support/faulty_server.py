"""An HTTP server that answers what a test tells it to, or passes on and then misbehaves."""

from __future__ import annotations

import http.client
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from support.waiting import STUCK


@dataclass(frozen=True)
class Received:
    """A request as it came in; header names in lower case.

    :param port: the client's, which tells connections apart.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    port: int = 0


@dataclass(frozen=True)
class Reply:
    """An answer. Status 0: the connection is closed without one."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


DROPPED = Reply(0)


def s3_error(status: int, code: str) -> Reply:
    """An S3 error document, with a message that quotes what must not reach a log."""
    body = f"<Error><Code>{code}</Code><Message>signed with SECRET-KEY</Message></Error>"
    return Reply(status, body.encode(), {"Content-Type": "application/xml"})


Answer = Callable[[Received, Callable[[], Reply]], Reply]
#: Headers that concern one connection only, or that are made anew.
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


class FaultyServer:
    """Serves while it is entered.

    Requests are passed on as they are, and answers come back so, ``Host``, ``Server`` and ``Date``
    included: signatures stay valid, and the client sees the store it is on.

    :param answer: called with each request and what passes it on to ``upstream``.
    :param upstream: the URL of a real server.
    """

    def __init__(self, answer: Answer, upstream: str | None = None) -> None:
        self._answer = answer
        self._upstream = urlsplit(upstream or "")
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()
        self.received: list[Received] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1  # One packet for head and body of an answer.

            def _serve(self) -> None:
                server._handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

            def handle_expect_100(self) -> bool:
                answered = super().handle_expect_100()
                # Java's client sends no body before it has seen this, or a second has passed.
                self.wfile.flush()
                return answered

            def log_message(self, format: str, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # The client is gone.

        self._http = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handle(self, handler: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        body = _body(handler, headers)
        if body is None:
            # The client was killed in the middle: no store carries such a request out.
            handler.close_connection = True
            return
        port = handler.client_address[1]
        got = Received(handler.command, handler.path, headers, body, port)
        self._note(got)
        reply = self._answer(got, lambda: self._pass_on(got))
        if reply.status == 0:
            handler.close_connection = True
            return
        if "Server" in reply.headers:
            handler.send_response_only(reply.status)  # Without a name and date of its own.
        else:
            handler.send_response(reply.status)
        for name, value in {"Content-Length": str(len(reply.body)), **reply.headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(reply.body)

    def _note(self, got: Received) -> None:
        self.received.append(got)

    def _pass_on(self, got: Received) -> Reply:
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            host, port = self._upstream.hostname, self._upstream.port
            connection = http.client.HTTPConnection(host or "", port, timeout=STUCK)
        connection.putrequest(got.method, got.path, True, True)
        sent = {name: value for name, value in got.headers.items() if name not in _HOP}
        for name, value in {**sent, "Content-Length": str(len(got.body))}.items():
            connection.putheader(name, value)
        connection.endheaders(got.body)
        answer = connection.getresponse()
        body = answer.read()
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
        if got.method == "HEAD":
            kept["Content-Length"] = answer.getheader("Content-Length") or "0"
        if answer.will_close:
            connection.close()
        else:
            self._idle.put(connection)
        return Reply(answer.status, body, kept)


def _body(handler: BaseHTTPRequestHandler, headers: Mapping[str, str]) -> bytes | None:
    """The whole of a request's body, or ``None`` where the connection ended within it."""
    if "chunked" not in headers.get("transfer-encoding", ""):
        length = int(headers.get("content-length") or 0)
        body = handler.rfile.read(length)
        return body if len(body) == length else None
    chunks = []
    while length := int(handler.rfile.readline().split(b";")[0].strip() or b"-1", 16):
        chunk = handler.rfile.read(length + 2) if length > 0 else b""
        if len(chunk) != length + 2:
            return None
        chunks.append(chunk[:-2])
    while handler.rfile.readline().strip():
        pass  # Trailers of HTTP's own; S3's are within the body.
    return b"".join(chunks)


def always(reply: Reply, after: float = 0.0) -> Answer:
    """The same answer to everything, after so many seconds."""

    def answer(_: Received, __: Callable[[], Reply]) -> Reply:
        if after:
            time.sleep(after)
        return reply

    return answer


def http_date(seconds: float) -> str:
    return formatdate(seconds, usegmt=True)
