"""The jar of the conditional log store, as the wheel has it."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from tools.log_store_jar import JAR, find_compiler
from tools.s3_servers import in_ci
from zero_rename.tables import log_store_settings


def java_compiler() -> str:
    """A javac. A test is skipped where there is none, and fails in continuous integration."""
    compiler = find_compiler()
    if compiler is None:
        why = "there is no JDK: install openjdk-17-jdk-headless"
        if in_ci():
            pytest.fail(why)
        pytest.skip(why)
    return compiler


def jar_of(wheel: Path, folder: Path) -> Path:
    """Take the jar out of a wheel that was built where there is a JDK.

    :param folder: for the jar.
    """
    java_compiler()
    with ZipFile(wheel) as archive:
        return Path(archive.extract(JAR.as_posix(), folder))


def settings_with(jar: Path) -> dict[str, str]:
    """Settings by which a session of Delta on Spark commits with a condition, by this jar."""
    return {**log_store_settings(), "spark.jars": str(jar)}
