"""Live files of a checkpoint, kept as columns for the next one: there may be a million.

===================================  ==========================
a file                               in the next checkpoint
===================================  ==========================
in the checkpoint before             unchanged, unless it is
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

    :param parts: the bodies of the checkpoint that the state is made of, by key.
    :param gone: paths that entries since the checkpoint have removed, or added again.
    :param removed: paths of the state's other tombstones.
    :param since: live files that entries since the checkpoint have added.
    """

    parts: Mapping[str, bytes]
    gone: frozenset[str]
    removed: frozenset[str]
    since: tuple[AddFile, ...]

    def columns(self) -> Iterator[pa.StructArray]:
        """Yield the files, some rows at a time.

        :raises RecordDamagedError: the checkpoint cannot be read, or has a file that is both live
            and removed.
        """
        for key, body in self.parts.items():
            with damage_named(key):
                for column in read_add_columns(body, key):
                    yield keep_adds(column, key, self.gone, self.removed)
        yield from adds_as_columns(self.since)


class CheckpointParts:
    """Parts of checkpoints whose files have not been read yet; all other actions have."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}
        self._removed: dict[str, dict[str, RemoveFile]] = {}

    def read(self, body: bytes, key: str) -> Iterator[Action]:
        """Yield the actions of a part except its live files, and keep the part."""
        self._bodies[key] = body
        removed = self._removed[key] = {}
        for action in read_all_but_files(body, key):
            if isinstance(action, RemoveFile):
                removed[action.path] = action
            yield action

    def files(self, folder: LogFolder, state: LogState) -> CheckpointFiles:
        """Return the live files of a state that was made of these parts and the entries since.

        :param state: it has tombstones; its ``files`` are those that the entries have added.
        """
        # If a checkpoint was damaged, parts of an older one were read after it.
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
