"""Files of another committer's dead job that the heads of a table name.

The first job of this package adopts a directory as it is, with the files that such a job has made
visible there. From then on the heads of partitions name these files. If they were removed, the
table would have lost them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..commit.state.tolerance import unless_denied
from ..format.layout import UNPARTITIONED, TableRoot
from ..store.listing import list_objects
from ..store.requests import Step


def counted_files(roots: Sequence[TableRoot], keys: Collection[str]) -> Step[tuple[str, ...]]:
    """Return those of the keys that heads name: a LIST for each root, and a snapshot of the
    partitions that have a head.

    :param roots: roots of tables. All but the first are skipped where the credentials lack rights.
    :raises DamagedError: the records of such a partition cannot be read.
    """
    # Imported on use: a process that parses DAG files needs no table.
    from ..commit.snapshot import take_snapshot
    from ..commit.state.context import Context

    found: set[str] = set()
    for root in roots:
        mine = [key for key in keys if key.startswith(f"{root.prefix}/")]
        folders = {key.removeprefix(f"{root.prefix}/").rpartition("/")[0] for key in mine}
        slots = {root.head_key(name or UNPARTITIONED): name or UNPARTITIONED for name in folders}
        asked = _heads(root, slots)
        heads = yield from asked if root == roots[0] else unless_denied(asked, [])
        if partitions := [slots[key] for key in heads]:
            state = yield from take_snapshot(Context(root), partitions)
            found |= {it.key for it in state.files}.intersection(mine)
    return tuple(sorted(found))


def _heads(root: TableRoot, wanted: Collection[str]) -> Step[list[str]]:
    listing = yield from list_objects(root.heads_prefix, wanted=lambda it: it.key in wanted)
    return list(listing.keys)
