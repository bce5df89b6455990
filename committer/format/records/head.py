"""Head of a partition: what the partition holds now, and which job is about to change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from ...store.requests import Found
from ..layout import UNPARTITIONED, TableRoot
from .codec import decode, encode
from .marks import LEFT_OUT, Count, JobId
from .partition_decision import PartitionDecision
from .partition_ranks import NO_RANKS, PartitionRanks

#: Number of former states that a head remembers. They give the version for an ETag from a listing.
TRAIL_LENGTH = 16


@dataclass(frozen=True)
class Slot:
    """A partition, or the idempotency key of a run, that a job can claim by its head.

    The head of a run has no files.
    """

    name: str
    key: str
    is_run: bool = False

    @staticmethod
    def partition(root: TableRoot, name: str) -> Slot:
        return Slot(name, root.head_key(name))

    @staticmethod
    def run(root: TableRoot, idempotency_key: str) -> Slot:
        return Slot(idempotency_key, root.run_key(idempotency_key), is_run=True)


@dataclass(frozen=True)
class NamedManifest:
    """Reference to a manifest by key and ETag.

    :param files: the number of files that it lists; 0: not known.
    """

    key: str
    etag: str
    files: Annotated[Count, LEFT_OUT] = 0


@dataclass(frozen=True)
class FormerState:
    """Former state of a head: its ETag and its version."""

    etag: str
    version: Count


@dataclass(frozen=True)
class PartitionHead:
    """The head of one slot. A slot without an object has version 0: :meth:`initial`.

    :param version: the number of jobs that have moved this head.
    :param replace_version: the version that the last replace made; 0: there was no replace.
    :param replaced_at: when that replace was decided, by the store's clock; ``None``: not known.
    :param last_job: the job that moved it last.
    :param decisions: jobs whose decisions name files that the partition holds, oldest first.
    :param manifest: a folded list of files, older than the files of all ``decisions``.
    :param newer: further folded lists, oldest first, each of fewer files than the one before.
    :param dropped: jobs whose files in ``manifests`` no longer count.
    :param claim: the job that is about to change it.
    :param holder: the process of that job that wrote the claim.
    :param schema_version: the least version of the table's columns that has all columns of the
        files.
    :param ranks: the ranks of the runs whose rows it holds.
    :param trail: the last states before this one, oldest first.
    """

    name: str
    write_id: str
    version: Count = 0
    replace_version: Count = 0
    replaced_at: Annotated[float | None, LEFT_OUT] = None
    last_job: JobId | None = None
    decisions: tuple[JobId, ...] = ()
    manifest: NamedManifest | None = None
    newer: Annotated[tuple[NamedManifest, ...], LEFT_OUT] = ()
    dropped: tuple[JobId, ...] = ()
    claim: JobId | None = None
    holder: Annotated[str | None, LEFT_OUT] = None
    trail: tuple[FormerState, ...] = ()
    schema_version: Annotated[Count, LEFT_OUT] = 0
    ranks: Annotated[PartitionRanks, LEFT_OUT] = NO_RANKS

    @staticmethod
    def initial(slot: Slot) -> PartitionHead:
        return PartitionHead(name=slot.name, write_id="")

    @property
    def manifests(self) -> tuple[NamedManifest, ...]:
        """All folded lists of files, oldest first."""
        return () if self.manifest is None else (self.manifest, *self.newer)

    def encode(self) -> bytes:
        # Versions that know neither several manifests nor compressed ones must refuse it.
        known = not any(manifest.files for manifest in self.manifests)
        return encode("head", self.write_id, self, format=1 if known else 2)

    @staticmethod
    def decode(body: bytes, slot: Slot, root: TableRoot) -> PartitionHead:
        document = decode(body, "head", slot.key)
        head = document.read(PartitionHead)
        if head.name != slot.name:
            raise document.damaged("name", f"is not {slot.name!r}")
        manifests = root.manifest_key("").removesuffix(".json")
        for manifest in head.manifests:
            document.check_place("manifest.key", manifest.key, root)
            if not manifest.key.startswith(manifests):
                raise document.damaged("manifest.key", "is not a manifest of this table")
        return head

    def _from(self, write_id: str, etag: str | None) -> PartitionHead:
        trail = self.trail
        if etag is not None:
            trail = (*trail, FormerState(etag, self.version))[-TRAIL_LENGTH:]
        return replace(self, write_id=write_id, trail=trail)

    def claimed(self, job: str, holder: str, write_id: str, etag: str | None) -> PartitionHead:
        """Return this head with a claim of ``job``.

        :param holder: the process of the job that claims it.
        :param etag: the present state's ETag, for the trail; ``None``: no object is there yet.
        """
        return replace(self._from(write_id, etag), claim=job, holder=holder)

    def released(self, write_id: str, etag: str) -> PartitionHead:
        """Return this head without its claim; ``etag`` is the present state's."""
        return replace(self._from(write_id, etag), claim=None, holder=None)

    def naming(
        self, manifests: tuple[NamedManifest, ...], decisions: tuple[JobId, ...]
    ) -> PartitionHead:
        """Return this head with other lists of the same files, without those of dropped jobs."""
        first, newer = manifests[0], manifests[1:]
        return replace(self, manifest=first, newer=newer, decisions=decisions, dropped=())

    def tidied(self, write_id: str, etag: str, remembers: int) -> PartitionHead:
        """Return this head as a new state of the same version, for a change of its lists alone.

        :param etag: the present state's ETag, for the trail.
        :param remembers: the number of states that the trail keeps, the present one included.
        """
        after = self._from(write_id, etag)
        return replace(after, trail=after.trail[-remembers:])

    def moved(
        self,
        job: str,
        change: PartitionDecision | None,
        write_id: str,
        etag: str,
        at: float,
        schema_version: int = 0,
    ) -> PartitionHead:
        """Return the head as the commit decision of ``job`` leaves it.

        :param change: the decision's change of the partition; ``None`` for a run's head.
        :param etag: the present state's ETag, for the trail.
        :param at: when it was decided, by the store's clock.
        :param schema_version: as in the decision.
        """
        free = self.released(write_id, etag)
        after = replace(
            free,
            version=self.version + 1,
            last_job=job,
            schema_version=max(self.schema_version, schema_version),
        )
        if change is None:
            return after
        after = replace(after, ranks=change.ranks)
        own = (job,) if change.files or change.adopted else ()
        if change.replace:
            after = replace(after, replace_version=after.version, replaced_at=at)
            return replace(after, decisions=own, manifest=None, newer=(), dropped=())
        gone = change.dropped_jobs
        folded = (job for job in gone if self.manifest and job not in self.decisions)
        dropped = (*after.dropped, *folded)
        kept = tuple(job for job in self.decisions if job not in gone)
        return replace(after, decisions=kept + own, dropped=dropped)


