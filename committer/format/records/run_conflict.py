"""Conflicts of runs over a partition, and what settles them, as they are on record beside a table.

A *conflict* is rows of a run that another run's commit removed, or a run that gave way to another,
where the two overlapped, the older one came later, or their tasks differ, and no policy decided.
Attempts of one run, appends, and jobs that write again what is there are none.
"""

from __future__ import annotations

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
#: What runs of Dagster call their application: their task is an asset, in whichever job.
_DAGSTER = "dagster"


class ConflictCause(StrEnum):
    """Why two runs that met are a conflict, the plainest first."""

    #: The one committed while the other one was at work.
    OVERLAPPED = "overlapped"
    #: The older run came later.
    OLDER_CAME_LATER = "the older came later"
    #: Nobody can tell which is newer: one rank is a time, the other one a number.
    RANKS_DIFFER = "ranks of two kinds"
    #: Two tasks load one partition.
    TASKS_DIFFER = "the tasks differ"


class SettledBy(StrEnum):
    """How a conflict was settled."""

    #: The rows of the run that stands were brought back.
    RESTORE = "restore"
    #: The run that stands was made again.
    RERUN = "rerun"
    #: The rows of the run that stands were there.
    KEPT = "kept"
    #: ``on_conflict=newest_run``, as the runs met.
    POLICY = "policy"
    #: A later run replaced the rows, newer than all and of the same task.
    LATER_RUN = "later run"


@dataclass(frozen=True)
class ConflictingRun:
    """A run of a conflict.

    :param key: its idempotency key; of one without, its job.
    :param job: the job that it committed last, or that gave way; with Hadoop's committers the
        attempt's UUID; ``""``: it gave way before it had one.
    :param at: when that was decided, or put on record, by the store's clock.
    :param rank: how new it is; ``None``: not on record.
    :param rows: that the job wrote to the partition; ``None``: nobody counted them, or it gave way.
    :param is_visible: whether readers see rows of it.
    :param gave_way: it wrote nothing to the partition for another run's sake, and ``message`` says
        so.
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
        """The DAG and the task of the run; outside Airflow the application."""
        owner = self.owner
        if owner.dag_id is None:
            return (owner.application or "", "")
        return (owner.dag_id, owner.task_id or "")

    @property
    def attempt(self) -> int | None:
        """The number of the attempt that wrote last, or gave way."""
        return self.owner.try_number

    def is_named(self, word: str) -> bool:
        """Tell whether a user's word means this run's DAG, task, application or asset."""
        dag, task = self.task
        is_asset = self.owner.application == _DAGSTER and word == task
        return is_asset or (word in (dag, f"{dag}.{task}") if task else word == dag)

    def __str__(self) -> str:
        dag, task = self.task
        named = f"{dag}.{task}" if task else dag
        of_run = f" of run {self.owner.run_id}" if self.owner.run_id else ""
        return f"{named}{of_run}" if named else self.job or self.key


@dataclass(frozen=True)
class Settlement:
    """What was decided about a conflict.

    :param stands: the key of the run whose rows are to be visible.
    :param losers: the keys of the others.
    :param rank: the greatest of the conflict, which the partition has since; ``None``: not known.
    :param by: who decided: a DAG's task, or a program.
    :param policy: by which policy, as the user gave it.
    :param at: when it was put on record, by the store's clock; 0: it is not.
    :param job: the job that made it so; ``None``: nothing was to be done, or nothing is done yet.
    :param error: why it is not settled, though somebody tried.
    :param version: which version of the DAG or program ran; ``None``: not known.
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

    :param runs: the oldest first.
    :param cause: the plainest of all.
    :param found_at: when a look found it, by the store's clock.
    :param version: the partition's version that the look saw, which a settlement goes by; 0 with
        Hadoop's committers.
    :param settlement: the last one that was tried; ``None``: none was.
    """

    partition: str
    runs: tuple[ConflictingRun, ...]
    cause: ConflictCause
    found_at: Moment
    version: Annotated[Count, LEFT_OUT] = 0
    settlement: Annotated[Settlement | None, LEFT_OUT] = None

    @property
    def is_settled(self) -> bool:
        """Tell whether somebody has decided it, and the partition is as it was decided."""
        return self.settlement is not None and not self.settlement.error

    @property
    def name(self) -> str:
        """The partition, in words."""
        return "the table" if self.partition == UNPARTITIONED else self.partition

    def highest_rank(self, winner: ConflictingRun) -> RunRank | None:
        """Return the rank that the partition has once a run stands: the greatest of all that
        compare with its own; ``None``: no run has one."""
        ranks = [it.rank for it in (winner, *self.runs) if it.rank is not None]
        return newest_of(ranks[0], *ranks) if ranks else None

    @property
    def visible(self) -> tuple[ConflictingRun, ...]:
        """The runs whose rows readers see."""
        return tuple(it for it in self.runs if it.is_visible)

    def __str__(self) -> str:
        """Say in a sentence which runs conflict, and what is visible."""
        said = [f"{it}{' (gave way)' if it.gave_way else ''}" for it in self.runs]
        seen = first_few([str(it) for it in self.visible]) or "none of them"
        return f"Runs conflict ({self.cause}): {first_few(said)}; visible: {seen}."

    def check_kinds(self) -> None:
        """See that the ranks of its runs compare.

        :raises InvalidInputError: one is a time, and another one a number.
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
        """Return the run of a key; ``None``: it is none of these."""
        return next((it for it in self.runs if it.key == key), None)

    def settled(self, settlement: Settlement) -> RunConflict:
        """Return the conflict with what was decided about it."""
        return replace(self, settlement=settlement)


@dataclass(frozen=True)
class ConflictRecord:
    """What the looks at a table have found so far.

    :param looked_at: when the last look began, by the store's clock; 0: nobody has looked.
    :param mark: jobs that began before are known, but those that ``waiting`` names.
    :param known: jobs that began since, whose decisions were read.
    :param waiting: jobs that began before and had not decided, or could not be read.
    :param open: conflicts that nobody has settled, one for each partition.
    :param settled: those that were settled lately, the oldest first.
    :param log_version: of a table with a log, the version that the last look has read, and
        ``log_table`` the id of that table.
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
        """:raises RecordDamagedError: it cannot be read."""
        return decode(body, _KIND, key).read(ConflictRecord)
