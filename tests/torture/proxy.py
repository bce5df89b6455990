"""A proxy before an S3 server that sees every request, slows it down, and can act at any one.

Requests pass as they are, ``Host``, ``Server`` and ``Date`` included: signatures stay valid, and
the committer sees the store it is on.
"""

from __future__ import annotations

import http.client
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from support.counting import operation

#: Headers that concern one connection only, or that are made anew.
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "expect"}


class When(StrEnum):
    """Where in a request something happens."""

    BEFORE = "before it reaches the store"
    AFTER = "after the store did it, the answer lost"
    LATER = "some time later, whatever is under way then"


@dataclass(frozen=True)
class Seen:
    """A request as it came in.

    :param port: the client's port, which tells processes apart.
    :param dated: when the client says it is, by its ``X-Amz-Date``.
    """

    operation: str
    key: str
    port: int
    dated: str = ""


#: A status, headers, and a body.
Answer = tuple[int, list[tuple[str, str]], bytes]
#: What becomes of a request: by what carries it out, its answer, another one, or ``None``: the
#: connection is closed without one.
Weather = Callable[[Seen, Callable[[], Answer]], Answer | None]


def fair(_: Seen, carry_out: Callable[[], Answer]) -> Answer:
    """The weather of a store that answers everything."""
    return carry_out()


@dataclass(frozen=True)
class Trap:
    """Something to do at one request.

    :param wanted: tells by the number of the request, from 0, and the request.
    :param act: done in the request's thread; the client gets no answer but with ``LATER``. What
        it raises comes out of the proxy's ``with``.
    :param delay: of ``LATER``, in seconds.
    """

    wanted: Callable[[int, Seen], bool]
    when: When
    act: Callable[[], None]
    delay: float = 0.0


class Proxy:
    """Serves while it is entered.

    :param upstream: the server's URL.
    :param latency: seconds each request takes longer.
    :param weather: what becomes of each request that no trap strikes.
    """

    def __init__(self, upstream: str, latency: float = 0.0, weather: Weather = fair) -> None:
        self.upstream = urlsplit(upstream)
        self.latency = latency
        self.weather = weather
        self.seen: list[Seen] = []
        self._trap: Trap | None = None
        self._failures: list[Exception] = []
        self._active = 0
        self._changed = threading.Condition()
        self._idle: queue.LifoQueue[http.client.HTTPConnection] = queue.LifoQueue()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1  # One packet for head and body of an answer.

            def _serve(self) -> None:
                proxy.handle(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

            def handle_expect_100(self) -> bool:
                answered = super().handle_expect_100()
                # Java's client sends no body before it has seen this, or a second has passed.
                self.wfile.flush()
                return answered

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # The client was killed.

        self._http = Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        if self._failures and kind is None:
            raise ExceptionGroup("what was to happen at a request failed", self._failures)

    def watch(self, trap: Trap | None = None) -> None:
        """Forget the requests seen so far and wait for one to act at."""
        with self._changed:
            self.seen = []
            self._trap = trap

    def drain(self, seconds: float = 60.0) -> None:
        """Wait until the store has answered all that was sent to it.

        :raises TimeoutError: it has not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._active, seconds):
                raise TimeoutError(f"{self._active} requests are still under way")

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        """Carry out one request. Called by the server's threads."""
        length = int(handler.headers.get("Content-Length") or 0)
        body = handler.rfile.read(length)
        if len(body) < length:
            # The client was killed in the middle: no store carries such a request out.
            handler.close_connection = True
            return
        seen, trap = self._note(handler)
        try:
            if trap is not None and trap.when is When.BEFORE:
                self._act(trap)
                handler.close_connection = True
                return
            if trap is not None and trap.when is When.LATER:
                threading.Timer(trap.delay, self._act, (trap,)).start()
                trap = None
            if self.latency:
                time.sleep(self.latency)
            answer = self.weather(seen, lambda: self._pass_on(handler, body))
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()
        if trap is not None:
            self._act(trap)
        if trap is not None or answer is None:
            handler.close_connection = True
            return
        self._send(handler, *answer)

    def _act(self, trap: Trap) -> None:
        try:
            trap.act()
        except Exception as error:  # Raised where the test can see it.
            self._failures.append(error)

    def _note(self, handler: BaseHTTPRequestHandler) -> tuple[Seen, Trap | None]:
        url = urlsplit(handler.path)
        path = unquote(url.path)
        environ = {
            "REQUEST_METHOD": handler.command,
            "QUERY_STRING": url.query,
            "PATH_INFO": path,
        }
        key = path.lstrip("/").partition("/")[2]
        dated = handler.headers.get("X-Amz-Date", "")
        seen = Seen(operation(environ), key, handler.client_address[1], dated)
        with self._changed:
            self._active += 1
            number = len(self.seen)
            self.seen.append(seen)
            trap = self._trap
            if trap is None or not trap.wanted(number, seen):
                return seen, None
            self._trap = None
            return seen, trap

    def _pass_on(self, handler: BaseHTTPRequestHandler, body: bytes) -> Answer:
        headers = {n: v for n, v in handler.headers.items() if n.lower() not in _HOP}
        headers["Content-Length"] = str(len(body))
        connection = self._connection()
        connection.putrequest(handler.command, handler.path, True, True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        kept = [(n, v) for n, v in answer.getheaders() if n.lower() not in _HOP]
        length = answer.getheader("Content-Length") if handler.command == "HEAD" else None
        kept.append(("Content-Length", length or str(len(content))))
        if answer.will_close:
            connection.close()
        else:
            self._idle.put(connection)
        return answer.status, kept, content

    def _connection(self) -> http.client.HTTPConnection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            host, port = self.upstream.hostname, self.upstream.port
            return http.client.HTTPConnection(host or "", port, timeout=60)

    def _send(
        self,
        handler: BaseHTTPRequestHandler,
        status: int,
        headers: list[tuple[str, str]],
        body: bytes,
    ) -> None:
        handler.send_response_only(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)
