"""Fetching the jars: pinned by digest, looked at once, never half."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tools import fetch_s3a_jars
from tools.maven_jars import FetchError, Jar

BODY = b"a jar"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(BODY).hexdigest())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Programs that bring ``BODY``, or what the test says."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fetch_s3a_jars, "JARS", (JAR, JAR))
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/bin/{name}")

    class Run:
        brings: dict[str, bytes] = {"mvn": BODY, "java": BODY}  # noqa: RUF012
        asked: list[str] = []  # noqa: RUF012

        def __call__(self, command: Sequence[str], **_: Any) -> Any:
            name = Path(command[0]).name
            self.asked = [*self.asked, name]
            body = self.brings.get(name)
            if body is not None:
                marked = next(part for part in command if ".part-" in part)
                folder = Path(marked[marked.index("/") :])
                while not folder.name.startswith(".part-"):
                    folder = folder.parent
                (folder / JAR.file_name).write_bytes(body)
            return subprocess.CompletedProcess(command, 0 if body else 1, "", "no such thing")

    fake = Run()
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


def test_they_are_fetched_once(run: Any) -> None:
    assert fetch_s3a_jars.cached_jars() is None
    paths = fetch_s3a_jars.fetch_jars()
    assert {path.read_bytes() for path in paths} == {BODY}
    assert run.asked == ["mvn"]
    assert fetch_s3a_jars.fetch_jars() == fetch_s3a_jars.cached_jars() == paths
    assert run.asked == ["mvn"]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == [
        "checked.json",
        JAR.file_name,
    ]


@pytest.mark.parametrize("brings", [{}, {"mvn": b"another", "java": b"another"}])
def test_what_cannot_be_had_is_not_kept(run: Any, brings: dict[str, bytes]) -> None:
    run.brings = brings
    with pytest.raises(FetchError, match=r"org.example:thing:1.0 could not be fetched") as caught:
        fetch_s3a_jars.fetch_jars()
    assert ("another file than the pinned one" in str(caught.value)) is bool(brings)
    assert "apt-get install maven" in str(caught.value)
    assert fetch_s3a_jars.cached_jars() is None
    assert list(fetch_s3a_jars.jars_folder().iterdir()) == []


def test_the_pinned_versions_belong_together() -> None:
    from pyspark import __file__ as spark

    hadoop = next((Path(spark).parent / "jars").glob("hadoop-client-api-*.jar"))
    aws = next(jar for jar in fetch_s3a_jars.JARS if jar.artifact == "hadoop-aws")
    assert hadoop.name == f"hadoop-client-api-{aws.version}.jar"
    assert all(len(jar.sha256) == 64 for jar in fetch_s3a_jars.JARS)
