"""Data root of a Delta table: another place, where its jobs write their files first.

Its first job puts it on record in the log. Files there are named by their URLs: no engine but Spark
reads those, until a checkpoint has copied them into the table.
"""

from __future__ import annotations

from ..committer.errors import InvalidInputError, TableMismatchError
from ..committer.format.layout import TableRoot
from ..committer.store.fast_root import FastRoot
from ..layouts.delta.data_roots import data_root_of
from ..log.replay import LogState


def check_data_root(root: TableRoot, data_root: FastRoot) -> None:
    """Refuse a data root that lies in the table.

    :raises InvalidInputError: it does.
    """
    if not root.is_apart(data_root):
        raise InvalidInputError(
            f"The data root {data_root} lies in the table itself. Nothing was written.",
            table=root.url,
            remedy="Name another bucket, or a prefix outside the table; or leave the data root "
            "out: files then lie in the table.",
        )


def kept_data_root(root: TableRoot, state: LogState, asked: FastRoot | None) -> FastRoot | None:
    """The data root of a table that is there, for a job that may ask for it.

    :raises TableMismatchError: the job asks for another one.
    """
    there = data_root_of(state)
    if asked not in (None, there):
        raise TableMismatchError(
            f"The table's data root is {there or 'none'}, the job asks for {asked}. "
            "Nothing was written.",
            table=root.url,
            remedy="Leave data_root out; or change the table's: zero-rename data-root "
            f"{root.url} '{asked}' --apply",
        )
    return there
