"""Files of other programs that the log of a Delta table names: an adoption may have added them."""

from __future__ import annotations

from collections.abc import Collection

from ..committer.format.layout import TableRoot
from ..committer.store.requests import Step
from ..log.opening import open_log
from .delta_files import layout_of


def files_in_log(root: TableRoot, keys: Collection[str]) -> Step[frozenset[str]]:
    """Return those of the keys that the newest state of the Delta table at a root names.

    :raises ZeroRenameError: the log cannot be read.
    """
    layout = layout_of(root)
    state = (yield from open_log(layout)).state
    paths = {*state.live, *state.vectors}
    return frozenset(keys).intersection(layout.key_of(path, state) for path in paths)