@dataclass(frozen=True)
class HeadState:
    """A head that was read or written, with its ETag.

    :param etag: ``None``: no object is there yet.
    """

    slot: Slot
    head: PartitionHead
    etag: str | None

    def version_at(self, base: str | None) -> int | None:
        """Return the version of a state of this head; ``None``: it is older than the trail.

        :param base: the ETag of that state; ``None``: there was no head, so the version is 0.
        """
        if base is None:
            return 0
        if base == self.etag:
            return self.head.version
        for state in self.head.trail:
            if state.etag == base:
                return state.version
        return None


def partition_of_slot_key(root: TableRoot, key: str) -> str | None:
    """Return the partition whose head lies at ``key``; ``None`` for a foreign key."""
    name = root.partition_of_head_key(key)
    if name is None or (name != UNPARTITIONED and "=" not in name):
        return None
    return name


@dataclass(frozen=True)
class _Name:
    """The member of a head that names its slot."""

    name: str


def head_at(root: TableRoot, found: Found) -> HeadState:
    """Read the head, of a partition or of a run, in an object that was listed.

    :raises RecordDamagedError: it is not the head that belongs at the object's key.
    """
    document = decode(found.body, "head", found.key)
    name = document.read(_Name).name
    slot = Slot.partition(root, name)
    if slot.key != found.key:
        slot = Slot.run(root, name)
    if slot.key != found.key:
        raise document.damaged("name", "is not what its key says")
    return HeadState(slot, PartitionHead.decode(found.body, slot, root), found.etag)
