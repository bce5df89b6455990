"""Query for the partitions that a sensor waits for, no matter who commits them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

from ..committer.errors import InvalidInputError, StoreRefusedError, counted
from ..committer.format.job_spec import Coordination
from ..committer.format.layout import UNPARTITIONED, TableRoot
from ..committer.format.records.data_file import rows_of
from ..committer.store.listing import list_objects
from ..committer.store.requests import All, ListedObject, Step
from ..s3a.hadoop.settings import NATIVE, check_committer
from .delta_query import KNOWN_FOR, delta_table_at, look_at_partitions, refuse_of_directories
from .job_query import READY, WAITING, JobQuery, QueryResult, check_least
from .look import State, look
from .partitions_below import partitions_below
from .runs.partitions import MOST_PARTITIONS, check_partition
from .runs.reports import of_partitions
from .s3a.written_partitions import OF_NATIVE, written_partitions

if TYPE_CHECKING:
    from ..committer import Table
    from ..committer.scan.partition_state import PartitionState
    from ..tables import DeltaTable
    from .runs.partitions import TableSpelling

#: The most missing partitions that an explanation names.
_NAMED = 10
_NO_COMMIT = "no commit"
_NO_TABLE = "There is no table at this root yet: if there should be one, check its name."
_REPORTED = ("partition", "version", "rows", "files", "bytes", "job", "decided_at")


@dataclass(frozen=True)
class HeldPartition:
    """State of a partition, and its last commit.

    :param version: ``None`` if there are no heads and no log, or if the log shows no change.
    :param job: of the last commit.
    :param decided_at: of that commit, in Unix seconds; ``None`` if it is not known any more.
    :param rows: ``None`` if they were not counted.
    :param bytes: ``None`` if the size of a file is not known.
    :param keys: of the files, each with its size in bytes, or ``None`` if that is not known.
    :param unfinished: a job that is committed and not applied to its end.
    :param missing: files of its last job that are certainly not there, besides those of ``keys``.
    :param is_committed: false if a job is about to commit to it and no job has committed yet.
    :param stable: the state stays the same until something changes at the key that was read.
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
    """Question: does each of these partitions meet the conditions, visible to readers that list?

    Unlike :class:`.job_query.JobQuery` it does not ask for one particular job: any commit that is
    new enough counts. Each partition must meet all conditions.

    :param table: the URL of the table's root.
    :param partitions: their paths; :data:`UNPARTITIONED` alone for everything at the root.
    :param directory: with ``min_partitions``, the folder above the partitions; ``""`` for the root.
    :param min_partitions: the number of partitions below the directory that must hold files and
        meet the conditions; ``None``: ``partitions`` names the partitions.
    :param newer_than_version: jobs moved the partition beyond this version.
    :param newer_than: the last commit to the partition is after this time, in Unix seconds.
    :param min_rows: the partition holds at least so many rows.
    :param min_files: the partition holds at least so many files.
    :param committer: the committer of the table. For this package's own, heads have the answer;
        for Hadoop's, the reports of runs and ``_SUCCESS``.
    :param require_manifest: a ``_SUCCESS`` counts only if it names its job. ``False``: the
        ``_SUCCESS`` of any job counts, also one of 0 bytes, and heads do not count.
    :param check_files: a listing must show every file that the partition should hold.
    :param apply: apply a committed job that its owner has not applied, rather than wait until
        another process does.
    :param spelled: the partitions have the spelling of their table.
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

    #: The query is not about the task of a run.
    idempotency_key = None

    @property
    def is_spelled(self) -> bool:
        """True if all partitions have their table's spelling, or if there is none to follow.

        A destination of Hadoop's committers has no table record, so it has no spelling.
        """
        named = {*self.partitions, self.directory} - {UNPARTITIONED, ""}
        return self.spelled or not self.is_by_heads or not named

    @property
    def is_by_heads(self) -> bool:
        """True if the state of partitions is read from heads, as in tables of this package."""
        return self.committer == NATIVE and self.require_manifest

    def spelled_by(self, spelling: TableSpelling) -> PartitionsQuery:
        """Return the same query with partitions and directory spelled as the table spells them.

        :param spelling: :func:`.runs.partitions.table_spelling`.
        :raises InvalidInputError: the table cannot have one of them, or ``directory`` is itself a
            partition.
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
        """Check that the query can be answered.

        :param known: return whether a value is final, not a template.
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
        """Check that the query names partitions, or a directory and a number of partitions.

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
        """Description of the partitions, for messages."""
        if self.min_partitions is not None:
            return f"{counted(self.min_partitions, 'partition')} below {self.directory or '/'}"
        if self.partitions == (UNPARTITIONED,):
            return "the whole output"
        if len(self.partitions) <= 3:
            return ", ".join(self.partitions)
        return f"{len(self.partitions)} partitions from {self.partitions[0]} on"

    def watched(self, root: TableRoot) -> tuple[str, ...]:
        """Return the keys to watch: the answer changes only if one of them does.

        :return: empty for Hadoop's committers, whose loads are in the ledger too, and with
            ``min_partitions``: then each poll asks anew.
        """
        if not self.is_by_heads or self.min_partitions is not None:
            return ()
        return tuple(root.head_key(name) for name in self.partitions)

    def after(self, result: QueryResult, task_state: str | None) -> QueryResult:
        """Return the result unchanged: this query is not about a task."""
        return result

    def ask(
        self, table: Table | DeltaTable, seen: Mapping[str, State] | None = None
    ) -> QueryResult:
        """Poll the table once.

        :param table: the table at :attr:`table`. Make it once and keep it.
        :param seen: the objects at :meth:`watched`, if a listing has shown them already.
        :raises ZeroRenameError: the store refused or did not answer, or a record is damaged.
        """
        if self.min_partitions is not None:
            return self._ask_below(table, self.min_partitions)
        held, lacking = self._judged(table, seen)
        # Reports in the ledger come at keys that are not watched, so only heads are quiet.
        quiet = self.is_by_heads and all(it.stable for it in held.values())
        if not lacking and self.check_files:
            lacking, quiet = self._without_files(table, held), False
        if lacking:
            knows = self._may_come(table, lacking)
            absent = "" if knows else f" {_NO_TABLE}"
            explained = f"{self._explained(lacking)}{absent}"
            return QueryResult(WAITING, explained, quiet=quiet and knows)
        return QueryResult(READY, f"There are {self.subject} of {self.table}.", self._report(held))

    def judge(self, table: Table | DeltaTable) -> tuple[dict[str, HeldPartition], dict[str, str]]:
        """Return the partitions' states, and the reasons why some are not ready.

        The files are checked even if other partitions are not ready.
        """
        held, lacking = self._judged(table, None)
        if self.check_files:
            ready = {name: it for name, it in held.items() if name not in lacking}
            lacking |= self._without_files(table, ready)
        return held, lacking

    def _ask_below(self, table: Table | DeltaTable, least: int) -> QueryResult:
        """Poll once for all partitions below the directory that hold files."""
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
        knows = self._may_come(table, lacking)
        why = f" {of_each._explained(lacking)}" if lacking else ""
        why += "" if knows else f" {_NO_TABLE}"
        return QueryResult(
            WAITING,
            f"{len(names)} of {counted(least, 'partition is', 'partitions are')} below "
            f"{self.directory or '/'}.{why}",
        )

    def _may_come(self, table: Table | DeltaTable, lacking: Mapping[str, str]) -> bool:
        """Return whether what is lacking is known to show once it is there. Only heads show the
        commits of a table of this package.

        :raises InvalidInputError: it never will.
        """
        if self.is_by_heads or OF_NATIVE in lacking.values():
            return may_have_heads(table)
        return True

    def _judged(
        self, table: Table | DeltaTable, seen: Mapping[str, State] | None
    ) -> tuple[dict[str, HeldPartition], dict[str, str]]:
        """Return the partitions' states, and the reasons why some do not meet the conditions."""
        held, lacking = self._held(table, seen)
        if self.apply and any(it.unfinished is not None for it in held.values()):
            table.recover()
            held, lacking = self._held(table, None)
        lacking |= {name: why for name, it in held.items() if (why := self._lacks(it)) is not None}
        return held, lacking

    def _held(
        self, table: Table | DeltaTable, seen: Mapping[str, State] | None
    ) -> tuple[dict[str, HeldPartition], dict[str, str]]:
        """Read the partitions' states, and the reasons why others have no commit that counts."""
        # Imported on use: processes that only parse DAG files need not load it.
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
        """Read the same as :meth:`_held` from the log of a Delta table.

        :raises InvalidInputError: the query asks for commits of another committer, or for a
            ``_SUCCESS``.
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
        """Return why a partition does not meet the conditions; ``None`` if it does."""
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


#: Tables of directories whose partitions have heads once a job has committed to them.
_with_heads: WeakSet[Table] = WeakSet()


def may_have_heads(table: Table | DeltaTable) -> bool:
    """Return whether a table is known to have heads, or a log; ``False``: it is not there yet.

    One request; none once this is known.

    :raises InvalidInputError: its coordination is *none*, so nothing ever shows its commits.
    """
    # Imported on use: processes that only parse DAG files need not load it.
    from ..tables import DeltaTable

    if isinstance(table, DeltaTable) or table in _with_heads:
        return True
    is_there = refuse_without_heads(
        table,
        "waited for",
        "Wait for the _SUCCESS of a partition by the key sensor of Amazon's provider.",
    )
    if is_there:
        _with_heads.add(table)
    return is_there


def refuse_without_heads(table: Table, undone: str, remedy: str) -> bool:
    """Refuse a table of coordination *none*, whose partitions never have heads. One request.

    :param undone: what was not done, for the error: ``reported``.
    :return: whether there is a table.
    :raises InvalidInputError: the table is one.
    """
    found = table.coordination
    if found is Coordination.NONE:
        raise InvalidInputError(
            "The table's coordination is none, so its partitions have no heads, by which commits "
            f"are found here. Nothing was {undone}.",
            table=table.root.url,
            remedy=remedy,
        )
    return found is not None


#: States of partitions with their heads' ETags, by table: all sensors of a process read a state
#: once. An entry lives as long as its table.
_known: MutableMapping[Table, dict[str, tuple[str, HeldPartition]]] = WeakKeyDictionary()


def held_by_heads(
    table: Table, partitions: Sequence[str], seen: Mapping[str, State]
) -> dict[str, HeldPartition]:
    """Read the states of partitions that have a head.

    At version 0 no job has committed yet, and a job is about to.

    :param seen: the objects at their heads' keys (:func:`.look.look`).
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

    :param committer: ``None`` for any; then a ``_SUCCESS`` need not name its committer.
    :param count: read the number of rows from the files' footers.
    :return: states by partition, and for other partitions the reasons why they do not count.
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
            # A commit may show in the ledger alone, at keys that are not watched.
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
    """Find the missing files of partitions, and those that a listing shows in another size.

    :return: keys by partition; partitions whose files are all there are left out.
    """
    # Imported on use: processes that only parse DAG files need not load it.
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


