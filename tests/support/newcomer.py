"""Somebody who follows a page from its first command to its last, on a machine that has nothing.

A fresh home, a virtual environment in which only ``pip`` is there, and credentials of a store in
the environment. Python blocks that follow each other are one session.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from support.waiting import until
from support.wheel import borrow_bytecode
from tools.bootstrap import LOCK, cache_dir
from tools.server_process import free_port
from zero_rename.spark.startup.launch import SMALL_JOB_FLAGS

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"^```(console|python)\n(.*?)^```$|^```\{literalinclude\} (\S+)\n.*?^```$", re.M | re.S
)
_SAVED = re.compile(r"Save this as `([\w.]+)`")
_END = "-- the end of a block --"


@dataclass(frozen=True)
class Block:
    """What a page shows to be typed, or saved as a file (``name``); ``prose`` follows it."""

    language: str
    text: str
    prose: str
    name: str = ""


def blocks(page: Path) -> list[Block]:
    """A page's commands, programs, and files to be saved."""
    text = page.read_text("utf-8")
    found = list(_BLOCK.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)]
    starts = [0, *(match.end() for match in found)]
    made = []
    for match, begin, end in zip(found, starts, ends, strict=False):
        language, code, included = match.groups()
        saved = _SAVED.search(text, begin, match.start())
        prose = text[match.end() : end]
        if included is None:
            made.append(Block(language, code, prose))
        elif saved:
            made.append(Block("file", (page.parent / included).read_text("utf-8"), prose, saved[1]))
    return made


@dataclass
class Newcomer:
    """:param folder: empty; the home and the environment are made in it.
    :param servers: commands that stay, which go on in a terminal of their own, and where each
        answers once the user may go on.
    """

    folder: Path
    variables: Mapping[str, str]
    servers: Mapping[str, str]

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def arrive(self, wheel: Path, *locks: Path) -> None:
        """Make the home, and an environment whose ``pip`` finds the wheel.

        :param locks: files whose versions go before those of the checkout's own lock file. With
            pinned versions, what is fetched lies in the cache.
        """
        self.home.mkdir()
        uv = [sys.executable, "-m", "uv"]
        venv = [*uv, "venv", "-q", "--python", sys.executable, str(self.folder / "venv")]
        subprocess.run(venv, check=True)
        found = [f"--find-links={at}" for at in (wheel.parent, cache_dir() / "wheels")]
        constraints = self.folder / "pins.txt"
        constraints.write_text(pins(ROOT / LOCK, *locks))
        words = ["--python", str(self.python), "--no-config", *found, f"--constraint={constraints}"]
        # With the variables by which this machine reaches its registries.
        pip = self.python.with_name("pip")
        pip.write_text(
            f"#!{sys.executable}\nimport os, sys\n"
            f"words = [*{[*uv, 'pip']!r}, sys.argv[1], *{words!r}, *sys.argv[2:]]\n"
            f"os.execve(words[0], words, {dict(os.environ)!r})\n"
        )
        pip.chmod(0o700)

    def follow(
        self, page: Path, bucket: str, looks: Mapping[str, Callable[[], bool]] | None = None
    ) -> None:
        """Type all of a page; ``s3://bucket/``, or ``s3a://``, is a bucket of ours.

        :param looks: commands that a reader types until they tell of one success; typed once, when
            that is to be seen: each would take half of the machine from what is waited for.
        """
        session: list[Block] = []
        for block in [*blocks(page), Block("", "", "")]:
            text = re.sub(r"\b(s3a?)://bucket/", rf"\1://{bucket}/", block.text)
            if block.language == "python":
                session.append(Block("python", text, block.prose))
                continue
            self._converse(session)
            session = []
            if block.language == "file":
                (self.home / block.name).write_text(text, "utf-8")
            for command in _commands(text) if block.language == "console" else ():
                if looks and command in looks:
                    self._look(command, looks[command])
                elif command in self.servers:
                    self._begin(command)
                    until(command, lambda url=self.servers[command]: _answers(url))
                else:
                    self.type(command)

    def _look(self, command: str, is_over: Callable[[], bool]) -> None:
        until(f"an end that {command} tells", is_over)
        lines = self.type(command).splitlines()
        assert not [line for line in lines if "failed" in line], lines
        assert sum("success" in line for line in lines) == 1

    def _converse(self, session: list[Block]) -> None:
        """Run blocks of Python as one session: what each prints stands in the prose after it."""
        if not session:
            return
        code = "".join(f"{block.text}\nprint({_END!r}, flush=True)\n" for block in session)
        (self.home / "session.py").write_text(code, "utf-8")
        for block, said in zip(session, self.type("python session.py").split(_END), strict=False):
            lines = [line for line in said.splitlines() if line.strip()]
            assert lines, f"prints nothing: {block.text}"
            told = {*re.findall(r"`([^`\n]+)`", block.prose), *block.prose.splitlines()}
            assert [line for line in lines if line not in told] == []

    def type(self, command: str) -> str:
        """Type a command into the terminal; what is exported stays. Returns its output.

        :raises AssertionError: it failed.
        """
        kept = self.folder / "exported"
        script = f"set -e\n{command}\nexport -p > {shlex.quote(str(kept))}\n"
        done = subprocess.run(
            ["bash", "-c", self._exported() + script],
            cwd=self.home,
            env=self._environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-5000:]}"
        if command.startswith("pip "):
            borrow_bytecode(self.folder / "venv")
        return done.stdout

    def _begin(self, command: str) -> None:
        with (self.folder / "server.log").open("ab") as log:
            subprocess.Popen(
                ["bash", "-c", f"{self._exported()}exec {command}"],
                cwd=self.home,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _exported(self) -> str:
        kept = self.folder / "exported"
        return f". {shlex.quote(str(kept))}\n" if kept.exists() else ""

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
            # A JVM that lives for a minute: what it would compile best is not worth it.
            "JAVA_TOOL_OPTIONS": " ".join(SMALL_JOB_FLAGS),
            **self.variables,
        }

    def leave(self) -> None:
        """End every process that was begun: all of them work in the home."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.cwd() == str(self.home):
                    process.kill()


def pins(*locks: Path) -> str:
    """The versions of lock files as constraints; of a package in several, that of the last."""
    found: dict[str, str] = {}
    for lock in locks:
        for line in re.findall(r"^[\w.-]+==[^\\\n]+", lock.read_text("utf-8"), re.M):
            pin = Requirement(line)
            if pin.marker is None or pin.marker.evaluate():
                found[pin.name] = f"{pin.name}{pin.specifier}"
    return "\n".join(found.values())


def _commands(text: str) -> Iterator[str]:
    """The commands of a block, those of several lines as one; with or without a prompt."""
    for line in text.replace("\\\n", " ").splitlines():
        command = line.removeprefix("$ ").split(" #")[0].strip()
        if command:
            yield command


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def airflow_variables(home: Path, port: int) -> dict[str, str]:
    """For an Airflow beside others on this machine, with ports that nobody uses."""
    return {
        # Where it is by itself; on a busy machine, SQLite's lock is held for longer than 5 s.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow/airflow.db?timeout=60",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__CORE__PARALLELISM": "2",
        # Nobody changes a DAG's file: a dozen of them would be read again every half minute.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        # The API's first answer takes half a minute on a busy machine.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "300",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
