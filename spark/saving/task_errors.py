"""Errors of tasks, converted for the driver.

A task's error reaches the driver as the text of a Spark exception, with stack traces around it.
"""

from __future__ import annotations

import re

from ...committer import errors
from ...committer.errors import InvalidInputError, RefusedError, ZeroRenameError
from .task_rows import UNFIT

#: Ends of an error's text: Java's stack, Spark's own text after it, an empty line.
_END = r"(?=\n\s*\n|\n\s+at |\n\s*Driver stacktrace|\s*SQLSTATE: |\Z)"
_OURS = re.compile(r"zero_rename\.committer\.errors\.(\w+): (.+?)" + _END, re.DOTALL)
#: An error's text: message, then table, job and key, then remedy.
_WRITTEN = re.compile(
    r"(?P<message>.+?) \[(?=table |job |key )(?:table (?P<table>[^\s,\]]+))?(?:, )?"
    r"(?:job (?P<job>[^\s,\]]+))?(?:, )?(?:key (?P<key>[^\]]+))?\](?: (?P<remedy>.+))?",
    re.DOTALL,
)
_UNFIT = re.compile(re.escape(UNFIT) + r" (.+)")
_NO_ARROW = re.compile(r"No module named '(pyarrow|pandas)|(PyArrow|Pandas) >= [\d.]+ must be")
#: Spark's messages for cancelled tasks: by the session, its UI, or the end of Spark.
_CANCELLED = re.compile(
    r"\[(?:SPARK_JOB_CANCELLED|OPERATION_CANCELED)\][^\n]*|Job \d+ cancelled[^\n]*"
)
_PYTHONS = re.compile(r"different version:? ([\d.]+) than that in driver:? ([\d.]+)")
_SAME_PYTHON = (
    "Let PYSPARK_PYTHON name a Python of the driver's minor version for Spark's workers, or run "
    "the driver (with Spark Connect the client) in theirs. docs/spark-platforms.md says more."
)
_REMEDY = (
    "Install the same version of airflow-provider-zero-rename, with boto3 and pyarrow, for the "
    "Python of Spark's workers, or ship it by --py-files; or set PYSPARK_PYTHON to a Python that "
    "has it. docs/spark.md says how on each platform."
)


def error_of_task(raised: BaseException, table: str, job: str) -> ZeroRenameError | None:
    """Find the error of this package because of which Spark failed; ``None`` for other errors.

    It is the error of a task, or a new one if the tasks were cancelled or their Python worker
    cannot write.

    :param raised: the error that Spark raised in the driver.
    """
    text = str(raised)
    found = _OURS.search(text)
    if found is not None:
        kind = getattr(errors, found[1], ZeroRenameError)
        written = _WRITTEN.fullmatch(found[2].strip())
        return kind(found[2].strip()) if written is None else kind(**written.groupdict())
    if cancelled := _CANCELLED.search(text):
        return RefusedError(
            f"Spark cancelled the tasks of this write: {cancelled[0].strip().rstrip('.')}. Nothing "
            "of this job is visible.",
            table=table,
            job=job,
            remedy="Run the job again.",
        )
    remedy = _REMEDY
    if unfit := _UNFIT.search(text):
        why = unfit[1].strip()
    elif pythons := _PYTHONS.search(text):
        why, remedy = f"it is Python {pythons[1]}, and the driver's {pythons[2]}", _SAME_PYTHON
    elif _NO_ARROW.search(text):
        why = "it has no pyarrow, or no pandas, that PySpark can use"
    else:
        return None
    return InvalidInputError(
        f"A Python worker of Spark's cannot write: {why}. Nothing of this job is visible.",
        table=table,
        job=job,
        remedy=remedy,
    )
