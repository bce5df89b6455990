"""Open record: it says that a job has begun and is not completely cleaned up yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated

from ..job_spec import Coordination, JobSpec, Mode, OnConflict, Owner, SuccessMarkers
from ..run_rank import RunRank, rank_in
from .codec import decode, encode
from .marks import LEFT_OUT, Moment
from .partition_ranks import Ranks


@dataclass(frozen=True)
class OpenRecord:
    """The owner and the policies of an open job. Each heartbeat rewrites it; it is removed last.

    :param interval: seconds between heartbeats; ``None``: the job sends none.
    :param max_duration: seconds after which a job without heartbeats may be fenced.
    :param opened_at: when the record was first written, by the store's clock; ``None`` until a
        heartbeat rewrites it: until then its Last-Modified is that time.
    :param partitions: the only partitions that the job may write, whether it replaces them or not;
        empty: the job names none.
    :param coordination: that of its table, which a first job has yet to make.
    :param run_rank: the rank of its run; ``None``: the time at which the job began is its rank.
    """

    job: str
    write_id: str
    owner: Owner
    mode: Mode
    on_conflict: OnConflict
    success_markers: SuccessMarkers
    idempotency_key: str | None
    partitions: tuple[str, ...]
    replace_table: bool
    max_duration: float
    interval: float | None = None
    opened_at: Moment | None = None
    coordination: Annotated[Coordination, LEFT_OUT] = Coordination.STORE
    run_rank: Ranks = None

    @staticmethod
    def of(job: str, write_id: str, spec: JobSpec) -> OpenRecord:
        policy = {
            f.name: getattr(spec, f.name) for f in fields(OpenRecord) if hasattr(spec, f.name)
        }
        named = spec.named_partitions
        return OpenRecord(job, write_id, partitions=named, **policy)

    def rank(self, partition: str) -> RunRank | None:
        """Return the rank of its run in a partition; ``None``: it only rewrites existing rows."""
        return rank_in(self.run_rank, partition, self.job)

    def spelled(self, spell: Callable[[str], str]) -> OpenRecord:
        """Return the record with the ranks by the names that the table gives its partitions.

        :param spell: returns a partition's name as the table stores it.
        """
        if self.run_rank is None:
            return self
        return replace(self, run_rank=self.run_rank.spelled(spell))

    @property
    def patience(self) -> float:
        """Default grace period: seconds of silence after which this job counts as dead."""
        if self.interval is None:
            return self.max_duration
        return max(10 * self.interval, 600.0)

    def encode(self) -> bytes:
        return encode("open", self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> OpenRecord:
        return decode(body, "open", key).read(OpenRecord)
