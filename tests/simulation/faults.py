"""Faults: how a request to the store can be answered besides as it should, and how one dies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from simulation.sim_store import Store, apply

from support.memory_store import Behaviour
from zero_rename.committer import StoreFullError, StoreRefusedError, StoreUnreachableError
from zero_rename.committer.store import requests as s

#: An answer: how it went, with ``!`` first for a fault; the store after it; the answer or the
#: error; and a request that may still reach the store.
Answer = tuple[str, Store, Any, Any]

_READING = (s.Get, s.Head, s.ListObjects, s.ListUploads)
#: What the driver never sends twice, so that the protocol meets a lost answer.
_CONDITIONAL = (s.Put, s.CompleteUpload, s.Delete)
_DENIED = StoreRefusedError("The store denies it.")
_FULL = StoreFullError("The store is full.")
_UNREACHABLE = StoreUnreachableError("The store did not answer.")


@dataclass(frozen=True)
class Faults:
    """What may go wrong.

    :param lost: conditional requests whose answers are lost.
    :param denials: rights or credentials are gone.
    :param reads: a request that changes nothing is never answered, nor is one that begins an
        upload or adds to it.
    :param deletes: a request that deletes many deletes some, all without an answer, or none.
    :param in_flight: what a process had sent when it died may reach the store at any time after.
    :param full: nothing more can be written for a while.
    """

    lost: bool = True
    denials: bool = False
    reads: bool = False
    deletes: bool = False
    in_flight: bool = False
    full: bool = False

    def answers(
        self, store: Store, request: Any, behaviour: Behaviour, may_fail: bool
    ) -> Iterator[Answer]:
        """How a request can be answered: as it should first, then by each fault.

        :param may_fail: whether faults are left.
        """
        after, answer = apply(store, request, behaviour)
        yield " ", after, answer, None
        if not may_fail:
            return
        if isinstance(request, s.DeleteMany):
            if self.deletes:
                yield from _partly(store, request, behaviour)
        elif isinstance(request, (*_CONDITIONAL, s.AbortUpload)):
            yield from self._lost(store, after, request)
        elif self.reads:
            yield "! unreachable:", store, _UNREACHABLE, None

    def _lost(self, store: Store, after: Store, request: Any) -> Iterator[Answer]:
        if self.lost and after is not store:
            yield "! applied, answer lost:", after, s.Unknown("lost"), None
        if self.lost:
            yield "! not applied, answer lost:", store, s.Unknown("lost"), None
        if self.lost and isinstance(request, s.Put):
            yield "! 409:", store, s.Refused("ConditionalRequestConflict"), None
            yield "! answer lost, applied late:", store, s.Unknown("lost"), request
        if self.full and isinstance(request, s.Put):
            yield "! full:", store, _FULL, None
        if self.denials:
            yield "! denied:", store, _DENIED, None
        if self.lost and isinstance(request, s.CompleteUpload) and after is not store:
            yield "! applied, NoSuchUpload:", after, s.Refused("NoSuchUpload"), None

    def left_by_the_dead(self, requests: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """What may still reach the store of the requests that a dying process waits for."""
        yield ()
        writes = tuple(request for request in requests if not isinstance(request, _READING))
        if self.in_flight and writes:
            yield writes


LOST_ANSWERS = Faults()


def is_reading(request: Any) -> bool:
    """Whether a request changes nothing."""
    return isinstance(request, _READING)


def denied(store: Store) -> Answer:
    """What anybody is told who may only read."""
    return " ", store, _DENIED, None


def _partly(store: Store, request: s.DeleteMany, behaviour: Behaviour) -> Iterator[Answer]:
    first, left = request.items[:1], request.items[1:]
    after, _ = apply(store, s.DeleteMany(first), behaviour)
    failed = {key: "InternalError" for key, _ in left or first}
    yield "! some deleted:", after if left else store, s.Deleted(failed), None
    after, _ = apply(store, request, behaviour)
    yield "! all deleted, answer lost:", after, s.Unknown("lost"), None
