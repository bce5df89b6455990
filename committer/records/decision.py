"""The decision: *commit* or *abort*, written once. Writing it is the commit point."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ..job_spec import NOBODY, DuringApply, JobSpec, Mode, Owner, SuccessMarkers
from ..layout import TableRoot, job_in_key
from .codec import Fields, decode, encode
from .open_record import owner_from
from .pending_file import PendingFile

#: The base epoch of a partition that has no head and never will: coordination *none*.
NO_HEAD = -1


class Verdict(StrEnum):
    COMMIT = "commit"
    ABORT = "abort"


@dataclass(frozen=True)
class StoredFile:
    """A file that is there: adopted into a head, or listed for removal.

    :param etag: its ETag when it was listed; a removal is carried out only if it still is.
    """

    key: str
    etag: str
    size: int


@dataclass(frozen=True)
class PartitionDecision:
    """What a commit decision says of one partition.

    :param base_epoch: the head's epoch that this job claimed; :data:`NO_HEAD` in a table of
        coordination *none*.
    :param replace: whether the partition's former content goes.
    :param files: pending files to complete.
    :param adopted: files that were there before the partition had a head; they stay.
    :param removals: files to remove, each only if its ETag is still the listed one.
    :param dropped_job: with ``on_repeat=replace_own``, the earlier job whose files go.
    :param lost: files that were decided and whose loss was accepted; nobody looks for them.
    """

    partition: str
    base_epoch: int
    replace: bool
    files: tuple[PendingFile, ...] = ()
    adopted: tuple[StoredFile, ...] = ()
    removals: tuple[StoredFile, ...] = ()
    dropped_job: str | None = None
    lost: tuple[PendingFile, ...] = ()

    @property
    def weight(self) -> int:
        return len(self.files) + len(self.adopted) + len(self.removals) + len(self.lost)


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
    :param once: the run's ``once`` key, moved together with the heads.
    :param decided_at: when it was decided, by the store's clock, in a decision that was written
        again since (see :mod:`.repair`); ``None`` in all others, whose Last-Modified says it.
    """

    job: str
    write_id: str
    verdict: Verdict
    mode: Mode = Mode.APPEND
    during_apply: DuringApply = DuringApply.NO_GAP
    success_markers: SuccessMarkers = SuccessMarkers.PARTITION_AND_TABLE
    once: str | None = None
    once_epoch: int = 0
    owner: Owner = NOBODY
    partitions: tuple[PartitionDecision, ...] = ()
    parts: tuple[PartReference, ...] = ()
    decided_at: float | None = None

    @staticmethod
    def commit(
        job: str,
        write_id: str,
        spec: JobSpec,
        partitions: tuple[PartitionDecision, ...],
        once_epoch: int = 0,
    ) -> Decision:
        """What a job of ``spec`` does to each partition, for whoever applies it."""
        return Decision(
            job=job,
            write_id=write_id,
            verdict=Verdict.COMMIT,
            mode=spec.mode,
            during_apply=spec.during_apply,
            success_markers=spec.success_markers,
            once=spec.once,
            once_epoch=once_epoch,
            owner=spec.owner,
            partitions=partitions,
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
        members: dict[str, Any] = {"job": self.job, "verdict": self.verdict}
        if self.is_commit:
            members |= {
                "mode": self.mode,
                "during_apply": self.during_apply,
                "success_markers": self.success_markers,
                "once": self.once,
                "once_epoch": self.once_epoch,
                "owner": vars(self.owner),
                "parts": [vars(part) for part in self.parts],
                "partitions": [] if self.parts else [_partition_json(p) for p in self.partitions],
            }
            if self.decided_at is not None:
                members["decided_at"] = self.decided_at
        return encode("decision", self.write_id, members)

    @staticmethod
    def decode(body: bytes, key: str, root: TableRoot, job: str) -> Decision:
        """Read a decision of ``job``.

        :raises RecordDamagedError: unreadable, another job's, or it names a key outside the
            table, outside the named partition, or a file that does not carry the job's id:
            whoever applies it often has more rights than its writer had.
        """
        read = decode(body, "decision", key)
        if read.string("job") != job:
            raise read.damaged("job", f"is not {job}")
        verdict = read.choice("verdict", Verdict)
        if verdict is Verdict.ABORT:
            return Decision.abort(job, read.string("write_id"))
        return Decision(
            job=job,
            write_id=read.string("write_id"),
            verdict=verdict,
            mode=read.choice("mode", Mode),
            during_apply=read.choice("during_apply", DuringApply),
            success_markers=read.choice("success_markers", SuccessMarkers),
            once=read.optional_string("once"),
            once_epoch=read.integer("once_epoch"),
            owner=owner_from(read.within("owner")),
            parts=read.each("parts", lambda part: _part_reference(part, root, job)),
            partitions=read.each("partitions", lambda p: _partition_from(p, root, job)),
            decided_at=read.number("decided_at", None),
        )


def _partition_json(partition: PartitionDecision) -> dict[str, Any]:
    members = {
        "partition": partition.partition,
        "base_epoch": partition.base_epoch,
        "replace": partition.replace,
        "dropped_job": partition.dropped_job,
        "files": _pending_json(partition.files),
        "adopted": [vars(file) for file in partition.adopted],
        "removals": [vars(file) for file in partition.removals],
    }
    return members | ({"lost": _pending_json(partition.lost)} if partition.lost else {})


def _pending_json(files: tuple[PendingFile, ...]) -> list[dict[str, Any]]:
    return [{k: value for k, value in vars(file).items() if k != "partition"} for file in files]


def _partition_from(read: Fields, root: TableRoot, job: str) -> PartitionDecision:
    name = read.string("partition")

    def key_of(item: Fields) -> str:
        key = item.string("key")
        if root.partition_of_data_key(key) != name:
            raise item.damaged("key", f"lies outside the partition {name!r} of this table")
        return key

    def pending(item: Fields) -> PendingFile:
        key = key_of(item)
        if job_in_key(key) != job:
            raise item.damaged("key", f"does not carry the job id {job}")
        return PendingFile(
            key=key,
            partition=name,
            upload_id=item.string("upload_id"),
            etags=item.strings("etags"),
            size=item.integer("size"),
            rows=item.integer("rows"),
            checksum=item.string("checksum"),
        )

    def stored(item: Fields) -> StoredFile:
        return StoredFile(key_of(item), item.string("etag"), item.integer("size"))

    return PartitionDecision(
        partition=name,
        base_epoch=_base_epoch(read),
        replace=read.boolean("replace"),
        files=read.each("files", pending),
        adopted=read.each("adopted", stored),
        removals=read.each("removals", stored),
        dropped_job=read.optional_string("dropped_job"),
        lost=read.each("lost", pending) if read.has("lost") else (),
    )


def _base_epoch(read: Fields) -> int:
    epoch = read.signed("base_epoch")
    if epoch is None or epoch < NO_HEAD:
        raise read.damaged("base_epoch", "is missing or no epoch")
    return epoch


def _part_reference(read: Fields, root: TableRoot, job: str) -> PartReference:
    key = read.string("key")
    if not key.startswith(f"{root.decisions_prefix}{job}."):
        raise read.damaged("key", "is not a part of this job's decision")
    return PartReference(key, read.string("etag"))


@dataclass(frozen=True)
class DecisionPart:
    """Some partitions of a decision, in an object of their own."""

    job: str
    write_id: str
    number: int
    partitions: tuple[PartitionDecision, ...]

    def encode(self) -> bytes:
        members = {
            "job": self.job,
            "number": self.number,
            "partitions": [_partition_json(p) for p in self.partitions],
        }
        return encode("decision-part", self.write_id, members)

    @staticmethod
    def decode(body: bytes, key: str, root: TableRoot, job: str) -> DecisionPart:
        read = decode(body, "decision-part", key)
        if read.string("job") != job:
            raise read.damaged("job", f"is not {job}")
        return DecisionPart(
            job,
            read.string("write_id"),
            read.integer("number"),
            read.each("partitions", lambda p: _partition_from(p, root, job)),
        )


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
    for name in ("files", "adopted", "removals", "lost"):
        values = getattr(partition, name)
        bare = replace(partition, files=(), adopted=(), removals=(), lost=())
        for start in range(0, len(values), limit):
            pieces.append(replace(bare, **{name: values[start : start + limit]}))
    return pieces


def join_parts(decision: Decision, parts: list[DecisionPart]) -> Decision:
    """The decision with the partitions of its parts, pieces of one partition joined."""
    joined: dict[str, PartitionDecision] = {}
    for piece in (p for part in sorted(parts, key=lambda p: p.number) for p in part.partitions):
        known = joined.get(piece.partition)
        joined[piece.partition] = (
            piece
            if known is None
            else replace(
                known,
                files=known.files + piece.files,
                adopted=known.adopted + piece.adopted,
                removals=known.removals + piece.removals,
                lost=known.lost + piece.lost,
            )
        )
    return replace(decision, partitions=tuple(joined.values()))
