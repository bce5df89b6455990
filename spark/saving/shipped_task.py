"""Functions that ``save()`` ships to Spark's Python workers, each as the text of its own code.

PySpark pickles a function that is defined inside another one by value. So a worker needs nothing
of this package to begin with it, and what it lacks can be said in words: by reference it would
end in ``ModuleNotFoundError`` while it still unpickles. What the functions carry is no secret:
each worker finds its credentials by itself.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ...committer.commit.state.job_state import OpenedJob

#: The columns of what the functions return: number of a task, and what it reports. Of the end
#: mark it is ``None``, and the number is how many tasks there were.
RESULTS = "task int, result binary"
#: What begins the error of a worker that cannot work for this driver.
UNFIT = "zero_rename: this worker cannot write:"

ShippedTask = Callable[[Iterator[Any]], Iterator[Any]]


def shipped_task(opened: OpenedJob, names: Sequence[str], freeze: bool) -> ShippedTask:
    """What each task does: write its rows, and report in one row what it has left.

    :param names: the columns' names. Spark gets others, since it takes dots and backticks in
        names for syntax.
    :param freeze: freeze each worker once (:func:`..worker.freeze_worker`).
    """
    version = sys.modules[__name__.partition(".")[0]].__version__
    # Tasks need not know the state of every partition.
    needed = replace(opened, base={}, read={}, others=frozenset(), new_table=None)
    needed = replace(needed, spec=replace(needed.spec, base=None))
    payload, columns, unfit = pickle.dumps(needed), tuple(names), UNFIT

    def write_partition(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        here = f"{sys.executable}, Python {'.'.join(map(str, sys.version_info[:3]))}"
        found = {}
        for package in ("pyarrow", "boto3", "zero_rename"):
            try:
                found[package] = __import__(package)
            except ImportError as error:
                raise RuntimeError(f"{unfit} {here} has no {package} ({error})") from error
        if found["zero_rename"].__version__ != version:
            raise RuntimeError(
                f"{unfit} {here} has zero_rename {found['zero_rename'].__version__} at "
                f"{found['zero_rename'].__file__}, and the driver has {version}"
            )
        from zero_rename.spark.saving.task_rows import report

        yield from report(payload, columns, freeze, batches)

    return write_partition


def end_mark() -> ShippedTask:
    """What one more task does, which comes after all others: its number is how many they were."""

    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None
        number = pa.array([context.partitionId()], pa.int32())
        yield pa.record_batch([number, pa.array([None], pa.binary())], names=["task", "result"])

    return count
