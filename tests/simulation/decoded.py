"""Records are decoded once, since the same few bytes are read in thousands of states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from unittest import mock

from zero_rename.committer.format.records.decision import Decision, DecisionPart
from zero_rename.committer.format.records.head import PartitionHead
from zero_rename.committer.format.records.manifest import Manifest
from zero_rename.committer.format.records.open_record import OpenRecord
from zero_rename.committer.format.records.table_record import TableRecord

_KINDS = (Decision, DecisionPart, Manifest, OpenRecord, PartitionHead, TableRecord)
_DECODERS = [(kind, staticmethod(lru_cache(20_000)(kind.decode))) for kind in _KINDS]


@contextmanager
def decoded_once() -> Iterator[None]:
    """Inside, bytes that were decoded before give the record that they gave: a frozen one."""
    with ExitStack() as stack:
        for kind, decoder in _DECODERS:
            stack.enter_context(mock.patch.object(kind, "decode", decoder))
        yield
