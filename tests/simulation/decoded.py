"""Records are decoded once, since the same few bytes are read in thousands of states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from unittest import mock

from zero_rename.committer.format.records.decision import Decision, DecisionPart
from zero_rename.committer.format.records.head import PartitionHead
from zero_rename.committer.format.records.manifest import Manifest
from zero_rename.committer.format.records.open_record import OpenRecord
from zero_rename.committer.format.records.table_record import TableRecord
from zero_rename.log import entries, opening
from zero_rename.log.actions import Action, read_actions
from zero_rename.log.checkpoint import read_checkpoint
from zero_rename.log.partitions import PartitionChoice

_KINDS = (Decision, DecisionPart, Manifest, OpenRecord, PartitionHead, TableRecord)
_DECODERS = [(kind, staticmethod(lru_cache(20_000)(kind.decode))) for kind in _KINDS]


@lru_cache(2_000)
def _whole_checkpoint(body: bytes, key: str) -> tuple[Action, ...]:
    return tuple(read_checkpoint(body, key))


def _checkpoint(body: bytes, key: str, choice: PartitionChoice | None = None) -> Iterable[Action]:
    return _whole_checkpoint(body, key) if choice is None else read_checkpoint(body, key, choice)


_READERS = (
    (opening, "read_checkpoint", _checkpoint),
    (entries, "read_actions", lru_cache(2_000)(read_actions)),
)


@contextmanager
def decoded_once() -> Iterator[None]:
    """Inside, bytes that were decoded before give the record that they gave: a frozen one."""
    with ExitStack() as stack:
        for kind, decoder in _DECODERS:
            stack.enter_context(mock.patch.object(kind, "decode", decoder))
        yield


@contextmanager
def log_read_once() -> Iterator[None]:
    """Inside, entries and checkpoints of a log that were read before give the same actions."""
    with ExitStack() as stack:
        for module, name, reader in _READERS:
            stack.enter_context(mock.patch.object(module, name, reader))
        yield
