"""Jar of the conditional log store, built for tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tools.build_log_store import CLASS, build
from tools.s3_servers import in_ci


def log_store_settings(folder: Path, jars: Iterable[Path]) -> dict[str, str]:
    """Settings by which a session of Delta on Spark commits with a condition. A test is skipped
    where there is no compiler, and fails in continuous integration.

    :param folder: for the jar.
    :param jars: Delta's own.
    """
    if shutil.which("javac") is None:
        if in_ci():
            pytest.fail("there is no javac")
        pytest.skip("there is no javac: install a JDK of Java 17")
    own = build(folder / "log-store.jar")
    return {
        "spark.driver.extraClassPath": ":".join(map(str, (*jars, own))),
        "spark.delta.logStore.s3a.impl": CLASS,
    }
