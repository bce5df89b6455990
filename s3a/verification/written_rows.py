"""Rows that Spark wrote, against those that a committed job's files hold.

Spark names a file by task and folder alone: rows that it takes for those of two partitions, and
whose folders have one name, make two files of one key, of which the later one stays. Every
committer reports such a job as committed.
"""

from __future__ import annotations

from ...committer.errors import VerificationError
from ...committer.layout import TableRoot


def check_rows(
    root: TableRoot, job: str, wrote: int | None, hold: int | None, *, at_least: bool = False
) -> None:
    """See that no row is missing.

    :param wrote: rows that Spark wrote, ``hold`` those that the job's files hold; ``None``:
        nobody could count them.
    :param at_least: the files may be those of other jobs, too.
    :raises VerificationError: the numbers differ.
    """
    if wrote is None or hold is None or hold == wrote or (at_least and hold > wrote):
        return
    raise VerificationError(
        f"Spark wrote {wrote} rows, and the files of the job hold {hold}. Where rows are missing, "
        "two partition values have shared a folder's name, and one file has replaced another.",
        table=root.url,
        job=job or None,
        remedy="Nothing should read this load. An overwrite can be loaded again once the cause is "
        "mended; after an append, remove the job's files first: its report or its _SUCCESS names "
        "them.",
    )
