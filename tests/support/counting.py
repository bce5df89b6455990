"""Count S3 requests where they arrive: WSGI middleware, and a client to read the counts.

Needs nothing but the standard library, so that a demonstration may use it too.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs

#: Where counts are read (GET) and set back (DELETE). No bucket can be called so.
CONTROL_PATH = "/_requests"


def operation(environ: dict[str, Any]) -> str:
    """The S3 operation of a request by its method, path and query."""
    method = environ["REQUEST_METHOD"]
    query = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True)
    is_key = "/" in environ.get("PATH_INFO", "").strip("/")
    if not is_key:
        if method == "POST" and "delete" in query:
            return "DeleteObjects"
        if method == "GET" and "uploads" in query:
            return "ListMultipartUploads"
        if method == "GET" and ("list-type" in query or not query):
            return "ListObjects"
        return f"{method} bucket"
    if "uploadId" in query:
        return {
            "PUT": "UploadPart",
            "POST": "CompleteMultipartUpload",
            "DELETE": "AbortMultipartUpload",
            "GET": "ListParts",
        }.get(method, f"{method} upload")
    if method == "POST" and "uploads" in query:
        return "CreateMultipartUpload"
    if method == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" in environ:
        return "CopyObject"
    return {
        "PUT": "PutObject",
        "GET": "GetObject",
        "HEAD": "HeadObject",
        "DELETE": "DeleteObject",
    }.get(method, f"{method} object")


class CountingMiddleware:
    """Counts requests by bucket and operation, and makes what the app does one at a time.

    :param app: the WSGI application, such as moto's.
    :param latency: seconds each request takes longer; for measuring round trips.
    :param serialise: carry out changes one after the other. moto checks a condition and then
        writes, in threads: without this two conditional writes could both win.
    """

    def __init__(
        self, app: Callable[..., Iterable[bytes]], latency: float = 0.0, serialise: bool = True
    ) -> None:
        self._app = app
        self._latency = latency
        self._counts: dict[str, Counter[str]] = {}
        self._log: list[tuple[str, str, str]] = []
        self._lock = threading.Lock()
        self._change = threading.Lock() if serialise else None

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == CONTROL_PATH:
            return self._control(environ, start)
        if not path.startswith("/moto-api"):
            bucket, _, key = path.lstrip("/").partition("/")
            with self._lock:
                self._counts.setdefault(bucket, Counter())[operation(environ)] += 1
                self._log.append((bucket, operation(environ), key))
            if self._latency:
                time.sleep(self._latency)
        if self._change is None or environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._answer(environ, start)
        # Read the body first: a slow sender must not hold up the others.
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length and not environ.get("HTTP_TRANSFER_ENCODING"):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._change:
            return list(self._answer(environ, start))

    def _answer(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        """The app's answer; 500 in a line where it has none, as moto to a Complete of no upload."""
        try:
            return self._app(environ, start)
        except Exception as error:
            request = f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO')}"
            print(f"{request}: 500, {error!r}", file=sys.stderr, flush=True)
            body = b"<Error><Code>InternalError</Code><Message>The server failed.</Message></Error>"
            start("500 Internal Server Error", [("Content-Type", "application/xml")])
            return [body]

    def _control(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        query = parse_qs(environ.get("QUERY_STRING", ""))
        bucket = query.get("bucket", [None])[0]
        with self._lock:
            if environ["REQUEST_METHOD"] == "DELETE":
                for name in [bucket] if bucket else list(self._counts):
                    self._counts.pop(name, None)
                self._log = [entry for entry in self._log if bucket and entry[0] != bucket]
                answer: Any = {}
            elif "log" in query:
                answer = [entry[1:] for entry in self._log if bucket in (None, entry[0])]
            else:
                total: Counter[str] = Counter()
                for name in [bucket] if bucket else list(self._counts):
                    total.update(self._counts.get(name, Counter()))
                answer = dict(total)
        body = json.dumps(answer).encode()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


class RequestCounter:
    """Reads the counts of a server behind :class:`CountingMiddleware`.

    :param endpoint: the server's URL.
    :param bucket: only this bucket's requests; ``None`` for all.
    """

    def __init__(self, endpoint: str, bucket: str | None = None) -> None:
        self._url = f"{endpoint.rstrip('/')}{CONTROL_PATH}"
        self._query = f"bucket={bucket}&" if bucket else ""

    def counts(self) -> dict[str, int]:
        """Requests by operation, such as ``{"PutObject": 3, "UploadPart": 1}``."""
        return self._ask("GET")

    def total(self) -> int:
        return sum(self.counts().values())

    def log(self) -> list[tuple[str, str]]:
        """Operation and key of every request, in order of arrival."""
        return [(name, key) for name, key in self._ask("GET", "log=1")]

    def reset(self) -> None:
        self._ask("DELETE")

    def _ask(self, method: str, query: str = "") -> Any:
        request = urllib.request.Request(f"{self._url}?{self._query}{query}", method=method)
        # Without a proxy from the environment: the server is on this host.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as answer:
            return json.loads(answer.read())
