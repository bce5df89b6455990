"""The decision: *commit* or *abort*, written once. Writing it is the commit point."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from typing import Annotated, Any

from ..job_spec import NOBODY, JobSpec, Mode, OnConflict, Owner, SuccessMarkers
from ..layout import UNPARTITIONED, TableRoot, job_in_key
from ..row_changes import ChangeReads, RowChanges
from ..run_rank import RunRanks
from .codec import Document, decode, encode
from .inputs import UNKNOWN_INPUTS, Inputs
from .marks import LEFT_OUT, Count, JobId, Moment
from .partition_decision import PartitionDecision, Sums
from .partition_ranks import Ranks
from .pending_file import PendingFile

_FILES = ("files", "adopted", "removals", "lost")
#: Fields that a condensed decision takes over from the decision.
_KEPT = (
    *("mode", "idempotency_key", "run_version", "own_since"),
    *("change_reads", "inputs", "narrows", "left_out", "superseded"),
)

#: Kind of the record. An abort decision is never condensed.
_CONDENSED = "commit"
_CONDENSED_FORMAT = 2
_SAYS_SO = re.compile(rb'"kind"\s*:\s*"commit"')
#: Numbers for each partition: the base version, the four sums, and 1 for a replace, else 0.
_NUMBERS = 6


@dataclass(frozen=True)
class CondensedDecision:
    """A commit decision that gc has condensed: without its lists of files.

    Every process that condenses a job's decision writes the same bytes.

    :param write_id: the job's id; no other record has it as its write id.
    :param changes: by partition: the base version, files, their rows and bytes, removed files, and
        1 for a replace, else 0.
    :param dropped: by partition: the attempt of the run whose files were taken out.
    :param own_since: as in the decision; so are ``mode``, ``idempotency_key``, ``run_version``,
        ``change_reads``, ``narrows``, ``left_out`` and ``superseded``.
    :param merged: by partition: the jobs whose rows were written again.
    :param row_changes: by partition: the numbers of rows inserted, updated, deleted and left.
    :param owner: as in the decision, if the job has an idempotency key or inputs. A repeated run
        learns from it which attempt has loaded.
    :param ranks: the ranks of the job's run, if the owner is kept. A search for conflicts compares
        them with the rank of a run that replaces its rows, however late. ``None``: not on record.
    :param settles: the partitions over which the job settled a conflict of runs.
    :param other_rows: the partitions in which the rows that were written again are others than
        before.
    :param former_jobs: by partition whose rows the job left as they were: the job that had moved it
        before.
    :param inputs: as in the decision, as long as rows of the job may be there.
    """

    write_id: str
    decided_at: Moment
    changes: Mapping[str, tuple[Count, ...]]
    mode: Annotated[Mode, LEFT_OUT] = Mode.APPEND
    idempotency_key: Annotated[str | None, LEFT_OUT] = None
    run_version: Annotated[Count, LEFT_OUT] = 0
    own_since: Annotated[Count | None, LEFT_OUT] = None
    dropped: Annotated[Mapping[str, str] | None, LEFT_OUT] = None
    merged: Annotated[Mapping[str, tuple[str, ...]] | None, LEFT_OUT] = None
    row_changes: Annotated[Mapping[str, RowChanges] | None, LEFT_OUT] = None
    change_reads: Annotated[ChangeReads | None, LEFT_OUT] = None
    owner: Annotated[Owner, LEFT_OUT] = NOBODY
    inputs: Annotated[Inputs, LEFT_OUT] = UNKNOWN_INPUTS
    narrows: Annotated[JobId | None, LEFT_OUT] = None
    left_out: Annotated[Count, LEFT_OUT] = 0
    superseded: Annotated[Mapping[str, JobId] | None, LEFT_OUT] = None
    ranks: Ranks = None
    settles: Annotated[tuple[str, ...], LEFT_OUT] = ()
    other_rows: Annotated[tuple[str, ...], LEFT_OUT] = ()
    former_jobs: Annotated[Mapping[str, JobId] | None, LEFT_OUT] = None

    @staticmethod
    def of(decision: Decision, at: float) -> CondensedDecision:
        """Condense a commit decision: drop its lists, which no process needs any more.

        :param at: when it was decided, in Unix seconds.
        """
        partitions = decision.partitions
        keeps_owner = bool(decision.inputs or decision.idempotency_key)
        return CondensedDecision(
            decision.job,
            at,
            {
                it.partition: (it.base_version, *astuple(it.sums), int(it.replace))
                for it in partitions
            },
            dropped={it.partition: it.dropped_job for it in partitions if it.dropped_job} or None,
            merged={it.partition: it.merged for it in partitions if it.merged} or None,
            row_changes={it.partition: it.row_changes for it in partitions if it.row_changes}
            or None,
            owner=decision.owner if keeps_owner else NOBODY,
            ranks=_ranks_of(partitions) if keeps_owner else None,
            settles=tuple(it.partition for it in partitions if it.settles),
            other_rows=tuple(it.partition for it in partitions if it.other_rows),
            former_jobs={it.partition: it.former_job for it in partitions if it.former_job} or None,
            **{name: getattr(decision, name) for name in _KEPT},
        )

    @property
    def partitions(self) -> tuple[PartitionDecision, ...]:
        dropped, merged = self.dropped or {}, self.merged or {}
        row_changes, former_jobs = self.row_changes or {}, self.former_jobs or {}
        return tuple(
            PartitionDecision(
                name,
                version,
                bool(replace),
                dropped_job=dropped.get(name),
                merged=merged.get(name, ()),
                condensed=Sums(*sums),
                row_changes=row_changes.get(name),
                rank=None if self.ranks is None else self.ranks.rank(name),
                settles=name in self.settles,
                other_rows=name in self.other_rows,
                former_job=former_jobs.get(name),
            )
            for name, (version, *sums, replace) in self.changes.items()
        )

    def encode(self) -> bytes:
        return encode(_CONDENSED, self.write_id, self, _CONDENSED_FORMAT)

    @staticmethod
    def is_one(body: bytes) -> bool:
        """Return whether a decision's bytes are those of a condensed one."""
        return _SAYS_SO.search(body[:80]) is not None

    @staticmethod
    def decode(body: bytes, key: str, job: str) -> CondensedDecision:
        """Parse the condensed decision of ``job``.

        :raises RecordDamagedError: it cannot be read, or is another job's.
        """
        document = decode(body, _CONDENSED, key)
        condensed = document.read(CondensedDecision)
        if condensed.write_id != job:
            raise document.damaged("write_id", f"is not {job}")
        if any(len(numbers) != _NUMBERS for numbers in condensed.changes.values()):
            raise document.damaged("changes", f"has a list of other than {_NUMBERS} numbers")
        return condensed


