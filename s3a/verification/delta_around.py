"""Delta table that the directory of a job of Hadoop's committers has become, by adoption.

Only the log of such a table says which files count. A job that began before the adoption, or beside
it, may have completed some files that the log names and others that it does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...committer.commit.state.tolerance import unless_denied
from ...committer.format.layout import TableRoot
from ...committer.format.schema.other_formats import DELTA_LAKE, first_of_log
from ...committer.store.requests import All, Step


def find_delta(roots: Sequence[TableRoot], destination: str) -> Step[TableRoot | None]:
    """Find the first of some roots that has a log of Delta Lake: one request for each.

    A root around the destination counts only if the destination may be a partition of it.

    :param roots: all but the first are skipped where the credentials lack rights.
    :param destination: of a job, a prefix without a slash at its end.
    """
    places = [root for root in roots if may_hold(root, destination)]
    asked = [first_of_log(root, DELTA_LAKE) for root in places]
    asked = [
        it if root == roots[0] else unless_denied(it, None)
        for root, it in zip(places, asked, strict=True)
    ]
    logs = yield from All(tuple(asked))
    return next((root for root, key in zip(places, logs, strict=True) if key is not None), None)


def may_hold(root: TableRoot, destination: str) -> bool:
    """Return whether a destination lies in a root only as a partition of it, or around the root."""
    above = f"{root.prefix}/"
    if not f"{destination}/".startswith(above):
        return True
    below = f"{destination}/".removeprefix(above).split("/")[:-1]
    return all("=" in name for name in below)
