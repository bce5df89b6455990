"""Conflicts of runs over a partition, and their settlements: the record beside a table.

Two runs *conflict* if one's commit removed rows of the other, or one gave way to the other, and a
:class:`ConflictCause` applies: they overlapped, the older one came later, their ranks are of two
kinds, or their tasks differ. It is no conflict if a policy decided. Attempts of one run, appends,
and jobs that rewrite existing rows do not conflict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from ...errors import InvalidInputError, first_few
from ..job_spec import NOBODY, Owner
from ..layout import UNPARTITIONED
from ..run_rank import RunRank
from .codec import decode, encode
from .marks import LEFT_OUT, Count, JobId, Moment
from .partition_ranks import Rank, newest_of

_KIND = "conflicts"
#: Name of Dagster in idempotency keys, and of the application if the run itself writes.
_DAGSTER = "dagster"
_DAGSTERS_KEY = re.compile(rf"{_DAGSTER}/[^/]+/.+/keys-[0-9a-f]{{16}}")
#: Series of a job that a run of Dagster made: op, digest of partition keys, first run of its chain.
_DAGSTERS_SERIES = re.compile(r"\S+ \S+ [0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ConflictCause(StrEnum):
    """Cause of a conflict of two runs, the clearest first."""

    #: One committed while the other one was at work.
    OVERLAPPED = "overlapped"
    #: The older run committed later.
    OLDER_CAME_LATER = "the older came later"
    #: It cannot be decided which is newer: one rank is a time, the other one a number.
    RANKS_DIFFER = "ranks of two kinds"
    #: Two tasks load one partition.
    TASKS_DIFFER = "the tasks differ"


class SettledBy(StrEnum):
    """Means by which a conflict was settled."""

    #: The rows of the run that stands were restored.
    RESTORE = "restore"
    #: The run that stands was made again.
    RERUN = "rerun"
    #: The rows of the run that stands were visible already.
    KEPT = "kept"
    #: The policy ``on_conflict=newest_run`` decided when the runs met.
    POLICY = "policy"
    #: A later run replaced the rows. It is newer than all of the conflict and of the same task.
    LATER_RUN = "later run"


def is_dagsters(owner: Owner, idempotency_key: str | None) -> bool:
    """Return whether a run of Dagster made a job. Its task is an asset then, and its DAG is one of
    the jobs that may load that asset.

    An application that Dagster submits has a name of its own. Its idempotency key and its owner's
    series are Dagster's.

    :param owner: of the job.
    :param idempotency_key: of the job's run; ``None``: it has none, or it is not known.
    """
    return (
        owner.application == _DAGSTER
        or bool(_DAGSTERS_KEY.fullmatch(idempotency_key or ""))
        or bool(_DAGSTERS_SERIES.fullmatch(owner.series or ""))
    )


@dataclass(frozen=True)
class ConflictingRun:
    """One of the runs of a conflict.

    :param key: its idempotency key; without one, its job's id.
    :param job: the job that it committed last, or that gave way; with Hadoop's committers the
        attempt's UUID; ``""``: it gave way before it had a job.
    :param at: when that job was decided, or its giving way was recorded, by the store's clock.
    :param rank: the run's rank; ``None``: not on record.
    :param rows: number of rows that the job wrote to the partition; ``None``: not counted, or the
        run gave way.
    :param is_visible: readers see rows of the run.
    :param gave_way: the run wrote nothing to the partition, in favour of another run; ``message``
        is its error.
    """

    key: str
    job: str
    at: Moment
    owner: Owner = NOBODY
    rank: Rank = None
    rows: Annotated[Count | None, LEFT_OUT] = None
    is_visible: Annotated[bool, LEFT_OUT] = False
    gave_way: Annotated[bool, LEFT_OUT] = False
    message: Annotated[str, LEFT_OUT] = ""

    @property
    def task(self) -> tuple[str, str]:
        """DAG and task of the run; outside Airflow its application."""
        owner = self.owner
        if owner.dag_id is None:
            return (owner.application or "", "")
        return (owner.dag_id, owner.task_id or "")

    @property
    def is_dagsters(self) -> bool:
        """True if it is a run of Dagster: its task is an asset."""
        return is_dagsters(self.owner, self.key)

    @property
    def attempt(self) -> int | None:
        """Number of the attempt that wrote last, or gave way."""
        return self.owner.try_number

    def is_named(self, word: str) -> bool:
        """Return whether a user's word names this run's DAG, task, application or asset."""
        dag, task = self.task
        is_asset = self.is_dagsters and word == task
        return is_asset or (word in (dag, f"{dag}.{task}") if task else word == dag)

    def __str__(self) -> str:
        dag, task = self.task
        named = f"{dag}.{task}" if task else dag
        of_run = f" of run {self.owner.run_id}" if self.owner.run_id else ""
        return f"{named}{of_run}" if named else self.job or self.key


@dataclass(frozen=True)
class Settlement:
    """A settlement of a conflict, or an attempt at one that failed.

    :param stands: the key of the run whose rows are to be visible.
    :param losers: the keys of the other runs.
    :param rank: the highest rank of the conflict, which the partition has since; ``None``: not
        known.
    :param by: the task of a DAG, or the program, that decided.
    :param policy: the policy that decided, as the user gave it.
    :param at: when it was recorded, by the store's clock; 0: it is not on record.
    :param job: the job that carried it out; ``None``: no job was needed, or none has run yet.
    :param error: why the attempt to settle it failed; empty: it did not fail.
    :param version: the version of the DAG or program that ran; ``None``: not known.
    """

    stands: str
    losers: tuple[str, ...]
    rank: Rank
    by: Owner
    policy: str
    how: SettledBy
    at: Moment = 0.0
    job: Annotated[str | None, LEFT_OUT] = None
    error: Annotated[str, LEFT_OUT] = ""
    version: Annotated[str | None, LEFT_OUT] = None


@dataclass(frozen=True)
class RunConflict:
    """Runs that conflict over a partition.

    :param runs: its runs, oldest first.
    :param cause: the clearest of its causes.
    :param found_at: when a search found it, by the store's clock.
    :param version: the partition's version at that search. A settlement is refused if the partition
        has moved since. 0 with Hadoop's committers.
    :param settlement: the last settlement that was tried; ``None``: none was.
    """

    partition: str
    runs: tuple[ConflictingRun, ...]
    cause: ConflictCause
    found_at: Moment
    version: Annotated[Count, LEFT_OUT] = 0
    settlement: Annotated[Settlement | None, LEFT_OUT] = None

    @property
    def is_settled(self) -> bool:
        """True if the last settlement of the conflict did not fail."""
        return self.settlement is not None and not self.settlement.error

    @property
    def name(self) -> str:
        """Partition's name for messages; ``the table`` if the table is unpartitioned."""
        return "the table" if self.partition == UNPARTITIONED else self.partition

    def highest_rank(self, winner: ConflictingRun) -> RunRank | None:
        """Return the rank that the partition has once ``winner`` stands.

        It is the highest of the ranks that are of the winner's kind (if it has no rank, of the
        oldest ranked run's kind); ``None``: no run has a rank.
        """
        ranks = [it.rank for it in (winner, *self.runs) if it.rank is not None]
        return newest_of(ranks[0], *ranks) if ranks else None

    @property
    def visible(self) -> tuple[ConflictingRun, ...]:
        """Runs whose rows readers see."""
        return tuple(it for it in self.runs if it.is_visible)

    def __str__(self) -> str:
        """Name in a sentence the runs that conflict, and those with visible rows."""
        said = [f"{it}{' (gave way)' if it.gave_way else ''}" for it in self.runs]
        seen = first_few([str(it) for it in self.visible]) or "none of them"
        return f"Runs conflict ({self.cause}): {first_few(said)}; visible: {seen}."

    def check_kinds(self) -> None:
        """Check that the ranks of its runs can be compared.

        :raises InvalidInputError: one rank is a time, and another one is a number.
        """
        kinds = {it.rank.kind: it for it in self.runs if it.rank is not None}
        if len(kinds) > 1:
            first, second = list(kinds.values())[:2]
            raise InvalidInputError(
                f"Over {self.name} the rank of {first} is {first.rank}, and that of {second} is "
                f"{second.rank}: a {first.rank and first.rank.kind} and a "
                f"{second.rank and second.rank.kind} do not say which is newer. Nothing was "
                "changed.",
                remedy="Name the run that is to stand, by a policy of prefer or keep. Give all runs"
                " of a table ranks of one kind, by run_rank.",
            )

    def run(self, key: str) -> ConflictingRun | None:
        """Return the conflict's run with that key; ``None``: not found."""
        return next((it for it in self.runs if it.key == key), None)

    def settled(self, settlement: Settlement) -> RunConflict:
        """Return the conflict with a settlement."""
        return replace(self, settlement=settlement)


