"""Registration of a load's table in the catalog that its connection or task names."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..committer import Table
    from .hooks import ZeroRenameHook


def register(hook: ZeroRenameHook, table: Table, catalog: str | None) -> dict[str, Any] | None:
    """Tell a catalog what the table is now that a job of it is committed.

    A failure is a warning with what to do, never a failure of the task: the next load, retry or
    ``zero-rename catalog sync`` tells the catalog all that it has missed.

    :param catalog: ``glue://database/table``, or without the table's name; ``None``: the
        connection's; empty: none.
    :returns: what the catalog was told; ``None``: nothing.
    """
    from ..catalog import sync_after_commit

    chosen = hook.settings.catalog if catalog is None else catalog
    if not chosen:
        return None
    report = sync_after_commit(table, chosen, connect=hook.get_glue)
    return None if report is None else asdict(report)
