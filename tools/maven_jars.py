"""Jars from Maven's repository, of pinned versions with pinned digests, kept in a folder.

They come by Maven where it is installed, so that a mirror in its settings is used, and else by the
Ivy that is part of Spark. They are fetched one by one, without what their POMs ask for besides.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zero_rename.spark.startup.installation import java_command, spark_home
from zero_rename.spark.startup.launch import cache_dir


@dataclass(frozen=True)
class Jar:
    """A jar by its Maven coordinates."""

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"

    @property
    def coordinates(self) -> str:
        kind = f":jar:{self.classifier}" if self.classifier else ""
        return f"{self.group}:{self.artifact}:{self.version}{kind}"


_CHECKED = "checked.json"


class FetchError(Exception):
    """What could not be had, and what to do about it."""


@dataclass(frozen=True)
class JarFolder:
    """A folder of the user's cache that holds these jars and no others."""

    path: Path
    jars: tuple[Jar, ...]

    @staticmethod
    def named(title: str, jars: tuple[Jar, ...]) -> JarFolder:
        """The folder of these jars, there or not. Another set of versions has another one."""
        digest = hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:8]
        return JarFolder(cache_dir() / f"{title}-{digest}", jars)

    def cached(self) -> tuple[Path, ...] | None:
        """The jars, if all are there and were found to be the right ones; ``None`` otherwise."""
        try:
            checked = json.loads((self.path / _CHECKED).read_text("utf-8"))
        except (OSError, ValueError):
            return None
        paths = self._paths()
        whole = all(path.is_file() and checked.get(path.name) == _stamp(path) for path in paths)
        return paths if whole else None

    def fetch(self) -> tuple[Path, ...]:
        """The jars, fetched where they are not there. What is there is left alone.

        :raises FetchError: they cannot be had, or are not what was pinned.
        """
        found = self.cached()
        if found is not None:
            return found
        self.path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=self.path) as part:
            for jar, path in zip(self.jars, self._paths(), strict=True):
                if not (path.is_file() and _sha256(path) == jar.sha256):
                    self._fetch(jar, Path(part)).replace(path)
        stamps = {path.name: _stamp(path) for path in self._paths()}
        checked = self.path / f".{_CHECKED}.{os.getpid()}"
        checked.write_text(json.dumps(stamps), "utf-8")
        checked.replace(self.path / _CHECKED)
        return self._paths()

    def _paths(self) -> tuple[Path, ...]:
        return tuple(self.path / jar.file_name for jar in self.jars)

    def _fetch(self, jar: Jar, part: Path) -> Path:
        """Fetch one jar below ``part``: a whole file with the pinned digest."""
        print(f"fetching {jar.coordinates}", flush=True)
        failures = []
        for command in _commands(jar, part):
            answer = subprocess.run(command, capture_output=True, text=True, check=False)
            path = next(part.rglob(jar.file_name), None)
            if path is None:
                said = (answer.stdout + answer.stderr).strip()[-1500:]
                failures.append(f"{Path(command[0]).name} (exit {answer.returncode}): {said}")
            elif _sha256(path) != jar.sha256:
                failures.append(f"{Path(command[0]).name} brought another file than the pinned one")
                path.unlink()
            else:
                return path
        raise FetchError(
            f"{jar.coordinates} could not be fetched. Maven's repository must be reachable, by "
            "Maven's own settings (Debian: apt-get install maven) or by Spark's Ivy, or put the "
            f"file as {self.path / jar.file_name}.\n" + "\n".join(failures)
        )


def fetch_or_say(folder: JarFolder) -> int:
    """Fetch jars, or say on the standard error why they are not to be had: an exit code."""
    try:
        folder.fetch()
    except FetchError as error:
        print(f"fetch: {error}", file=sys.stderr)
        return 1
    return 0


def _commands(jar: Jar, part: Path) -> Iterator[list[str]]:
    maven = shutil.which("mvn")
    if maven:
        yield [
            *(maven, "--quiet", "--batch-mode", "dependency:get"),
            *(f"-Dartifact={jar.coordinates}", "-Dtransitive=false"),
            f"-Dmaven.repo.local={part / 'maven'}",
        ]
    wanted = part / "ivy.xml"
    wanted.write_text(_ivy_file(jar), "utf-8")
    yield [
        *(str(java_command()), "-cp", str(spark_home() / "jars" / "*"), "org.apache.ivy.Main"),
        *("-cache", str(part / "ivy"), "-ivy", str(wanted), "-warn"),
        *("-retrieve", str(part / "[artifact]-[revision](-[classifier]).[ext]")),
    ]


def _ivy_file(jar: Jar) -> str:
    """What Ivy is to bring; only a file, and no option, can name a classifier."""
    classifier = f' m:classifier="{jar.classifier}"' if jar.classifier else ""
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="zero-rename" module="tests"/><dependencies>'
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" '
        f'transitive="false"><artifact name="{jar.artifact}" type="jar" ext="jar"{classifier}/>'
        "</dependency></dependencies></ivy-module>"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> list[int]:
    """What tells a file that was checked from one that was changed since."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]
