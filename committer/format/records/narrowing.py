"""Plan's word to a run that is made again: these of its partitions, as they were then."""

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
    """Where plans leave their word to runs."""
    return f"{root.control_prefix}recompute/"


def recompute_key(root: TableRoot, idempotency_key: str) -> str:
    """The key of what a plan leaves for a run: named as the run's head is."""
    return recompute_prefix(root) + root.run_key(idempotency_key).rpartition("/")[2]


@dataclass(frozen=True)
class Narrowing:
    """Below the run's key. It is about one clear of the run's task, and no other.

    :param idempotency_key: the run's key.
    :param job: the run's job as it was planned against; ``None``: it had committed none. Where
        another one has done its work since, the record is void.
    :param partitions: those to make again, with the versions that they were at.
    :param seconds: from its writing, by the store's clock, in which the task is to begin.
    :param planner: who left it.
    :param whole: the run makes all of its partitions again, whatever its rows have, and these only
        as they were at those versions.
    :param taken: which clear of the task has begun by it (:attr:`.Owner.cleared`); ``None``: none.
    :param over: nobody goes by it any more.
    :param settles: of ``partitions``, those in which the run settles a conflict: its rank is not
        compared there, and a version that has moved refuses it under every policy.
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
        """:raises RecordDamagedError: it cannot be read."""
        return decode(body, "narrowing", key).read(Narrowing)
