"""The store of a run: an S3 server, and a proxy before it that delays answers and counts requests.

The proxy is a process of its own (``python -m bench.store URL``): in the driver's it would take
the interpreter from what is measured there. It is told over its standard input, a line of JSON at
a time.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from torture.proxy import Proxy, Seen
from torture.servers import Store, serving

from support.faulty_server import Received, Reply, s3_error
from support.plain_bucket import PlainBucket

_CHECKOUT = Path(__file__).resolve().parents[2]
#: Where the modules are that a process of a run imports: these, the tests', the checkout's.
MODULES = os.pathsep.join(str(_CHECKOUT / it) for it in ("benchmarks", "tests", "."))
#: Dollars a request, S3 Standard in us-east-1, https://aws.amazon.com/s3/pricing/ (November 2026):
#: PUT, COPY, POST and LIST; GET and all others; DELETE and CANCEL are free.
_WRITE, _READ = 0.005 / 1000, 0.0004 / 1000
_READING = {"GetObject", "HeadObject", "HEAD bucket", "GET bucket"}
_FREE = {"DeleteObject", "DeleteObjects", "AbortMultipartUpload"}


def price(requests: Mapping[str, int]) -> float:
    """Dollars for requests, by operation."""
    dear = sum(n for name, n in requests.items() if name not in _READING | _FREE)
    return dear * _WRITE + sum(requests.get(name, 0) for name in _READING) * _READ


@dataclass(frozen=True)
class Traffic:
    """What the proxy has seen since it was last asked.

    :param written: bytes of objects and parts, and of objects that the store copied.
    :param throttled: answers that said *slow down*: what was measured then counts for nothing.
    """

    requests: dict[str, int]
    throttled: int = 0
    written: int = 0


@dataclass
class _ByteCounts:
    """Bytes that a store was given, and those that it copied itself."""

    total: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    _parts: Counter[str] = field(default_factory=Counter)

    def add(self, got: Received) -> None:
        """Count a request that the store has carried out."""
        url = urlsplit(got.path)
        path, upload = unquote(url.path), parse_qs(url.query).get("uploadId", [""])[0]
        if got.method == "POST" and upload:  # Its parts are one object from now on.
            self._sizes[path] = self._parts.pop(upload, 0)
        if got.method != "PUT":
            return
        size = int(got.headers.get("x-amz-decoded-content-length", len(got.body)))
        if source := got.headers.get("x-amz-copy-source"):
            size = self._sizes.get("/" + unquote(source).lstrip("/").partition("?")[0], 0)
        if upload:
            self._parts[upload] += size
        else:
            self._sizes[path] = size
        self.total += size


class _CountingProxy(Proxy):
    """Counts what is written, too."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.written = _ByteCounts()
        self._counting = threading.Lock()

    def _carry_out(self, got: Received, pass_on: Callable[[], Reply]) -> Reply:
        def counted() -> Reply:
            reply = pass_on()
            if reply.status < 300:
                with self._counting:
                    self.written.add(got)
            return reply

        return super()._carry_out(got, counted)


class DelayedStore:
    """A store as peers reach it.

    :param direct: past the proxy, to make ready and to look at what is there.
    :param behind: with the proxy's endpoint.
    """

    def __init__(self, direct: Store, proxy: subprocess.Popen[str], endpoint: str) -> None:
        self.direct = direct
        self.behind = replace(direct, endpoint=endpoint)
        self.client = direct.client()
        self._proxy = proxy

    def delay(self, seconds: float) -> None:
        """Answer so much later from now on, and count anew."""
        self._ask({"latency": seconds})

    def traffic(self) -> Traffic:
        """Requests since :meth:`delay`, when the last of them has been answered."""
        return Traffic(**self._ask({}))

    def bucket(self, name: str) -> PlainBucket:
        """A bucket, past the proxy."""
        return PlainBucket(name, self.client)

    def make_bucket(self, name: str) -> None:
        with contextlib.suppress(self.client.exceptions.BucketAlreadyOwnedByYou):
            self.client.create_bucket(Bucket=name)

    def files(self, bucket: str, prefix: str) -> list[int]:
        """Sizes of the data files below a prefix; not of what committers or Delta's log leave."""
        found = self.bucket(bucket).sizes(f"{prefix}/").items()
        others = ("/_temporary/", "/_delta_log/")
        return [
            n for key, n in found if key.endswith(".parquet") and not any(o in key for o in others)
        ]

    def upload(self, bucket: str, url: str, count: int) -> None:
        """Leave so many uploads below a table, as a dead writer does."""
        prefix = url.split("/", 3)[3]

        def begin(number: int) -> None:
            key = f"{prefix}/day={number % 31}/part-{number:05d}.parquet"
            self.client.create_multipart_upload(Bucket=bucket, Key=key)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(begin, range(count)))

    def _ask(self, what: dict[str, float]) -> dict[str, Any]:
        assert self._proxy.stdin is not None
        assert self._proxy.stdout is not None
        print(json.dumps(what), file=self._proxy.stdin, flush=True)
        return json.loads(self._proxy.stdout.readline())


@contextlib.contextmanager
def delayed(server: str) -> Iterator[DelayedStore]:
    """Start a server and the proxy before it, and end both.

    :param server: ``moto``, or another one of ``tools/s3_servers.py``.
    :raises ServerError: it is not there.
    """
    # Pages as long as S3's, not as short as the tests'.
    os.environ |= {"MOTO_S3_DEFAULT_MAX_KEYS": "1000"}
    with serving(server) as store, behind_proxy(store) as seen:
        yield seen


@contextlib.contextmanager
def behind_proxy(store: Store) -> Iterator[DelayedStore]:
    """A proxy before a server that runs."""
    command = [sys.executable, "-m", "bench.store", store.endpoint]
    proxy = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": MODULES},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert proxy.stdout is not None
        yield DelayedStore(store, proxy, proxy.stdout.readline().strip())
    finally:
        proxy.kill()
        proxy.communicate()


def main(upstream: str) -> None:
    """Serve until the standard input ends."""
    with _CountingProxy(upstream) as proxy:
        throttled = 0

        def faults(seen: Seen, carry_out: Callable[[], Reply]) -> Reply:
            nonlocal throttled
            reply = carry_out()
            if seen.operation == "CompleteMultipartUpload" and reply.status == 500:
                # moto's answer where there is no such upload; clients would wait and try again.
                return s3_error(404, "NoSuchUpload")
            throttled += reply.status in (429, 503)
            return reply

        proxy.faults = faults
        print(proxy.endpoint, flush=True)
        for line in sys.stdin:
            asked = json.loads(line)
            with contextlib.suppress(TimeoutError):  # A request that hangs is counted, too.
                proxy.drain()
            requests = Counter(it.operation for it in proxy.seen)
            answer = {"requests": requests, "throttled": throttled}
            answer["written"] = proxy.written.total
            if "latency" in asked:
                proxy.latency = asked["latency"]
                throttled = proxy.written.total = 0
                proxy.watch()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