#: A sensor's question about one table.
TableQuery = JobQuery | PartitionsQuery


#: Tables without a Delta log when queries about Hadoop's committers asked for one, each with the
#: time of ``time.monotonic`` up to which that counts.
_without_log: MutableMapping[Table, float] = WeakKeyDictionary()


def as_found(table: Table, queries: Iterable[TableQuery]) -> Table | DeltaTable:
    """Return the Delta table at a root if there is one, else the table of directories.

    If all queries are about commits of Hadoop's committers, it looks for a Delta table, which such
    queries are refused for, only every few minutes: the directory may be adopted as one. With
    credentials that may not look, it never does.
    """
    if any(isinstance(it, JobQuery) or it.is_by_heads for it in queries):
        return delta_table_at(table) or table
    if monotonic() < _without_log.get(table, 0.0):
        return table
    until = monotonic() + KNOWN_FOR
    try:
        found = delta_table_at(table)
    except StoreRefusedError:
        found, until = None, math.inf
    if found is None:
        _without_log[table] = until
    return found or table


def table_query(said: Mapping[str, Any]) -> TableQuery:
    """Build the query from its ``as_dict``."""
    if "partitions" not in said:
        return JobQuery(**said)
    fields: dict[str, Any] = {**said, "partitions": tuple(said["partitions"])}
    return PartitionsQuery(**fields)


def spelled(query: TableQuery, spelling: Callable[[], TableSpelling | None]) -> TableQuery:
    """Return a query with its partitions spelled as the table spells them.

    If there is no table yet, the query is returned as it is.

    :param spelling: :func:`.runs.partitions.table_spelling` of the table; called only if needed.
    :raises InvalidInputError: the table cannot have one of the partitions.
    """
    known = None if query.is_spelled else spelling()
    return query if known is None else query.spelled_by(known)
