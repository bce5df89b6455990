"""Server processes of tests: tied to who started them, and ended without a rest."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

#: Seconds until a server answers; slow machines have needed one and a half minutes.
PATIENCE = 300.0


class ServerError(Exception):
    """A server that is not there or did not start: why, and what to do."""


class ServerProcess:
    """A process whose output goes to a file.

    :param folder: its working directory and home; the log is there too.
    """

    def __init__(
        self, command: Sequence[str | Path], folder: Path, variables: Mapping[str, str]
    ) -> None:
        self.name = Path(command[0]).name
        self._log = folder / f"{self.name}.output"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*tie(), *map(str, command)],
                env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the one who started it, who ends it then.
            )

    def check(self) -> None:
        """:raises ServerError: it has ended."""
        code = self._process.poll()
        if code is not None:
            said = self._log.read_text("utf-8", "replace").strip()[-2000:]
            raise ServerError(f"{self.name} did not start (exit {code}): {said}")

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def running(
    command: Sequence[str | Path], folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A server's process, ended afterwards."""
    process = ServerProcess(command, folder, variables or {})
    try:
        yield process
    finally:
        process.end()


def free_port() -> int:
    """A port for a server that may start minutes later.

    Of those that no system gives to outgoing connections (Linux: from 32768), one of which may
    have taken the port by then.
    """
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def wait_for(url: str, process: ServerProcess) -> None:
    """Wait for any HTTP answer.

    :raises ServerError: the process ended, or nothing answered in time.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        process.check()
        try:
            opener.open(url, timeout=2).close()
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise ServerError(f"{process.name} did not answer at {url} within {PATIENCE:.0f} s")


def tie() -> list[str]:
    """What makes the kernel end a server whose starter was killed, where the kernel can."""
    program = shutil.which("setpriv")
    return [program, "--pdeathsig", "KILL", "--"] if program else []
