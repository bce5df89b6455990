"""Maintenance of a table as if all of its records were old."""

from __future__ import annotations

from zero_rename import Table
from zero_rename.committer.upkeep.gc.collect import GcReport, gc


def gc_of_all(table: Table, apply: bool = True) -> GcReport:
    """Collect the garbage of all records, also of those from the present second.

    ``Table.gc`` refuses a negative age, and 0 leaves the records of the present second.
    """
    return table.tend(gc(table._context, -1.0, apply))
