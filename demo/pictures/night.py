"""A night with everything in it that the page tells: the rest of the year, and what went wrong."""

from __future__ import annotations

import os
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from zero_rename import Table
from zero_rename.committer import (
    CommitConflictError,
    InvalidInputError,
    JobSpec,
    Mode,
    OpenedJob,
    Owner,
)
from zero_rename.committer.store.requests import CreateUpload, UploadPart
from zero_rename.orchestration.runs.task_run import idempotency_key_of

from ..dataset import Flights, partition_on

PARTITION_BY = ("year", "month", "day")
#: The days of that night.
CONFLICTED, LOST, FAILED, RUNNING = (date(2013, 11, day) for day in (18, 20, 22, 23))
#: Bytes of a part that nobody will complete.
_PART = 6 * 1024 * 1024
#: A day whose file has not come.
MISSING = date(2013, 9, 7)


def read_flights(table: Table, flights: Flights) -> pa.Table:
    """The CSV file, with the table's columns."""
    options = csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types=table.schema
    )
    return csv.read_csv(flights.path, convert_options=options)


def tell_night(table: Table, flights: Flights) -> None:
    """Load March to 21 November, a month a job, and let some of it go wrong.

    :param table: holds January and a few days of February already. Its store is that of this
        process's environment, too: what fails puts that on record by itself.
    """
    rows = read_flights(table, flights)
    for month in range(3, 12):
        of_month = rows.filter(pc.field("month") == month)
        if month == MISSING.month:
            of_month = of_month.filter(pc.field("day") != MISSING.day)
        if month == FAILED.month:
            of_month = of_month.filter(pc.field("day") < FAILED.day)
        by_hand = Owner(application="backfill.py", host="notebook-3")
        _load(table, of_month, by_hand, run_rank=date(2013, month, 1))
    _conflict(table, rows)
    _corrections(table, rows)
    _failure(table, rows)
    _leak(table)
    _run(table, rows)


def of_day(rows: pa.Table, day: date) -> pa.Table:
    return rows.filter((pc.field("month") == day.month) & (pc.field("day") == day.day))


def owner_on(day: date, kind: str = "scheduled") -> Owner:
    """The daily DAG's task of a day."""
    run_id = f"{kind}__{day + timedelta(days=1)}T00:00:00+00:00"
    return Owner(dag_id="flights_daily", run_id=run_id, task_id="load", try_number=1)


def _key(owner: Owner) -> str | None:
    if owner.dag_id is None:
        return None
    return idempotency_key_of(owner.dag_id, owner.run_id or "", owner.task_id or "")


def _load(table: Table, rows: pa.Table, owner: Owner, **policy: Any) -> None:
    job = table.job(
        rows.schema, mode="overwrite", owner=owner, idempotency_key=_key(owner), **policy
    )
    with job:
        job.write(rows)


def _conflict(table: Table, rows: pa.Table) -> None:
    """A scheduled run, and an older one by hand over it; a third that gives way; and the look that
    finds them."""
    day = of_day(rows, CONFLICTED)
    _load(table, day, owner_on(CONFLICTED))
    late = day.slice(0, day.num_rows - 40)
    _load(table, late, owner_on(CONFLICTED, "manual"), run_rank=CONFLICTED)
    base = table.snapshot([partition_on(LOST)])
    day = of_day(rows, LOST)
    _load(table, day, owner_on(LOST))
    try:
        _load(table, day, owner_on(LOST, "manual"), base=base)
    except CommitConflictError:
        table.conflicts()
        return
    raise AssertionError("the second run did not give way")


def _corrections(table: Table, rows: pa.Table) -> None:
    for day in (date(2013, 6, 12), date(2013, 10, 3), date(2013, 10, 4)):
        mended = of_day(rows, day)
        _load(table, mended.filter(pc.field("dep_time").is_valid()), owner_on(day))


def _failure(table: Table, rows: pa.Table) -> None:
    """A run whose file holds another day than its own."""
    wrong = of_day(rows, FAILED + timedelta(days=4))
    try:
        _load(table, wrong, owner_on(FAILED), replace_partitions=[partition_on(FAILED)])
    except InvalidInputError:
        return
    raise AssertionError("rows of another day were taken")


def _open(table: Table, day: date) -> OpenedJob:
    owner = owner_on(day)
    spec = JobSpec(
        table.schema,
        mode=Mode.REPLACE,
        partition_by=PARTITION_BY,
        replace_partitions=(partition_on(day),),
        owner=owner,
        idempotency_key=_key(owner),
    )
    return table.open_job(spec)


def _leak(table: Table) -> None:
    """What a task left that came to its store when its job was closed."""
    opened = _open(table, FAILED)
    table.abort(opened)
    for number in range(3):
        key = table.root.data_key(partition_on(FAILED), number, opened.job, 0)
        upload = table.run(CreateUpload(key))
        table.run(UploadPart(key, upload.upload_id, 1, os.urandom(_PART)))


def _run(table: Table, rows: pa.Table) -> None:
    """A job whose rows are uploaded and that has not decided."""
    opened = _open(table, RUNNING)
    writer = table.task_writer(opened, 0, 0)
    for batch in of_day(rows, RUNNING).to_batches():
        writer.write(batch)
    writer.close()
