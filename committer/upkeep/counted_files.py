"""Files of another committer's job in partitions that have a head: does the head name them?

The first job of this package adopts a directory as it is, with the files that another committer's
job has made visible there. From then on the heads of partitions name these files. If they were
removed, the table would have lost them. Files that such a job completes later are named by no head,
and no reader through the heads sees them.
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
    found = yield from _below_heads(roots, keys)
    return tuple(sorted(key for key, is_named in found.items() if is_named))


def uncounted_files(roots: Sequence[TableRoot], keys: Collection[str]) -> Step[tuple[str, ...]]:
    """Return those of the keys that lie in partitions with a head, and that no head names. The rest
    is as in :func:`counted_files`."""
    found = yield from _below_heads(roots, keys)
    return tuple(sorted(key for key, is_named in found.items() if not is_named))


def _below_heads(roots: Sequence[TableRoot], keys: Collection[str]) -> Step[dict[str, bool]]:
    """Find out which keys lie in partitions that have a head, and whether heads name them."""
    # Imported on use: a process that parses DAG files needs no table.
    from ..commit.snapshot import take_snapshot
    from ..commit.state.context import Context

    found: dict[str, bool] = {}
    for root in roots:
        mine = [key for key in keys if key.startswith(f"{root.prefix}/")]
        folders = {key: key.removeprefix(f"{root.prefix}/").rpartition("/")[0] for key in mine}
        slots = {root.head_key(name or UNPARTITIONED): name for name in folders.values()}
        asked = _heads(root, slots)
        heads = yield from asked if root == roots[0] else unless_denied(asked, [])
        if names := {slots[key] for key in heads}:
            state = yield from take_snapshot(Context(root), [it or UNPARTITIONED for it in names])
            named = {it.key for it in state.files}
            for key in (key for key in mine if folders[key] in names):
                found[key] = found.get(key, False) or key in named
    return found


def _heads(root: TableRoot, wanted: Collection[str]) -> Step[list[str]]:
    listing = yield from list_objects(root.heads_prefix, wanted=lambda it: it.key in wanted)
    return list(listing.keys)
