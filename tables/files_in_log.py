"""Files of other programs, and what the log of a Delta table says of them.

An adoption names such files. Others come by jobs that do not know the log, such as those of
Hadoop's committers that were at work during the adoption: no reader of the table sees their rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..committer.errors import RecordDamagedError
from ..committer.format.layout import TableRoot
from ..committer.store.requests import Step
from ..layouts.delta.delta_layout import DeltaLayout
from ..log.opening import LogDepth, open_log
from ..log.replay import LogState
from .delta_files import layout_of


def files_in_log(root: TableRoot, keys: Collection[str]) -> Step[frozenset[str]]:
    """Return those of the keys that the newest state of the Delta table at a root names.

    :raises ZeroRenameError: the log cannot be read.
    """
    layout = layout_of(root)
    state = (yield from open_log(layout)).state
    paths = {*state.live, *state.vectors}
    return frozenset(keys).intersection(layout.key_of(path, state) for path in paths)


def known_to_log(root: TableRoot, keys: Collection[str]) -> Step[frozenset[str]]:
    """Return those of the keys that the newest state of the Delta table at a root names, also as
    removed.

    :raises ZeroRenameError: the log cannot be read.
    """
    layout = layout_of(root)
    state = (yield from open_log(layout, LogDepth.WHOLE)).state
    return frozenset(keys).intersection(known_keys(layout, state))


def known_keys(layout: DeltaLayout, state: LogState) -> Iterable[str]:
    """Yield the keys of the files that a state names: live ones, and removed ones if they were
    read. Files elsewhere, as of a table that this one is a clone of, are left out."""
    for path in (*state.live, *state.vectors, *(state.removed or ())):
        try:
            yield layout.key_of(path, state)
        except RecordDamagedError:
            continue
