"""Fetch what the tests with Hadoop's own S3A committers need, into the user's cache folder.

``python tools/fetch_s3a_jars.py`` brings the four jars that PySpark's wheel lacks (700 MB), each
of a pinned version with a pinned digest. What is there is left alone; ``--folder`` prints where.
The S3 server of these tests is ``tools/s3_servers.py``'s.

The jars come by Maven where it is installed, so that a mirror in its settings is used, and else
by the Ivy that is part of Spark. They are fetched one by one: what their POMs ask for besides is
in PySpark's own jars already, or is not to be had.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
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

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


#: hadoop-aws is of the version of PySpark's own Hadoop jars; the bundle and the accelerator are
#: those its POM names. spark-hadoop-cloud has no later release; it works with Spark 4.3.
JARS = (
    Jar(
        "org.apache.hadoop",
        "hadoop-aws",
        "3.5.0",
        "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa",
    ),
    Jar(
        "org.apache.spark",
        "spark-hadoop-cloud_2.13",
        "4.1.1",
        "e5b41b43d481510afd0cdc372b593770ddee5a0a348d0744cef6c6cd77a27943",
    ),
    Jar(
        "software.amazon.s3.analyticsaccelerator",
        "analyticsaccelerator-s3",
        "1.3.1",
        "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e",
    ),
    Jar(
        "software.amazon.awssdk",
        "bundle",
        "2.35.4",
        "db4b55f24ad1b4e70f17eb1717a4de76a8dadc5a27d764be7c44ff67b2c1c677",
    ),
)
_CHECKED = "checked.json"


class FetchError(Exception):
    """What could not be had, and what to do about it."""


def jars_folder() -> Path:
    """Where the jars are, or would be. Another set of versions has another folder."""
    digest = hashlib.sha256("".join(jar.sha256 for jar in JARS).encode()).hexdigest()[:8]
    return cache_dir() / f"s3a-jars-{JARS[0].version}-{JARS[1].version}-{digest}"


def cached_jars() -> tuple[Path, ...] | None:
    """The jars, if all are there and were found to be the right ones; ``None`` otherwise."""
    folder = jars_folder()
    try:
        checked = json.loads((folder / _CHECKED).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    paths = tuple(folder / jar.file_name for jar in JARS)
    whole = all(path.is_file() and checked.get(path.name) == _stamp(path) for path in paths)
    return paths if whole else None


def fetch_jars() -> tuple[Path, ...]:
    """The jars, fetched where they are not there.

    :raises FetchError: they cannot be had, or are not what was pinned.
    """
    found = cached_jars()
    if found is not None:
        return found
    folder = jars_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as part:
        for jar in JARS:
            path = folder / jar.file_name
            if not (path.is_file() and _sha256(path) == jar.sha256):
                _fetch(jar, Path(part)).replace(path)
    stamps = {jar.file_name: _stamp(folder / jar.file_name) for jar in JARS}
    with _replacing(folder / _CHECKED) as file:
        file.write_text(json.dumps(stamps), "utf-8")
    return tuple(folder / jar.file_name for jar in JARS)


def _fetch(jar: Jar, part: Path) -> Path:
    """Fetch one jar below ``part``: a whole file with the pinned digest."""
    print(f"fetching {jar.group}:{jar.artifact}:{jar.version}", flush=True)
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
        f"{jar.group}:{jar.artifact}:{jar.version} could not be fetched. Maven's repository must "
        "be reachable, by Maven's own settings (Debian: apt-get install maven) or by Spark's Ivy, "
        "or put the file as "
        f"{jars_folder() / jar.file_name}.\n" + "\n".join(failures)
    )


def _commands(jar: Jar, part: Path) -> Iterator[list[str]]:
    maven = shutil.which("mvn")
    if maven:
        yield [
            *(maven, "--quiet", "--batch-mode", "dependency:get"),
            *(f"-Dartifact={jar.group}:{jar.artifact}:{jar.version}", "-Dtransitive=false"),
            f"-Dmaven.repo.local={part / 'maven'}",
        ]
    yield [
        *(str(java_command()), "-cp", str(spark_home() / "jars" / "*"), "org.apache.ivy.Main"),
        *("-cache", str(part / "ivy"), "-notransitive", "-types", "jar", "-warn"),
        *("-dependency", jar.group, jar.artifact, jar.version),
        *("-retrieve", str(part / "[artifact]-[revision].[ext]")),
    ]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(path: Path) -> list[int]:
    """What tells a file that was checked from one that was changed since."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    yield part
    part.replace(path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", action="store_true", help="print the folder, and no more")
    if parser.parse_args(arguments).folder:
        print(jars_folder())
        return 0
    try:
        fetch_jars()
    except FetchError as error:
        print(f"fetch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
