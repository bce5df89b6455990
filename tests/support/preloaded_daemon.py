"""PySpark's daemon, from which Python workers are forked, with what they all import in it already:
a second of CPU for each of them. ``spark.python.daemon.module`` names it."""

from __future__ import annotations

import contextlib

from pyspark.daemon import manager

if __name__ == "__main__":
    ours = "zero_rename.committer.table"
    for name in ("pandas", "pyarrow.parquet", "pyspark.worker", "boto3", ours):
        with contextlib.suppress(ImportError):
            __import__(name)
    manager()
