"""An HTTP server that answers what a test tells it to, or passes on and then misbehaves."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
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


class FaultyServer:
    """Serves while it is entered.

    :param answer: called with each request and what passes it on to ``upstream``.
    :param upstream: the URL of a real server.
    """

    def __init__(self, answer: Answer, upstream: str | None = None) -> None:
        self._answer = answer
        self._upstream = upstream
        self.received: list[Received] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = self.rfile.read(length)
                got = Received(self.command, self.path, headers, body, self.client_address[1])
                server.received.append(got)
                reply = server._answer(got, lambda: server._pass_on(got))
                if reply.status == 0:
                    self.close_connection = True
                    return
                if "Server" in reply.headers:
                    self.send_response_only(reply.status)  # Without a name and date of its own.
                else:
                    self.send_response(reply.status)
                sent = {"Content-Length": str(len(reply.body)), **reply.headers}
                for name, value in sent.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> FaultyServer:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _pass_on(self, got: Received) -> Reply:
        assert self._upstream is not None
        to = urlsplit(self._upstream)
        connection = http.client.HTTPConnection(to.hostname or "", to.port, timeout=STUCK)
        headers = {name: value for name, value in got.headers.items() if name != "expect"}
        connection.request(got.method, got.path, got.body, headers)
        answer = connection.getresponse()
        body = answer.read()
        drop = {"transfer-encoding", "connection", "content-length", "date", "server"}
        kept = {name: value for name, value in answer.getheaders() if name.lower() not in drop}
        if got.method == "HEAD":
            kept["Content-Length"] = answer.getheader("Content-Length") or "0"
        connection.close()
        return Reply(answer.status, body, kept)


def always(reply: Reply, after: float = 0.0) -> Answer:
    """The same answer to everything, after so many seconds."""

    def answer(_: Received, __: Callable[[], Reply]) -> Reply:
        if after:
            time.sleep(after)
        return reply

    return answer


def http_date(seconds: float) -> str:
    return formatdate(seconds, usegmt=True)
