"""Files of a state that stay columns, from one checkpoint into the next: there may be a million.

===================================  ==========================
a file                               in the next checkpoint
===================================  ==========================
of the checkpoint before             as it stands there, unless
removed by an entry since            left out
added by an entry since, and live    as the entry has it
===================================  ==========================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from .actions import Action, AddFile, RemoveFile
from .checkpoint import damage_named, read_add_columns, read_all_but_files
from .entries import LogFolder
from .file_columns import adds_as_columns, keep_adds
from .replay import LogState


@dataclass(frozen=True)
class CheckpointFiles:
    """The live files of a state, as columns.

    :param parts: bodies of the checkpoint that it is made of, by key.
    :param gone: paths that entries since have removed, or added again.
    :param removed: paths of its other tombstones.
    :param since: files that they have added and that are live.
    """

    parts: Mapping[str, bytes]
    gone: frozenset[str]
    removed: frozenset[str]
    since: tuple[AddFile, ...]

    def columns(self) -> Iterator[pa.StructArray]:
        """Read them, some rows at once.

        :raises RecordDamagedError: the checkpoint cannot be read, or a file is live and removed.
        """
        for key, body in self.parts.items():
            with damage_named(key):
                for column in read_add_columns(body, key):
                    yield keep_adds(column, key, self.gone, self.removed)
        yield from adds_as_columns(self.since)


class CheckpointParts:
    """The parts of checkpoints that were read, whose files are not yet."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}
        self._removed: dict[str, dict[str, RemoveFile]] = {}

    def read(self, body: bytes, key: str) -> Iterator[Action]:
        """Read all but the files of a part, and keep it."""
        self._bodies[key] = body
        removed = self._removed[key] = {}
        for action in read_all_but_files(body, key):
            if isinstance(action, RemoveFile):
                removed[action.path] = action
            yield action

    def files(self, folder: LogFolder, state: LogState) -> CheckpointFiles:
        """The live files of a state that was made of these parts and the entries since.

        :param state: with tombstones; of its files it has those that entries have added.
        """
        # Where a checkpoint is damaged, parts of an older one were read after it.
        keys = [it for it in self._bodies if folder.is_checkpoint(it, state.checkpoint)]
        before = {path: it for key in keys for path, it in self._removed[key].items()}
        removed = state.removed or {}
        since = {path for path, it in removed.items() if before.get(path) is not it}
        return CheckpointFiles(
            {key: self._bodies[key] for key in keys},
            gone=frozenset(since | state.live.keys()),
            removed=frozenset(removed.keys() - since),
            since=(*state.live.values(),),
        )
