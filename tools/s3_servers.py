"""The S3 servers that tests run on besides moto: where they come from, and how they are started.

``python tools/s3_servers.py`` makes ready those that can be had: S3Mock, a jar of a pinned version
with a pinned digest in the user's cache folder, and Ceph, Debian's packages, installed where we are
root. MinIO and versitygw serve where they are on ``PATH``.

``--serve NAME`` starts one and says where it is; it ends when it is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

# As a script it finds its neighbours by the checkout's folder.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import ceph
from tools.maven_jars import FetchError, Jar, JarFolder
from tools.server_process import ServerError, free_port, running, wait_for
from zero_rename.spark.startup.installation import java_command
from zero_rename.spark.startup.launch import SMALL_JOB_FLAGS, cache_dir

#: Of every server we start; they hold nothing that is worth a secret.
ACCESS_KEY, SECRET_KEY = "test-access-key", "test-secret-key"
#: Of Ceph: another user, without any right; the first may give it some.
LIMITED = ceph.User("limited", "limited-access-key", "limited-secret-key")
S3MOCK = Jar(
    "com.adobe.testing",
    "s3mock",
    "4.11.0",
    "30916126e4cf559ca3fd25a1ff481eb64f7bfd2e05eb1ea83600999774f63f84",
    classifier="exec",
)
#: By name, whether conditional writes are checked and carried out in one step, so that writers
#: may race.
ATOMIC = {"ceph": True, "minio": True, "s3mock": False, "versitygw": False}
_REMEDIES = {
    "ceph": ceph.REMEDY,
    "s3mock": "make servers (60 MB from Maven's repository)",
    "minio": "put its program on PATH",
    "versitygw": "put its program on PATH",
}


@dataclass(frozen=True)
class Server:
    """A running server.

    :param origin: its version and where it is from.
    """

    name: str
    endpoint: str
    origin: str

    @property
    def atomic(self) -> bool:
        return ATOMIC[self.name]


def in_ci() -> bool:
    """Whether a server that is missing is fetched, and fails tests rather than skips them."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def s3mock_jar() -> JarFolder:
    return JarFolder(cache_dir() / f"s3mock-{S3MOCK.version}-{S3MOCK.sha256[:8]}", (S3MOCK,))


def is_ready(name: str) -> bool:
    """Whether a server can be started as it is."""
    if name == "ceph":
        return ceph.installed()
    if name == "s3mock":
        return s3mock_jar().cached() is not None
    return shutil.which(name) is not None


def make_ready(name: str) -> None:
    """Fetch or install a server where that can be done.

    :raises ServerError: it is not there, and cannot be had.
    """
    if is_ready(name):
        return
    if name == "ceph":
        ceph.install()
    elif name == "s3mock":
        try:
            s3mock_jar().fetch()
        except FetchError as error:
            raise ServerError(str(error)) from error
    if not is_ready(name):
        raise ServerError(f"The S3 server {name} is not there; {_REMEDIES[name]}.")


@contextlib.contextmanager
def serving(name: str) -> Iterator[Server]:
    """Start a server on loopback and end it afterwards; its data are then gone.

    :param name: one of :data:`ATOMIC`.
    :raises ServerError: it is not there, or does not start; in CI it is fetched first.
    """
    if name not in ATOMIC:
        raise ValueError(f"no S3 server is called {name!r}: {', '.join(ATOMIC)}")
    if in_ci():
        make_ready(name)
    if not is_ready(name):
        raise ServerError(f"The S3 server {name} is not there; {_REMEDIES[name]}.")
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        if name == "ceph":
            origin = f"{ceph.version()}, Debian's packages"
            with ceph.cluster(
                Path(folder), ceph.User("tests", ACCESS_KEY, SECRET_KEY), LIMITED
            ) as endpoint:
                yield Server(name, endpoint, origin)
        else:
            yield from _serving_program(name, Path(folder))


