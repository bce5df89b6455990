"""One look for partitions that a sensor waits for, whoever commits them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..committer.errors import InvalidInputError, counted
from ..committer.format.layout import TableRoot
from ..s3a.hadoop.settings import NATIVE, check_committer
from .job_query import READY, WAITING, JobQuery, QueryResult, check_least
from .look import State, look
from .runs.partitions import MOST_PARTITIONS, check_partition

if TYPE_CHECKING:
    from ..committer import Table
    from .held_partitions import HeldPartition

#: Partitions that are still missing, in an explanation.
_NAMED = 10
_NO_COMMIT = "no commit"
_REPORTED = ("partition", "epoch", "rows", "files", "bytes", "job", "decided_at")


@dataclass(frozen=True)
class PartitionsQuery:
    """Do all these partitions hold what is asked of them, to be seen by readers that list?

    Unlike :class:`.job_query.JobQuery` it asks for no particular job: any commit counts that is
    new enough. What is asked is asked of each partition.

    :param table: the table's whole root.
    :param partitions: their paths.
    :param newer_than_epoch: jobs moved it beyond this epoch.
    :param newer_than: it was committed last after this time, seconds since the epoch.
    :param min_rows: it holds so many rows; ``min_files``: so many files.
    :param committer: who committed it: by its head, or one of Hadoop's by its ``_SUCCESS``.
    :param check_files: every file that it is said to hold is there, by a listing.
    :param apply: apply a committed job whose owner has not, rather than wait for somebody.
    :param spelled: the partitions are written as their table writes them.
    """

    table: str
    partitions: tuple[str, ...]
    newer_than_epoch: int | None = None
    newer_than: float | None = None
    min_rows: int | None = None
    min_files: int | None = None
    committer: str = NATIVE
    check_files: bool = False
    apply: bool = False
    spelled: bool = False

    #: Of no run's task.
    once = None

    @property
    def is_spelled(self) -> bool:
        """Whether no partition is to be written as its table does; Hadoop's have no table."""
        return self.spelled or self.committer != NATIVE

    def spelled_by(self, spelling: Callable[[str], str]) -> PartitionsQuery:
        """As :meth:`.JobQuery.spelled_by`."""
        names = tuple(dict.fromkeys(map(spelling, self.partitions)))
        return replace(self, partitions=names, spelled=True)

    def check(self, known: Callable[[object], bool] = lambda value: value is not None) -> None:
        """See that the query can be answered.

        :param known: whether a value is what it will be, and no template of it.
        :raises InvalidInputError: it cannot, or a value cannot be right.
        """
        if not self.partitions:
            raise InvalidInputError(
                "The sensor waits for no partition.", remedy="Name at least one in partitions=[…]."
            )
        if len(self.partitions) > MOST_PARTITIONS:
            raise InvalidInputError(
                f"{len(self.partitions):,} partitions are more than one sensor's "
                f"{MOST_PARTITIONS:,}.",
                remedy="Wait for them by several.",
            )
        for partition in self.partitions:
            if known(partition):
                check_partition(partition)
        check_least(min_rows=self.min_rows, min_files=self.min_files)
        if not known(self.committer):
            return
        check_committer(self.committer)
        if self.committer != NATIVE and self.newer_than_epoch is not None:
            raise InvalidInputError(
                f"Partitions by the {self.committer} committer have no epochs.",
                remedy="Give newer_than='2013-02-01T05:00:00+00:00', a time.",
            )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "partitions": list(self.partitions)}

    @property
    def subject(self) -> str:
        """What is waited for, in words."""
        if len(self.partitions) <= 3:
            return ", ".join(self.partitions)
        return f"{len(self.partitions)} partitions from {self.partitions[0]} on"

    def watched(self, root: TableRoot) -> tuple[str, ...]:
        """Keys that tell whether the answer may have changed."""
        if self.committer == NATIVE:
            return tuple(root.head_key(name) for name in self.partitions)
        places = [root.marker_key(name) for name in self.partitions]
        return (f"{root.prefix}/_SUCCESS", *places)

    def after(self, result: QueryResult, task_state: str | None) -> QueryResult:
        """What an answer means; it is about no task."""
        return result

    def ask(self, table: Table, seen: Mapping[str, State] | None = None) -> QueryResult:
        """Look once.

        :param table: the table at :attr:`table`; made once and kept.
        :param seen: what lies at :meth:`watched`, where that is known from a listing.
        :raises ZeroRenameError: the store refused or did not answer, or a record is damaged.
        """
        held, lacking = self._held(table, seen)
        if self.apply and any(it.unfinished is not None for it in held.values()):
            table.recover()
            held, lacking = self._held(table, None)
        lacking |= {name: why for name, it in held.items() if (why := self._lacks(it)) is not None}
        quiet = all(it.settled for it in held.values())
        if not lacking and self.check_files:
            lacking, quiet = self._without_files(table, held), False
        if lacking:
            return QueryResult(WAITING, self._explained(lacking), quiet=quiet)
        return QueryResult(READY, f"There are {self.subject} of {self.table}.", self._report(held))

    def _held(
        self, table: Table, seen: Mapping[str, State] | None
    ) -> tuple[dict[str, HeldPartition], dict[str, str]]:
        """What is there, and why the others do not count, by partition."""
        # On use: DAG files are parsed by processes that ask nothing.
        from .held_partitions import held_by_heads, held_by_markers

        why: dict[str, str] = {}
        if self.committer != NATIVE:
            count = self.min_rows is not None
            held, why = held_by_markers(table, self.partitions, self.committer, count)
        else:
            if seen is None:
                seen = table.run(look(set(self.watched(table.root)), {}))
            held = held_by_heads(table, self.partitions, seen)
        none = {name: _NO_COMMIT for name in self.partitions if name not in held}
        return held, none | why

    def _lacks(self, held: HeldPartition) -> str | None:
        """What a partition lacks of what is asked of each."""
        at = held.decided_at
        if held.unfinished is not None:
            return f"job {held.unfinished} is not yet applied to its end"
        if held.epoch == 0:
            return _NO_COMMIT
        if self.newer_than_epoch is not None and (held.epoch or 0) <= self.newer_than_epoch:
            return f"epoch {held.epoch}"
        if self.newer_than is not None and (at is None or at <= self.newer_than):
            return "committed long ago" if at is None else f"committed {_time(at)}"
        if self.min_files is not None and held.files < self.min_files:
            return counted(held.files, "file")
        if self.min_rows is not None and (held.rows is None or held.rows < self.min_rows):
            return "rows that nobody counted" if held.rows is None else counted(held.rows, "row")
        return None

    def _without_files(self, table: Table, held: Mapping[str, HeldPartition]) -> dict[str, str]:
        from .held_partitions import absent_files

        return {
            name: f"{len(keys)} of {counted(held[name].files, 'file is', 'files are')} not there, "
            f"such as {keys[0]}"
            for name, keys in absent_files(table, held).items()
        }

    def _explained(self, lacking: Mapping[str, str]) -> str:
        listed = [f"{name} ({lacking[name]})" for name in self.partitions if name in lacking]
        more = f", and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
        return (
            f"{len(lacking)} of {counted(len(self.partitions), 'partition is', 'partitions are')} "
            f"missing: {', '.join(listed[:_NAMED])}{more}."
        )

    def _report(self, held: Mapping[str, HeldPartition]) -> dict[str, Any]:
        kept = [held[name] for name in self.partitions]
        entries = [{name: getattr(it, name) for name in _REPORTED} for it in kept]
        report: dict[str, Any] = {"table": self.table, "partitions": entries}
        for name in ("rows", "files", "bytes"):
            counts = [entry[name] for entry in entries]
            report[name] = None if None in counts else sum(counts)
        alone = entries[0] if len(entries) == 1 else {}
        return report | {name: alone.get(name) for name in ("partition", "epoch", "job")}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


#: What a sensor asks of one table.
TableQuery = JobQuery | PartitionsQuery


def table_query(said: Mapping[str, Any]) -> TableQuery:
    """The query that ``as_dict`` was of."""
    if "partitions" not in said:
        return JobQuery(**said)
    return PartitionsQuery(**{**said, "partitions": tuple(said["partitions"])})
