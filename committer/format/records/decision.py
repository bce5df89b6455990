"""The decision: *commit* or *abort*, written once. Writing it is the commit point."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from enum import StrEnum
from typing import Annotated

from ..job_spec import NOBODY, JobSpec, Mode, OnConflict, Owner, SuccessMarkers
from ..layout import TableRoot, job_in_key
from ..row_changes import ChangeReads, RowChanges
from .codec import Document, decode, encode
from .inputs import UNKNOWN_INPUTS, Inputs
from .marks import LEFT_OUT, Count, JobId, Moment
from .partition_decision import PartitionDecision, Sums
from .pending_file import PendingFile

_FILES = ("files", "adopted", "removals", "lost")
#: What a condensed decision says as the decision did.
_KEPT = (
    *("mode", "idempotency_key", "run_version", "own_since"),
    *("change_reads", "inputs", "narrows", "left_out", "superseded"),
)

#: None is made of an abort.
_CONDENSED = "commit"
_CONDENSED_FORMAT = 2
_SAYS_SO = re.compile(rb'"kind"\s*:\s*"commit"')
#: The base version, the sums, and whether it replaced what was there.
_NUMBERS = 6


@dataclass(frozen=True)
class CondensedDecision:
    """The record. Whoever writes it for a job writes the same bytes.

    :param write_id: the job's id, which no other record has for one.
    :param changes: by partition: the base version, files, their rows and bytes, removed files, and
        1 for a replace, else 0.
    :param dropped: by partition: the attempt of the run whose files went.
    :param own_since: the decision's.
    :param merged: by partition: jobs whose rows were written again.
    :param row_changes: by partition: rows inserted, updated, deleted and left.
    :param change_reads: the decision's.
    :param inputs: the decision's, as long as rows of the job may be there.
    :param narrows: the decision's; so are ``left_out`` and ``superseded``.
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

    @staticmethod
    def of(decision: Decision, at: float) -> CondensedDecision:
        """What is left of a commit decision where nobody needs its lists any more.

        :param at: when it was decided.
        """
        partitions = decision.partitions
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
            owner=decision.owner if decision.inputs else NOBODY,
            **{name: getattr(decision, name) for name in _KEPT},
        )

    @property
    def partitions(self) -> tuple[PartitionDecision, ...]:
        dropped, merged = self.dropped or {}, self.merged or {}
        row_changes = self.row_changes or {}
        return tuple(
            PartitionDecision(
                name,
                version,
                bool(replace),
                dropped_job=dropped.get(name),
                merged=merged.get(name, ()),
                condensed=Sums(*sums),
                row_changes=row_changes.get(name),
            )
            for name, (version, *sums, replace) in self.changes.items()
        )

    def encode(self) -> bytes:
        return encode(_CONDENSED, self.write_id, self, _CONDENSED_FORMAT)

    @staticmethod
    def is_one(body: bytes) -> bool:
        """Whether a decision's bytes are those of a condensed one."""
        return _SAYS_SO.search(body[:80]) is not None

    @staticmethod
    def decode(body: bytes, key: str, job: str) -> CondensedDecision:
        """:raises RecordDamagedError: it cannot be read, or is another job's."""
        document = decode(body, _CONDENSED, key)
        condensed = document.read(CondensedDecision)
        if condensed.write_id != job:
            raise document.damaged("write_id", f"is not {job}")
        if any(len(numbers) != _NUMBERS for numbers in condensed.changes.values()):
            raise document.damaged("changes", f"has a list of other than {_NUMBERS} numbers")
        return condensed


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

    :param partitions: what happens to each partition; empty while the parts are not read.
    :param parts: where the partitions are when they are too many for one object.
    :param idempotency_key: the run's idempotency key, moved together with the heads.
    :param run_version: the version of the run's head that the job has claimed: how many attempts
        of the run committed before.
    :param own_since: with ``on_repeat=replace_own``, the ``run_version`` of the oldest attempt of
        which no rows are to be left: this job takes the place of all attempts from that one on.
        ``None``: of none, or an earlier version of this package has written it.
    :param schema_version: of the table's columns, at the least, that hold the files' columns.
    :param decided_at: when it was decided, by the store's clock, in a decision that was written
        again since (see :mod:`.repair`); ``None`` in all others, whose Last-Modified says it.
    :param condensed: it was applied long ago and no head names it: its lists were left out since.
        It still says *commit*, what its run did and from which versions, and can never be written
        by anybody else.
    :param inputs: what its rows were computed from, and by which version of their program.
    :param change_reads: of a merge, an update or a deletion: what of the table was read.
    :param narrows: the run's job before, of which this one does only its own partitions again:
        what that one wrote to others is the run's still, if it is there. ``None``: it does all.
    :param left_out: rows of these others, which were computed and not written.
    :param superseded: partitions that the job was to write and has left out, since newer runs had
        loaded them, each with the job that had written it last.
    :param on_conflict: what the job was to do where another one had changed a partition.
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
        """What a job of ``spec`` does to each partition, for whoever applies it."""
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
    def abort(job: str, write_id: str) -> Decision:
        return Decision(job=job, write_id=write_id, verdict=Verdict.ABORT)

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
            said = _Said(self.job, self.write_id, self.verdict)
            return encode("decision", self.write_id, said)
        compact = replace(self, partitions=()) if self.parts else self
        return encode("decision", self.write_id, compact)

    @staticmethod
    def decode(body: bytes, key: str, root: TableRoot, job: str) -> Decision:
        """Read a decision of ``job``.

        :raises RecordDamagedError: unreadable, another job's, or it names a key outside the
            table, outside the named partition, or a file that does not carry the job's id:
            whoever applies it often has more rights than its writer had.
        """
        if CondensedDecision.is_one(body):
            return _of_condensed(CondensedDecision.decode(body, key, job))
        document = decode(body, "decision", key)
        said = document.read(_Said)
        if said.job != job:
            raise document.damaged("job", f"is not {job}")
        if said.verdict is Verdict.ABORT:
            return Decision.abort(job, said.write_id)
        decision = document.read(Decision)
        for number, part in enumerate(decision.parts):
            if not part.key.startswith(f"{root.decisions_prefix}{job}."):
                member = f"parts[{number}].key"
                raise document.damaged(member, "is not a part of this job's decision")
        _check_keys(document, decision.partitions, root, job)
        return decision


