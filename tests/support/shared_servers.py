"""S3 servers that one test run shares, however many workers it has, and what ran on which.

A plugin of ``tests/conftest.py``. A server is started when the first test asks for it, as a process
that ends with the controller's, however that ends; the other workers find it in a folder of the
run. At the end of the run there is a table of the servers, and of what was skipped for lack of one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tools.s3_servers import Server, in_ci
from tools.server_process import PATIENCE, ServerError

ROOT = Path(__file__).resolve().parents[2]
_RAN_ON = "S3 server"
_LACKS = "no S3 server"
#: The variable that names a folder which all workers of a run share, gone with the run.
RUN_FOLDER = "TEST_RUN_FOLDER"


class _Run:
    """What the workers of one run share: a folder, and the process that outlives them."""

    def __init__(self, folder: Path, controller: int) -> None:
        self.folder = folder
        self.controller = controller

    def server(self, name: str) -> Server:
        """A server, started where no worker has started it yet.

        :raises ServerError: it is not there or did not start, now or when another asked for it.
        """
        report = self.folder / f"{name}.json"
        with (self.folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not report.exists():
                self._start(name, report)
            said = json.loads(report.read_text("utf-8"))
        if "error" in said:
            raise ServerError(said["error"])
        return Server(said["name"], said["endpoint"], said["origin"])

    def _start(self, name: str, report: Path) -> None:
        command = [sys.executable, str(ROOT / "tools" / "s3_servers.py"), "--serve", name]
        command += ["--report", str(report), "--while", str(self.controller)]
        log = report.with_suffix(".output")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        (self.folder / f"{name}.pid").write_text(str(process.pid), "utf-8")
        # Beyond its own patience, which has several waits.
        give_up = time.monotonic() + 4 * PATIENCE
        while not report.exists() and process.poll() is None and time.monotonic() < give_up:
            time.sleep(0.05)
        if not report.exists():
            process.terminate()
            said = log.read_text("utf-8", "replace").strip()[-2000:]
            report.write_text(json.dumps({"error": f"{name} did not start: {said}"}), "utf-8")

    def end(self) -> None:
        """End all servers, and wait until they are gone."""
        for file in self.folder.glob("*.pid"):
            with contextlib.suppress(psutil.NoSuchProcess):
                process = psutil.Process(int(file.read_text("utf-8")))
                if str(self.folder) not in " ".join(process.cmdline()):
                    continue  # Ended long ago; the number is another's now.
                process.terminate()
                try:
                    process.wait(30)
                except psutil.TimeoutExpired:
                    process.kill()  # The kernel ends what it had started.
        shutil.rmtree(self.folder, ignore_errors=True)


_RUN = pytest.StashKey[_Run]()


def shared_server(config: pytest.Config, name: str) -> Server:
    """A server of ``tools/s3_servers.py`` that is there until the run ends.

    Where it cannot be had the test is skipped, and in CI fails.
    """
    try:
        return config.stash[_RUN].server(name)
    except ServerError as error:
        if in_ci():
            pytest.fail(str(error))
        pytest.skip(f"{_LACKS}: {error}")


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A file or folder of the run, made at the path that is given by the first who asks for it."""
    path = Path(os.environ[RUN_FOLDER], name)
    with path.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_name(f"{name}.part")
            make(part)
            part.rename(path)
    return path


def pytest_configure(config: pytest.Config) -> None:
    given: dict[str, Any] | None = getattr(config, "workerinput", None)
    if given is not None:
        run = _Run(Path(given["servers"]), given["servers_controller"])
    else:
        run = _Run(Path(tempfile.mkdtemp(prefix="zero-rename-servers-")), os.getpid())
    config.stash[_RUN] = run
    os.environ[RUN_FOLDER] = str(run.folder)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[_RUN].end()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    run = node.config.stash[_RUN]
    node.workerinput["servers"] = str(run.folder)
    node.workerinput["servers_controller"] = run.controller


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Keep which servers a test's fixtures gave it."""
    values = getattr(item, "funcargs", {}).values()
    for ran_on in sorted({value.ran_on for value in values if hasattr(value, "ran_on")}):
        item.user_properties.append((_RAN_ON, ran_on))
    return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A table of what ran where; loudly, what did not run."""
    reports = [report for kind in terminalreporter.stats.values() for report in kind]
    ran: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for report in reports:
        if getattr(report, "when", "") == "call":
            ran.update(value for name, value in report.user_properties if name == _RAN_ON)
        if getattr(report, "skipped", False) and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2]
            skipped.update([reason] if _LACKS in reason else [])
    if not ran and not skipped:
        return
    terminalreporter.section("S3 servers")
    for server, count in sorted(ran.items()):
        terminalreporter.line(f"{count:>6} tests on {server}")
    for reason, count in sorted(skipped.items()):
        terminalreporter.line(f"{count:>6} tests NOT RUN, {reason}", red=True, bold=True)
