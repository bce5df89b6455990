"""Log store for Delta on Spark: its jar, which this package contains, and its Spark settings."""

from __future__ import annotations

from pathlib import Path

from ..committer.errors import RefusedError

_JAR = Path(__file__).with_name("zero-rename-log-store.jar")
_CLASS = "zero_rename.ConditionalLogStore"
#: URL schemes that Delta and Hadoop use for S3. Each needs its own setting of a log store.
_SCHEMES = ("s3a", "s3")


def log_store_jar() -> Path:
    """Return the path of the jar that lets Delta on Spark commit by conditional writes.

    :raises RefusedError: this installation has no jar, since it was built without a JDK.
    """
    if not _JAR.is_file():
        raise RefusedError(
            f"This installation has no {_JAR.name}: it was built where there was no JDK.",
            remedy="Install the wheel, which has it. Or install a JDK of Java 11 or later, such "
            "as openjdk-17-jdk-headless, with its javac on PATH, then install this package from "
            "its sources again (in a checkout: make setup).",
        )
    return _JAR


def log_store_settings() -> dict[str, str]:
    """Return the settings that let a Spark session commit Delta tables on S3 by conditional writes.

    They must be set when the session starts. The session needs hadoop-aws 3.4.2 or later; with an
    earlier one it cannot write Delta tables on S3 any more.

    :raises RefusedError: as for :func:`log_store_jar`.
    """
    stores = {f"spark.delta.logStore.{scheme}.impl": _CLASS for scheme in _SCHEMES}
    return {"spark.jars": str(log_store_jar()), **stores}