def _ranks_of(partitions: Iterable[PartitionDecision]) -> RunRanks | None:
    """Return the ranks of a job's run in the partitions that it changed; ``None``: it has none."""
    ranks = {it.partition: it.run_rank for it in partitions}
    known = {name: rank for name, rank in ranks.items() if rank is not None}
    if len(known) == len(ranks) and len(set(known.values())) == 1:
        return RunRanks({UNPARTITIONED: next(iter(known.values()))})
    return RunRanks(known) if known else None


class Verdict(StrEnum):
    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True)
class PartReference:
    """A part of a decision too large for one object, named by key and ETag."""

    key: str
    etag: str


@dataclass(frozen=True)
class Decision:
    """A job's verdict, and for a commit everything needed to apply it from any process.

    :param partitions: the change of each partition; empty while the parts are not read.
    :param parts: the objects that hold the partitions, if they are too many for one object.
    :param idempotency_key: the run's idempotency key; the run's head is moved together with the
        heads of the partitions.
    :param run_version: the version of the run's head that the job has claimed: the number of the
        run's attempts that committed before.
    :param own_since: with ``on_repeat=replace_own``, the ``run_version`` of the oldest attempt
        whose rows this job takes out. It replaces all attempts from that one on. ``None``: it
        replaces none, or an earlier version of this package wrote the decision.
    :param schema_version: the least version of the table's columns that has all columns of the
        files.
    :param decided_at: when it was decided, by the store's clock, in a decision that was written
        again later (see :mod:`.repair`); ``None`` in all others: their Last-Modified is the time.
    :param condensed: the decision was applied long ago and no head names it, so its lists were
        removed. It still says *commit*, what its run did and from which versions, and keeps other
        processes from deciding the job anew.
    :param inputs: what its rows were computed from, and by which version of their program.
    :param change_reads: for a merge, an update or a deletion: what it read of the table.
    :param narrows: the run's job before this one, if this job makes only some of that job's
        partitions again. What the former job wrote to the others, and is still there, belongs to
        the run. ``None``: this job makes all of them.
    :param left_out: the number of rows for those others that were computed and not written.
    :param superseded: partitions that the job was to write and left out because newer runs had
        loaded them, each with the job that wrote it last.
    :param on_conflict: the job's policy for partitions that another job had changed.
    """

    job: str
    write_id: str
    verdict: Verdict
    mode: Mode = Mode.APPEND
    success_markers: SuccessMarkers = SuccessMarkers.PARTITION_AND_TABLE
    idempotency_key: str | None = None
    run_version: Count = 0
    owner: Owner = NOBODY
    partitions: tuple[PartitionDecision, ...] = ()
    parts: tuple[PartReference, ...] = ()
    decided_at: Annotated[Moment | None, LEFT_OUT] = None
    schema_version: Annotated[Count, LEFT_OUT] = 0
    condensed: Annotated[bool, LEFT_OUT] = False
    inputs: Annotated[Inputs, LEFT_OUT] = UNKNOWN_INPUTS
    change_reads: Annotated[ChangeReads | None, LEFT_OUT] = None
    narrows: Annotated[JobId | None, LEFT_OUT] = None
    left_out: Annotated[Count, LEFT_OUT] = 0
    own_since: Annotated[Count | None, LEFT_OUT] = None
    superseded: Annotated[Mapping[str, JobId] | None, LEFT_OUT] = None
    on_conflict: Annotated[OnConflict, LEFT_OUT] = OnConflict.FAIL

    @staticmethod
    def commit(
        job: str,
        write_id: str,
        spec: JobSpec,
        partitions: tuple[PartitionDecision, ...],
        run_version: int = 0,
    ) -> Decision:
        """Make the commit decision of a job of ``spec``.

        :param partitions: the change of each partition.
        :param run_version: the version of the run's head that the job has claimed.
        """
        return Decision(
            job=job,
            write_id=write_id,
            verdict=Verdict.COMMIT,
            mode=spec.mode,
            success_markers=spec.success_markers,
            idempotency_key=spec.idempotency_key,
            run_version=run_version,
            owner=spec.owner,
            partitions=partitions,
            change_reads=spec.change_reads,
            on_conflict=spec.on_conflict,
        )

    @staticmethod
    def abort(job: str, write_id: str, owner: Owner = NOBODY) -> Decision:
        return Decision(job=job, write_id=write_id, verdict=Verdict.ABORT, owner=owner)

    @property
    def is_commit(self) -> bool:
        return self.verdict is Verdict.COMMIT

    @property
    def files(self) -> tuple[PendingFile, ...]:
        return tuple(file for p in self.partitions for file in p.files)

    @property
    def upload_ids(self) -> frozenset[tuple[str, str]]:
        return frozenset((file.key, file.upload_id) for file in self.files)

    def encode(self) -> bytes:
        if not self.is_commit:
            said = _Said(self.job, self.write_id, self.verdict, self.owner)
            return encode("decision", self.write_id, said)
        compact = replace(self, partitions=()) if self.parts else self
        return encode("decision", self.write_id, compact)

    @staticmethod
    def decode(body: bytes, key: str, root: TableRoot, job: str) -> Decision:
        """Parse the decision of ``job``.

        :raises RecordDamagedError: it cannot be read, is another job's, or names a key outside the
            table or outside the key's partition, or a pending file whose key does not carry the
            job's id. Keys are checked because the process that applies a decision often has more
            rights than its writer had.
        """
        if CondensedDecision.is_one(body):
            return _of_condensed(CondensedDecision.decode(body, key, job))
        document = decode(body, "decision", key)
        said = document.read(_Said)
        if said.job != job:
            raise document.damaged("job", f"is not {job}")
        if said.verdict is Verdict.ABORT:
            return Decision.abort(job, said.write_id, said.owner)
        decision = document.read(Decision)
        for number, part in enumerate(decision.parts):
            if not part.key.startswith(f"{root.decisions_prefix}{job}."):
                member = f"parts[{number}].key"
                raise document.damaged(member, "is not a part of this job's decision")
        _check_keys(document, decision.partitions, root, job)
        return decision


