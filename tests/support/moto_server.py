"""moto's S3 server as a process of its own, behind a request counter.

Run as a script it serves until it is told to end: ``python moto_server.py --port 9000``.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

if __package__:
    from .counting import CountingMiddleware, RequestCounter
    from .garbage import collect_rarely
else:
    # Run as a script.
    from counting import CountingMiddleware, RequestCounter  # pyrefly: ignore[missing-import]
    from garbage import collect_rarely  # pyrefly: ignore[missing-import]

#: moto takes any credentials; these are not worth keeping secret.
ACCESS_KEY, SECRET_KEY, REGION = "test-access-key", "test-secret-key", "us-east-1"


@dataclass(frozen=True)
class S3Server:
    """A running server."""

    endpoint: str

    @property
    def origin(self) -> str:
        """Its version and where it is from."""
        return f"{version('moto')}, PyPI"

    @property
    def ran_on(self) -> str:
        """For the table at the end of a run."""
        return f"moto {self.origin}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which boto3, and child processes, reach it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        return client_of(self.endpoint)

    def counter(self, bucket: str | None = None) -> RequestCounter:
        return RequestCounter(self.endpoint, bucket)


@cache
def client_of(endpoint: str) -> Any:
    """A plain boto3 client. One for all tests of a process: making it takes longer than a test."""
    import boto3

    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        region_name=REGION,
    )


@contextlib.contextmanager
def running(*, port: int = 0, latency: float = 0.0, serialise: bool = True) -> Iterator[S3Server]:
    """Start a server on ``port`` (0: a free one) and end it afterwards."""
    command = [sys.executable, str(Path(__file__).resolve()), "--port", str(port)]
    command += ["--latency", str(latency)]
    if not serialise:
        command.append("--racy")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        endpoint = process.stdout.readline().strip()
        if not endpoint.startswith("http://"):
            raise RuntimeError(f"moto's server did not start (exit {process.wait(10)})")
        yield S3Server(endpoint)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve(port: int, latency: float, serialise: bool) -> None:
    """Serve in this process; prints the endpoint once connections are taken."""
    # Tests use small parts; S3's own minimum is 5 MiB.
    os.environ.setdefault("S3_UPLOAD_PART_MIN_SIZE", "1")
    # Short pages, so that listings are followed with few objects; S3 has 1,000 keys.
    os.environ.setdefault("MOTO_S3_DEFAULT_MAX_KEYS", "100")
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    collect_rarely()
    _find_once()
    _miss_uploads()
    app = CountingMiddleware(DomainDispatcherApplication(create_backend_app), latency, serialise)
    server = make_server("127.0.0.1", port, app, threaded=True, request_handler=MotoRequestHandler)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    parent = os.getppid()
    import threading

    def follow() -> None:
        # A test run that is killed cannot end its server: it ends when its parent is gone.
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(0)

    threading.Thread(target=follow, daemon=True).start()
    server.serve_forever()


def _find_once() -> None:
    """What moto finds out anew with each request: its services, and how a date is written."""
    from botocore.utils import parse_to_aware_datetime
    from moto import backends
    from moto.core import serialize

    services = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: services
    setattr(serialize, "parse_to_aware_datetime", cache(parse_to_aware_datetime))  # noqa: B010


def _miss_uploads() -> None:
    """A part of an upload that is gone is refused as S3 refuses it, and is no error of the server
    that is worth another try."""
    from moto.s3.exceptions import NoSuchUpload
    from moto.s3.models import S3Backend

    upload_part = S3Backend.upload_part

    def looked_up(self: S3Backend, bucket_name: str, multipart_id: str, *part: Any) -> Any:
        if multipart_id not in self.get_bucket(bucket_name).multiparts:
            raise NoSuchUpload(upload_id=multipart_id)
        return upload_part(self, bucket_name, multipart_id, *part)

    setattr(S3Backend, "upload_part", looked_up)  # noqa: B010


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0, help="seconds per request")
    parser.add_argument("--racy", action="store_true", help="leave moto's races in")
    options = parser.parse_args()
    serve(options.port, options.latency, not options.racy)


if __name__ == "__main__":
    main()
