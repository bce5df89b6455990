"""PySpark's daemon, from which Python workers are forked, with what they all import in it already:
a second of CPU for each of them. ``spark.python.daemon.module`` names it for tasks; for what plans
reads and writes, and commits, Spark starts its own, which :func:`preloading_python` replaces."""

from __future__ import annotations

import contextlib
import gc
import shlex
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
_PRELOADED = (
    *("pandas", "pyarrow.parquet", "pyspark.worker", "pyspark.sql.pandas.types", "boto3"),
    *("pyspark.sql.datasource_internal", "pyspark.sql.worker.write_into_data_source"),
    *("zero_rename.committer.table", "zero_rename.spark", "zero_rename.spark.data_source"),
)
_PYTHON = """#!/bin/sh
# Takes the place of PySpark's daemon.
PYTHONPATH={tests}:$PYTHONPATH
export PYTHONPATH
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    exec {python} -m support.preloaded_daemon "$@"
fi
exec {python} "$@"
"""


def preloading_python(python: str, folder: Path) -> str:
    """A Python for ``PYSPARK_PYTHON``, in a folder, that starts this daemon and not PySpark's."""
    script = folder / "preloading-python"
    script.write_text(_PYTHON.format(python=shlex.quote(python), tests=shlex.quote(str(_TESTS))))
    script.chmod(0o755)
    return str(script)


def _preload() -> None:
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            __import__(name)
    with contextlib.suppress(ImportError):
        from support import descriptions, garbage, known_store

        garbage.collect_rarely()
        descriptions.read_once()
        known_store.spare_probes(setattr)
        import boto3

        boto3.client("s3", "us-east-1", aws_access_key_id="-", aws_secret_access_key="-")
    gc.freeze()


if __name__ == "__main__":
    from pyspark.daemon import manager

    _preload()
    manager()