@dataclass(frozen=True)
class _Said:
    """All that an abort decision says, and what comes first in any."""

    job: str
    write_id: str
    verdict: Verdict


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
    """Refuse keys outside their partition, and pending files that are not the job's."""
    for number, change in enumerate(partitions):
        for kind in _FILES:
            for index, file in enumerate(getattr(change, kind)):
                member = f"partitions[{number}].{kind}[{index}].key"
                if root.partition_of_data_key(file.key) != change.partition:
                    raise document.damaged(
                        member, f"lies outside the partition {change.partition!r} of this table"
                    )
                if isinstance(file, PendingFile) and job_in_key(file.key) != job:
                    raise document.damaged(member, f"does not carry the job id {job}")


def split_into_parts(decision: Decision, limit: int) -> list[DecisionPart]:
    """The parts a decision needs; none when it fits one object.

    :param limit: files and removals that one object may hold. A partition with more is spread over
        several parts, which are joined again by :func:`join_parts`.
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
        bare = replace(partition, **dict.fromkeys(_FILES, ()))
        for start in range(0, len(values), limit):
            pieces.append(replace(bare, **{name: values[start : start + limit]}))
    return pieces


def join_parts(decision: Decision, parts: Iterable[DecisionPart]) -> Decision:
    """The decision with the partitions of its parts, pieces of one partition joined."""
    joined: dict[str, PartitionDecision] = {}
    for piece in (p for part in sorted(parts, key=lambda p: p.number) for p in part.partitions):
        known = joined.setdefault(piece.partition, piece)
        if known is not piece:
            lists = {name: getattr(known, name) + getattr(piece, name) for name in _FILES}
            joined[piece.partition] = replace(known, **lists)
    return replace(decision, partitions=tuple(joined.values()))
