"""One look for partitions that a sensor waits for, whoever commits them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ..committer.errors import InvalidInputError, counted
from ..committer.format.layout import UNPARTITIONED, TableRoot
from ..committer.format.records.data_file import rows_of
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, ListedObject, Step
from ..s3a.hadoop.settings import NATIVE, check_committer
from .delta_query import delta_table_at, look_at_partitions, refuse_of_directories
from .job_query import READY, WAITING, JobQuery, QueryResult, check_least
from .look import State, look
from .partitions_below import partitions_below
from .runs.partitions import MOST_PARTITIONS, check_partition
from .runs.reports import of_partitions
from .s3a.written_partitions import written_partitions

if TYPE_CHECKING:
    from ..committer import Table
    from ..committer.scan.partition_state import PartitionState
    from ..tables import DeltaTable
    from .runs.partitions import TableSpelling

#: Partitions that are still missing, in an explanation.
_NAMED = 10
_NO_COMMIT = "no commit"
_REPORTED = ("partition", "version", "rows", "files", "bytes", "job", "decided_at")


@dataclass(frozen=True)
class HeldPartition:
    """What a partition holds, and by whose commit.

    :param version: ``None`` where there are no heads.
    :param job: the commit's.
    :param decided_at: seconds since the epoch; ``None`` where nobody knows it any more.
    :param rows: ``None`` where nobody counted them; ``bytes`` as well.
    :param keys: of the files, each with its size in bytes where that is known.
    :param unfinished: a job that is committed and not applied to its end.
    :param missing: how many files of its last job are surely not there, besides those of ``keys``.
    :param is_committed: false: a job is about to commit to it, and none has.
    :param stable: this stays so while nothing changes at the key that was read.
    """

    partition: str
    job: str | None
    decided_at: float | None
    rows: int | None
    bytes: int | None
    keys: Mapping[str, int | None]
    version: int | None = None
    unfinished: str | None = None
    missing: int = 0
    is_committed: bool = True
    stable: bool = True

    @property
    def files(self) -> int:
        return len(self.keys)


@dataclass(frozen=True)
class PartitionsQuery:
    """Do all these partitions hold what is asked of them, to be seen by readers that list?

    Unlike :class:`.job_query.JobQuery` it asks for no particular job: any commit counts that is
    new enough. What is asked is asked of each partition.

    :param table: the table's whole root.
    :param partitions: their paths; :data:`UNPARTITIONED` alone for all that lies at the root.
    :param directory: with ``min_partitions``, the folder above the partitions; ``""`` for the root.
    :param min_partitions: so many partitions below the directory hold files and have what is
        asked; ``None``: ``partitions`` names them.
    :param newer_than_version: jobs moved it beyond this version.
    :param newer_than: it was committed last after this time, seconds since the epoch.
    :param min_rows: it holds so many rows; ``min_files``: so many files.
    :param committer: who committed it: by its head, or one of Hadoop's by its runs' reports and by
        ``_SUCCESS``.
    :param require_manifest: only a ``_SUCCESS`` counts that names its job. ``False``: the
        ``_SUCCESS`` of any job counts, of 0 bytes too, and heads do not.
    :param check_files: every file that it is said to hold is there, by a listing.
    :param apply: apply a committed job whose owner has not, rather than wait for somebody.
    :param spelled: the partitions are written as their table writes them.
    """

    table: str
    partitions: tuple[str, ...]
    newer_than_version: int | None = None
    newer_than: float | None = None
    min_rows: int | None = None
    min_files: int | None = None
    committer: str = NATIVE
    require_manifest: bool = True
    directory: str = ""
    min_partitions: int | None = None
    check_files: bool = False
    apply: bool = False
    spelled: bool = False

    #: Of no run's task.
    idempotency_key = None

    @property
    def is_spelled(self) -> bool:
        """Whether no partition is to be written as its table does; Hadoop's have no table."""
        named = {*self.partitions, self.directory} - {UNPARTITIONED, ""}
        return self.spelled or not self.is_by_heads or not named

    @property
    def is_by_heads(self) -> bool:
        """Tell whether heads tell what partitions hold, as in tables of this package."""
        return self.committer == NATIVE and self.require_manifest

    def spelled_by(self, spelling: TableSpelling) -> PartitionsQuery:
        """As :meth:`.JobQuery.spelled_by`, and about the directory above partitions.

        :raises InvalidInputError: also where no partition can lie below the directory.
        """
        if self.directory:
            directory = spelling.directory(self.directory)
            if spelling.is_partition(directory):
                raise InvalidInputError(
                    f"min_partitions counts partitions below {directory}, which is itself a "
                    f"partition of {self.table}.",
                    remedy="Name a directory above partitions, or leave out min_partitions to "
                    "wait for this one.",
                )
            return replace(self, directory=directory, spelled=True)
        names = tuple(dict.fromkeys(map(spelling.partition, self.partitions)))
        return replace(self, partitions=names, spelled=True)

    def check(self, known: Callable[[object], bool] = lambda value: value is not None) -> None:
        """See that the query can be answered.

        :param known: whether a value is what it will be, and no template of it.
        :raises InvalidInputError: it cannot, or a value cannot be right.
        """
        self._check_subject(known)
        if len(self.partitions) > MOST_PARTITIONS:
            raise InvalidInputError(
                f"{len(self.partitions):,} partitions are more than one sensor's "
                f"{MOST_PARTITIONS:,}.",
                remedy="Wait for them by several.",
            )
        for partition in self.partitions:
            if known(partition) and partition != UNPARTITIONED:
                check_partition(partition)
        check_least(min_rows=self.min_rows, min_files=self.min_files)
        if not known(self.committer):
            return
        check_committer(self.committer)
        if not self.require_manifest and self.committer != NATIVE:
            raise InvalidInputError(
                f"committer={self.committer!r} is given with require_manifest=False, and a "
                "_SUCCESS without manifest does not say which committer wrote it.",
                remedy="Leave out committer, which takes any, or require_manifest.",
            )
        if not self.is_by_heads and self.newer_than_version is not None:
            by = f"by the {self.committer} committer" if self.require_manifest else "by _SUCCESS"
            raise InvalidInputError(
                f"Partitions {by} have no versions.",
                remedy="Give newer_than='2013-02-01T05:00:00+00:00', a time.",
            )

    def _check_subject(self, known: Callable[[object], bool]) -> None:
        """See that the query says what is waited for.

        :raises InvalidInputError: it does not.
        """
        if self.min_partitions is not None:
            if self.min_partitions < 1 and known(self.min_partitions):
                raise InvalidInputError(
                    f"min_partitions={self.min_partitions} waits for nothing.",
                    remedy="Give at least 1.",
                )
            if self.directory and known(self.directory):
                check_partition(self.directory)
        elif not self.partitions:
            raise InvalidInputError(
                "The sensor waits for no partition.",
                remedy="Name at least one in partitions=[…]; or give newer_than=…, a time, for the "
                "whole of an output without partitions; or min_partitions=… for a directory.",
            )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "partitions": list(self.partitions)}

    @property
    def subject(self) -> str:
        """What is waited for, in words."""
        if self.min_partitions is not None:
            return f"{counted(self.min_partitions, 'partition')} below {self.directory or '/'}"
        if self.partitions == (UNPARTITIONED,):
            return "the whole output"
        if len(self.partitions) <= 3:
            return ", ".join(self.partitions)
        return f"{len(self.partitions)} partitions from {self.partitions[0]} on"

    def watched(self, root: TableRoot) -> tuple[str, ...]:
        """Keys that tell whether the answer may have changed; none of Hadoop's committers, of
        whose loads the ledger tells too: each poll asks anew."""
        if not self.is_by_heads or self.min_partitions is not None:
            return ()
        return tuple(root.head_key(name) for name in self.partitions)

    def after(self, result: QueryResult, task_state: str | None) -> QueryResult:
        """What an answer means; it is about no task."""
        return result

    def ask(
        self, table: Table | DeltaTable, seen: Mapping[str, State] | None = None
    ) -> QueryResult:
        """Look once.

        :param table: the table at :attr:`table`; made once and kept.
        :param seen: what lies at :meth:`watched`, where that is known from a listing.
        :raises ZeroRenameError: the store refused or did not answer, or a record is damaged.
        """
        if self.min_partitions is not None:
            return self._ask_below(table, self.min_partitions)
        held, lacking = self._judged(table, seen)
        # A report of the ledger comes where nothing is watched.
        quiet = self.is_by_heads and all(it.stable for it in held.values())
        if not lacking and self.check_files:
            lacking, quiet = self._without_files(table, held), False
        if lacking:
            return QueryResult(WAITING, self._explained(lacking), quiet=quiet)
        return QueryResult(READY, f"There are {self.subject} of {self.table}.", self._report(held))

    def judge(self, table: Table | DeltaTable) -> tuple[dict[str, HeldPartition], dict[str, str]]:
        """Tell what the partitions hold, and what each lacks of what is asked, whether all are
        ready or not."""
        held, lacking = self._judged(table, None)
        if self.check_files:
            ready = {name: it for name, it in held.items() if name not in lacking}
            lacking |= self._without_files(table, ready)
        return held, lacking

    def _ask_below(self, table: Table | DeltaTable, least: int) -> QueryResult:
        """Look once at all partitions below the directory that hold files."""
        found = partitions_below(table, self.directory, self.is_by_heads)
        of_each = replace(
            self,
            partitions=found,
            directory="",
            min_partitions=None,
            min_files=max(1, self.min_files or 1),
        )
        held, lacking = of_each.judge(table)
        names = tuple(name for name in found if name not in lacking)
        if len(names) >= least:
            of_each = replace(of_each, partitions=names)
            said = f"There are {counted(len(names), 'partition')} below {self.directory or '/'} of "
            return QueryResult(READY, f"{said}{self.table}.", of_each._report(held))
        why = f" {of_each._explained(lacking)}" if lacking else ""
        return QueryResult(
            WAITING,
            f"{len(names)} of {counted(least, 'partition is', 'partitions are')} below "
            f"{self.directory or '/'}.{why}",
        )

    def _judged(
        self, table: Table | DeltaTable, seen: Mapping[str, State] | None
    ) -> tuple[dict[str, HeldPartition], dict[str, str]]:
        """What the partitions hold, and what each lacks of what is asked."""
        held, lacking = self._held(table, seen)
        if self.apply and any(it.unfinished is not None for it in held.values()):
            table.recover()
            held, lacking = self._held(table, None)
        lacking |= {name: why for name, it in held.items() if (why := self._lacks(it)) is not None}
        return held, lacking

    def _held(
        self, table: Table | DeltaTable, seen: Mapping[str, State] | None
    ) -> tuple[dict[str, HeldPartition], dict[str, str]]:
        """What is there, and why the others do not count, by partition."""
        # On use: DAG files are parsed by processes that ask nothing.
        from ..tables import DeltaTable

        why: dict[str, str] = {}
        if isinstance(table, DeltaTable):
            held, why = self._held_by_log(table)
        elif not self.is_by_heads:
            count = self.min_rows is not None
            wanted = self.committer if self.require_manifest else None
            held, why = held_by_s3a(table, self.partitions, wanted, count)
        else:
            if seen is None:
                seen = table.run(look(set(self.watched(table.root)), {}))
            held = held_by_heads(table, self.partitions, seen)
        none = {name: _NO_COMMIT for name in self.partitions if name not in held}
        return held, none | why

    def _held_by_log(self, table: DeltaTable) -> tuple[dict[str, HeldPartition], dict[str, str]]:
        """The same of a Delta table, whose log tells.

        :raises InvalidInputError: another committer's commits are asked for, or a ``_SUCCESS``.
        """
        by_others = self.committer if self.committer != NATIVE else ""
        refuse_of_directories(
            table, committer=by_others, require_manifest="" if self.require_manifest else "False"
        )
        version, time = self.newer_than_version, self.newer_than
        state, changes, cleaned = look_at_partitions(table, self.partitions, version, time)
        files = {} if state is None else state.by_partition()
        held = {
            name: HeldPartition(
                partition=name,
                job=change.done.job or None if change else None,
                decided_at=change.at if change else None,
                rows=rows_of(there),
                bytes=sum(file.size for file in there),
                keys={file.key: file.size for file in there},
                version=change.version if change else None,
            )
            for name in self.partitions
            if (change := changes.get(name)) or name in files
            for there in [files.get(name, ())]
        }
        if version is None and time is None:
            return held, {}
        unchanged = "no change since" + (" in the entries that were not cleaned" * cleaned)
        return held, {name: unchanged for name in held if name not in changes}

    def _lacks(self, held: HeldPartition) -> str | None:
        """What a partition lacks of what is asked of each."""
        at = held.decided_at
        if held.unfinished is not None:
            return f"job {held.unfinished} is not yet applied to its end"
        if not held.is_committed:
            return _NO_COMMIT
        if self.newer_than_version is not None and (held.version or 0) <= self.newer_than_version:
            return f"version {held.version}"
        if self.newer_than is not None and (at is None or at <= self.newer_than):
            return "committed long ago" if at is None else f"committed {_time(at)}"
        if self.min_files is not None and held.files < self.min_files:
            return counted(held.files, "file")
        if self.min_rows is not None and (held.rows is None or held.rows < self.min_rows):
            return "rows that nobody counted" if held.rows is None else counted(held.rows, "row")
        return None

    def _without_files(
        self, table: Table | DeltaTable, held: Mapping[str, HeldPartition]
    ) -> dict[str, str]:
        short = {
            name: f"{it.missing} of {counted(it.files + it.missing, 'file is', 'files are')} not "
            "there"
            for name, it in held.items()
            if it.missing
        }
        return short | {
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
        job = kept[0].job if len(kept) == 1 else None
        return {"table": self.table, "job": job, **of_partitions(entries)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


#: What partitions hold, with their heads' ETags, by table: all who wait in a process read a state
#: once. Tables live as long as the process looks at them.
_known: MutableMapping[Table, dict[str, tuple[str, HeldPartition]]] = WeakKeyDictionary()


def held_by_heads(
    table: Table, partitions: Sequence[str], seen: Mapping[str, State]
) -> dict[str, HeldPartition]:
    """Partitions that jobs of this package have changed or, of version 0, are about to.

    :param seen: what lies at their heads' keys (:func:`.look.look`).
    """
    known = _known.setdefault(table, {})
    states = {name: seen[table.root.head_key(name)] for name in partitions}
    etags = {name: state[0][1] for name, state in states.items() if state}

    def is_known(name: str) -> bool:
        return name in known and known[name][0] == etags[name] and known[name][1].stable

    unread = [name for name in etags if not is_known(name)]
    for name, state in table.partition_states(unread).items():
        known[name] = (state.etag, _of_state(state))
    return {name: known[name][1] for name in etags if name in known}


def _of_state(state: PartitionState) -> HeldPartition:
    return HeldPartition(
        partition=state.partition,
        job=state.last.job,
        decided_at=state.last.decided_at,
        rows=state.rows,
        bytes=state.bytes,
        keys={file.key: file.size for file in state.files},
        version=state.last.version,
        unfinished=state.unfinished,
        is_committed=state.version > 0,
        stable=state.unfinished is None and state.claim is None,
    )


def held_by_s3a(
    table: Table, partitions: Sequence[str], committer: str | None, count: bool
) -> tuple[dict[str, HeldPartition], dict[str, str]]:
    """Find partitions that one of Hadoop's committers wrote (:mod:`.s3a.written_partitions`).

    :param committer: ``None`` for any, of which a ``_SUCCESS`` need not tell.
    :param count: read the rows' number from the files' footers.
    :return: what they hold, and why others do not count, by partition.
    """
    written, refused = written_partitions(table, partitions, committer)
    held = {}
    for name, found in written.items():
        sizes = [size for size in found.keys.values() if size is not None]
        held[name] = HeldPartition(
            partition=name,
            job=found.job,
            decided_at=found.decided_at,
            rows=_counted_rows(table, name) if count else None,
            bytes=sum(sizes) if len(sizes) == len(found.keys) else None,
            keys=found.keys,
            missing=found.missing,
            # Others tell of a commit than the keys that are watched: the ledger.
            stable=False,
        )
    return held, refused


def _counted_rows(table: Table, partition: str) -> int:
    """Read the number of rows from the footers of a partition's files, or of all files."""
    scan = table.scan() if partition == UNPARTITIONED else table.scan(partitions=[partition])
    return scan.count()


def absent_files(
    table: Table | DeltaTable, held: Mapping[str, HeldPartition]
) -> dict[str, list[str]]:
    """The files that partitions should hold and that a listing does not show, or in another size;
    by partition, of those that lack any."""
    # On use: DAG files are parsed by processes that ask nothing.
    from ..tables import DeltaTable

    if isinstance(table, DeltaTable):
        keys = (key for of_it in held.values() for key in of_it.keys)
        below = sorted({f"{key.rpartition('/')[0]}/" for key in keys})
    else:
        below = [table.root.partition_prefix(name) for name in held]
    listed = table.run(_below(below))
    sizes = {item.key: item.size for item in listed}
    absent = {
        name: [
            key
            for key, size in of_it.keys.items()
            if key not in sizes or size not in (None, sizes[key])
        ]
        for name, of_it in held.items()
    }
    return {name: keys for name, keys in absent.items() if keys}


def _below(prefixes: Sequence[str]) -> Step[list[ListedObject]]:
    listings = yield from All(tuple(list_objects(prefix) for prefix in prefixes))
    return [item for listing in listings for item in listing.objects]


#: What a sensor asks of one table.
TableQuery = JobQuery | PartitionsQuery


def as_found(table: Table, queries: Iterable[TableQuery]) -> Table | DeltaTable:
    """Return the table at a root as it is to be asked: a Delta table where there is one, and some
    query is not about commits of Hadoop's committers."""
    if not any(isinstance(it, JobQuery) or it.is_by_heads for it in queries):
        return table
    return delta_table_at(table) or table


def table_query(said: Mapping[str, Any]) -> TableQuery:
    """The query that ``as_dict`` was of."""
    if "partitions" not in said:
        return JobQuery(**said)
    return PartitionsQuery(**{**said, "partitions": tuple(said["partitions"])})


def spelled(query: TableQuery, spelling: Callable[[], TableSpelling | None]) -> TableQuery:
    """A query about partitions by their names in the table, once there is one.

    :param spelling: :func:`.runs.partitions.table_spelling` of the table; called where it is
        needed.
    :raises InvalidInputError: the table cannot have one of them.
    """
    known = None if query.is_spelled else spelling()
    return query if known is None else query.spelled_by(known)