@dataclass(frozen=True)
class ConflictRecord:
    """The results of all searches of a table for conflicts, and the point at which the last ended.

    :param looked_at: when the last search began, by the store's clock; 0: there was none.
    :param mark: all jobs that began before this time were read, except those in ``waiting``.
    :param known: jobs that began later and whose decisions were read.
    :param waiting: jobs that began before and had not decided, or whose decisions could not be
        read.
    :param open: unsettled conflicts, one for each partition.
    :param settled: conflicts that were settled lately, oldest first.
    :param log_version: for a table with a log, the version that the last search has read;
        ``log_table`` is the id of that table.
    """

    write_id: str
    looked_at: Moment = 0.0
    mark: Moment = 0.0
    known: Annotated[tuple[JobId, ...], LEFT_OUT] = ()
    waiting: Annotated[tuple[JobId, ...], LEFT_OUT] = ()
    open: Annotated[tuple[RunConflict, ...], LEFT_OUT] = ()
    settled: Annotated[tuple[RunConflict, ...], LEFT_OUT] = ()
    log_version: Annotated[Count | None, LEFT_OUT] = None
    log_table: Annotated[str | None, LEFT_OUT] = None

    def encode(self) -> bytes:
        return encode(_KIND, self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> ConflictRecord:
        """Parse the record of conflicts.

        :raises RecordDamagedError: it cannot be read.
        """
        return decode(body, _KIND, key).read(ConflictRecord)