def _serving_program(name: str, folder: Path) -> Iterator[Server]:
    port = free_port()
    (folder / "data").mkdir()
    command, variables, origin = {"s3mock": _s3mock, "minio": _minio, "versitygw": _versitygw}[
        name
    ](folder, port)
    with running(command, folder, variables) as process:
        wait_for(f"http://127.0.0.1:{port}", process)
        yield Server(name, f"http://127.0.0.1:{port}", origin)


_Program = tuple[list[str | Path], dict[str, str], str]


def _s3mock(folder: Path, port: int) -> _Program:
    """Plain HTTP on what is its HTTPS port otherwise: only that can be bound to loopback. It opens
    another for HTTP, on any free port and every interface, and knows no way to leave it out."""
    jars = s3mock_jar().cached()
    assert jars is not None
    settings = {
        "server.port": port,
        "server.address": "127.0.0.1",
        "server.ssl.enabled": "false",
        "com.adobe.testing.s3mock.httpPort": 0,
        "com.adobe.testing.s3mock.root": folder / "data" / "objects",
        "logging.level.root": "WARN",
        "spring.main.banner-mode": "off",
        "java.io.tmpdir": folder,
    }
    options = [f"-D{name}={value}" for name, value in settings.items()]
    java = [java_command(), "-Xmx1g", "-XX:-UsePerfData", *SMALL_JOB_FLAGS]
    return [*java, *options, "-jar", jars[0]], {}, f"{S3MOCK.version}, Maven"


def _minio(folder: Path, port: int) -> _Program:
    command: list[str | Path] = ["minio", "server", "--address", f"127.0.0.1:{port}"]
    command += ["--console-address", f"127.0.0.1:{free_port()}", "--quiet"]
    command += ["--certs-dir", folder / "certs", folder / "data"]
    variables = {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY}
    return command, variables | {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}, _on_path("minio")


def _versitygw(folder: Path, port: int) -> _Program:
    command: list[str | Path] = ["versitygw", "--port", f"127.0.0.1:{port}", "--quiet", "posix"]
    command.append(folder / "data")
    variables = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
    return command, variables, _on_path("versitygw")


def _on_path(name: str) -> str:
    """What a program calls its version, and where it is."""
    try:
        answer = subprocess.run(
            [name, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        answer = None
    said = answer.stdout.split("\n")[0].strip()[:60] if answer else ""
    return f"{said or 'unknown version'}, {shutil.which(name)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all ready; 1 where one cannot be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--serve", metavar="NAME", choices=ATOMIC, help=", ".join(ATOMIC))
    parser.add_argument("--report", type=Path, help="say in this file where it is, as JSON")
    parser.add_argument("--while", dest="process", type=int, help="end when this process has ended")
    parser.add_argument("names", nargs="*", metavar="NAME", help="make these ready: s3mock, ceph")
    given = parser.parse_args(arguments)
    if given.serve:
        return serve(given.serve, given.report, given.process)
    unknown = set(given.names) - set(ATOMIC)
    if unknown:
        parser.error(f"no S3 server is called {', '.join(sorted(unknown))}")
    missing = 0
    for name in given.names or ("s3mock", "ceph"):
        try:
            make_ready(name)
        except ServerError as error:
            missing = 1
            print(f"s3 servers: {error}", file=sys.stderr)
        else:
            print(f"s3 servers: {name} is ready")
    return missing


def serve(name: str, report: Path | None = None, process: int | None = None) -> int:
    """Serve until told to end by a signal, or until another process has ended."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        with serving(name) as server:
            _say({**asdict(server), "pid": os.getpid()}, report)
            if process is None:
                signal.pause()
            else:
                import psutil  # Of the tests.

                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(process).wait()
    except ServerError as error:
        _say({"error": str(error)}, report)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _stop(*_: object) -> NoReturn:
    sys.exit(0)


def _say(what: dict[str, object], report: Path | None) -> None:
    """In one step: whoever waits for the file finds it whole."""
    text = json.dumps(what)
    if report is None:
        print(text, flush=True)
        return
    part = report.with_name(f".{report.name}.part")
    part.write_text(text, "utf-8")
    part.replace(report)


if __name__ == "__main__":
    sys.exit(main())
