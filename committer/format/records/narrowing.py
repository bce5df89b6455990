"""Narrowing record: a plan's restriction of a repeated run to some of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from ..job_spec import Owner
from ..layout import TableRoot
from ..settling import Settling
from .codec import decode, encode
from .marks import LEFT_OUT, Count, JobId


def recompute_prefix(root: TableRoot) -> str:
    """Return the prefix of the records that plans leave for runs."""
    return f"{root.control_prefix}recompute/"


def recompute_key(root: TableRoot, idempotency_key: str) -> str:
    """Return the key of the record that a plan leaves for a run: named like the run's head."""
    return recompute_prefix(root) + root.run_key(idempotency_key).rpartition("/")[2]


@dataclass(frozen=True)
class Narrowing:
    """A plan's restriction of a run. It holds for one clear of the run's task only.

    :param idempotency_key: the run's key.
    :param job: the run's last job when the plan was made; ``None``: the run had committed none. If
        another job has done the run's work since, the record is void.
    :param partitions: the partitions to make again, with their versions when the plan was made.
    :param seconds: time for the task to begin, counted from the record's writing by the store's
        clock.
    :param planner: the process that left the record.
    :param whole: the run makes all of its partitions again. ``partitions`` then only says which of
        them must still have their versions.
    :param taken: the clear of the task that has begun by this record (:attr:`.Owner.cleared`);
        ``None``: no clear has.
    :param over: the record is void: no job follows it any more.
    :param settles: those of ``partitions`` in which the run settles a conflict. Its rank is not
        compared there, and the run is refused under every policy if their versions have moved.
    """

    write_id: str
    idempotency_key: str
    job: JobId | None
    partitions: Mapping[str, Count]
    seconds: Count
    planner: Owner
    whole: bool = False
    taken: str | None = None
    over: bool = False
    settles: Annotated[Mapping[str, Settling], LEFT_OUT] = field(default_factory=dict)

    def encode(self) -> bytes:
        return encode("narrowing", self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> Narrowing:
        """Parse a narrowing record.

        :raises RecordDamagedError: it cannot be read.
        """
        return decode(body, "narrowing", key).read(Narrowing)
