"""The S3 servers the torture runs on: moto, versitygw, MinIO, or one that is there already.

``tools/s3_servers.py`` builds versitygw and MinIO.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.moto_server import ACCESS_KEY, REGION, SECRET_KEY, S3Server, running
from tools.s3_servers import REMEDY, binary, build, required


@dataclass(frozen=True)
class Store:
    """A running S3 server.

    :param atomic: whether two writers may race on it.
    """

    name: str
    endpoint: str
    variables: Mapping[str, str]
    atomic: bool

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """Variables with which boto3 reaches it, by ``endpoint`` if given."""
        return {
            **self.variables,
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """A plain client of the server itself, to look at what is in it."""
        import boto3

        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.variables.get("AWS_REGION", REGION),
            aws_access_key_id=self.variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.variables["AWS_SECRET_ACCESS_KEY"],
        )


_OWN = {
    "AWS_ACCESS_KEY_ID": ACCESS_KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    "AWS_REGION": REGION,
    "AWS_DEFAULT_REGION": REGION,
}


def of_moto(server: S3Server) -> Store:
    """A moto server that runs already."""
    return Store("moto", server.endpoint, _OWN, atomic=False)


def best() -> str:
    """The most real server that is there."""
    return next((name for name in ("minio", "versitygw") if binary(name)), "moto")


@contextlib.contextmanager
def serving(name: str) -> Iterator[Store]:
    """Start a server and end it afterwards.

    :param name: ``moto``, ``versitygw`` or ``minio``; an URL for a server that runs already, with
        credentials in the environment.
    :raises FileNotFoundError: the server's program is not there; in CI it is built.
    """
    if name.startswith("http"):
        given = {n: os.environ[n] for n in _OWN if n in os.environ}
        yield Store(name, name, given, atomic=True)
    elif name == "moto":
        with running() as server:
            yield of_moto(server)
    elif name in ("versitygw", "minio"):
        with tempfile.TemporaryDirectory(prefix="zero-rename-torture-") as folder:
            yield from _serving(name, Path(folder))
    else:
        raise ValueError(f"no server is called {name!r}: moto, versitygw, minio or an URL")


def _serving(name: str, folder: Path) -> Iterator[Store]:
    program = build(name) if required() else binary(name)
    if program is None:
        raise FileNotFoundError(f"{name} is not there; {REMEDY}")
    address = f"127.0.0.1:{_free_port()}"
    (folder / "data").mkdir()
    if name == "versitygw":
        command = [program, "--port", address, "--quiet", "posix", folder / "data"]
        own = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    else:
        console = f"127.0.0.1:{_free_port()}"
        command = [program, "server", "--address", address, "--console-address", console]
        command += ["--quiet", "--certs-dir", folder / "certs", folder / "data"]
        own = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY}
        own["MINIO_BROWSER"] = own["MINIO_UPDATE"] = "off"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(part) for part in command],
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **own},
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for(f"http://{address}", process, folder / "log")
            yield Store(name, f"http://{address}", _OWN, atomic=name == "minio")
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for any HTTP answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    give_up = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < give_up:
        try:
            opener.open(url, timeout=2).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"the server did not start: {log.read_text('utf-8')[-2000:]}")
