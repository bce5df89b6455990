"""Delta table that the directory of a job of Hadoop's committers has become, by adoption.

Only the log of such a table says which files count. A job that began before the adoption, or beside
it, may have completed some files that the log names and others that it does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...committer.commit.state.tolerance import unless_denied
from ...committer.format.layout import TableRoot
from ...committer.format.schema.other_formats import FORMATS, first_of_log
from ...committer.store.requests import All, Step


def find_delta(roots: Sequence[TableRoot]) -> Step[TableRoot | None]:
    """Find the first of some roots that has a log of Delta Lake: one request for each.

    :param roots: all but the first are skipped where the credentials lack rights.
    """
    first, *others = (first_of_log(root, FORMATS[0]) for root in roots)
    asked = (first, *(unless_denied(it, None) for it in others))
    logs = yield from All(asked)
    return next((root for root, key in zip(roots, logs, strict=True) if key is not None), None)
