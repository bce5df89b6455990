"""Lost records: errors for a head or a record that is missing although others name it."""

from __future__ import annotations

from ...errors import DamagedError
from ..layout import TableRoot, job_in_key
from .directory import Directory

#: Reference to the guide, for remedies.
PAGE = "The guide *My records are gone* says what can be done."


def head_lost(root: TableRoot, partition: str, known_by: str) -> DamagedError:
    """Build the error for a partition whose head is missing.

    :param known_by: the record that names the partition.
    """
    return DamagedError(
        f"The head of {partition!r} is gone, and {known_by} names the partition: which of its "
        "files count, a listing does not tell. Nothing was read or changed.",
        table=root.url,
        key=root.head_key(partition),
        remedy="Restore the object from a version or backup, or build it again from the "
        f"decisions: zero-rename repair {root.url} (then with --apply); {PAGE}",
    )


def records_lost(root: TableRoot, key: str) -> DamagedError:
    """Build the error for a file of this package that no record names."""
    return DamagedError(
        "A data file carries the id of a job of which no record is here: the table's records "
        "are gone, or the file is another table's. A listing would count what was replaced or "
        "hidden, so the file is not counted. Nothing was read or changed.",
        table=root.url,
        job=job_in_key(key),
        key=key,
        remedy=f"Restore what lies below {root.control_prefix} from versions or a backup, or "
        "load the table again with a replace of the whole table; move files away that belong to "
        f"another table. {PAGE}",
    )


def table_lost(root: TableRoot) -> DamagedError:
    """Build the error for a table whose ``table.json`` is missing while its heads are there."""
    return DamagedError(
        "table.json is gone, and heads of the table's partitions are there: its columns and "
        "layout are not known. Nothing was read or changed.",
        table=root.url,
        key=root.table_key,
        remedy="Restore the object from a version or backup; or write to the table with a job of "
        f"its very columns and partition columns, whose commit makes it again. {PAGE}",
    )


def refuse_orphans(root: TableRoot, directory: Directory) -> None:
    """Refuse files with a job id at a root without a record of a table.

    :raises DamagedError: there are such files.
    """
    for items in directory.partitions.values():
        for item in items:
            if job_in_key(item.key) is not None:
                raise records_lost(root, item.key)


def named_by(root: TableRoot, job: str) -> str:
    """Name a job's decision for these errors."""
    return f"the decision of {job} ({root.decision_key(job)})"