@dataclass(frozen=True)
class _Said:
    """All members of an abort decision, which every decision has first."""

    job: str
    write_id: str
    verdict: Verdict
    owner: Annotated[Owner, LEFT_OUT] = NOBODY


def _of_condensed(said: CondensedDecision) -> Decision:
    return Decision(
        job=said.write_id,
        write_id=said.write_id,
        verdict=Verdict.COMMIT,
        success_markers=SuccessMarkers.NONE,
        partitions=said.partitions,
        decided_at=said.decided_at,
        condensed=True,
        owner=said.owner,
        **{name: getattr(said, name) for name in _KEPT},
    )


@dataclass(frozen=True)
class DecisionPart:
    """Some partitions of a decision, in an object of their own."""

    job: str
    write_id: str
    number: Count
    partitions: tuple[PartitionDecision, ...]

    def encode(self) -> bytes:
        return encode("decision-part", self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str, root: TableRoot, job: str) -> DecisionPart:
        document = decode(body, "decision-part", key)
        part = document.read(DecisionPart)
        if part.job != job:
            raise document.damaged("job", f"is not {job}")
        _check_keys(document, part.partitions, root, job)
        return part


def _check_keys(
    document: Document, partitions: tuple[PartitionDecision, ...], root: TableRoot, job: str
) -> None:
    """Refuse keys outside their partition, and pending files of another job."""
    for number, change in enumerate(partitions):
        for kind in _FILES:
            for index, file in enumerate(getattr(change, kind)):
                member = f"partitions[{number}].{kind}[{index}].key"
                document.check_place(member, file.key, root)
                if root.partition_of_data_key(file.key) != change.partition:
                    raise document.damaged(
                        member, f"lies outside the partition {change.partition!r} of this table"
                    )
                if isinstance(file, PendingFile) and job_in_key(file.key) != job:
                    raise document.damaged(member, f"does not carry the job id {job}")


def split_into_parts(decision: Decision, limit: int) -> list[DecisionPart]:
    """Split a decision into the parts that it needs; an empty list if it fits into one object.

    :param limit: the largest number of files and removals in one object. A partition with more is
        spread over several parts, and :func:`join_parts` joins them again.
    """
    if sum(p.weight for p in decision.partitions) <= limit:
        return []
    groups: list[list[PartitionDecision]] = [[]]
    weight = 0
    for partition in decision.partitions:
        for piece in _pieces(partition, limit):
            if groups[-1] and weight + piece.weight > limit:
                groups.append([])
                weight = 0
            groups[-1].append(piece)
            weight += piece.weight
    return [
        DecisionPart(decision.job, decision.write_id, number, tuple(group))
        for number, group in enumerate(groups)
    ]


def _pieces(partition: PartitionDecision, limit: int) -> list[PartitionDecision]:
    if partition.weight <= limit:
        return [partition]
    pieces = []
    for name in _FILES:
        values = getattr(partition, name)
        no_files: dict[str, Any] = dict.fromkeys(_FILES, ())
        bare = replace(partition, **no_files)
        for start in range(0, len(values), limit):
            pieces.append(replace(bare, **{name: values[start : start + limit]}))
    return pieces


def join_parts(decision: Decision, parts: Iterable[DecisionPart]) -> Decision:
    """Return the decision with the partitions of its parts, the pieces of each partition joined."""
    joined: dict[str, PartitionDecision] = {}
    for piece in (p for part in sorted(parts, key=lambda p: p.number) for p in part.partitions):
        known = joined.setdefault(piece.partition, piece)
        if known is not piece:
            lists = {name: getattr(known, name) + getattr(piece, name) for name in _FILES}
            joined[piece.partition] = replace(known, **lists)
    return replace(decision, partitions=tuple(joined.values()))
