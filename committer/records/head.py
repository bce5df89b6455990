"""A partition's head: what it holds now, and which job is about to change it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..layout import UNPARTITIONED, TableRoot, is_job_id
from ..s3.requests import Found
from .codec import Fields, decode, encode
from .data_file import DataFile
from .decision import PartitionDecision, PartReference

#: Former states a head remembers, so that an ETag from a listing can be dated by epoch.
TRAIL_LENGTH = 16


@dataclass(frozen=True)
class Slot:
    """What a job can claim: a partition, or the ``once`` key of a run (a head without files)."""

    name: str
    key: str
    is_once: bool = False

    @staticmethod
    def partition(root: TableRoot, name: str) -> Slot:
        return Slot(name, root.head_key(name))

    @staticmethod
    def once(root: TableRoot, once: str) -> Slot:
        return Slot(once, root.once_key(once), is_once=True)


@dataclass(frozen=True)
class FormerState:
    """A state this head had: its ETag then, and the epoch."""

    etag: str
    epoch: int


@dataclass(frozen=True)
class Head:
    """The head of one slot. Absent means epoch 0: :meth:`initial`.

    :param epoch: how many jobs have moved this head.
    :param replace_epoch: the epoch that the last replace made; 0 for none.
    :param last_job: the job that moved it last.
    :param decisions: jobs whose decisions name files that the partition holds, oldest first.
    :param manifest: a folded list of files, older than all of ``decisions``.
    :param dropped: jobs whose files in ``manifest`` no longer count.
    :param claim: the job about to change it.
    :param trail: the last states before this one, oldest first.
    """

    name: str
    write_id: str
    epoch: int = 0
    replace_epoch: int = 0
    last_job: str | None = None
    decisions: tuple[str, ...] = ()
    manifest: PartReference | None = None
    dropped: tuple[str, ...] = ()
    claim: str | None = None
    trail: tuple[FormerState, ...] = ()

    @staticmethod
    def initial(slot: Slot) -> Head:
        return Head(name=slot.name, write_id="")

    def encode(self) -> bytes:
        members = {
            "name": self.name,
            "epoch": self.epoch,
            "replace_epoch": self.replace_epoch,
            "last_job": self.last_job,
            "decisions": self.decisions,
            "manifest": vars(self.manifest) if self.manifest else None,
            "dropped": self.dropped,
            "claim": self.claim,
            "trail": [vars(state) for state in self.trail],
        }
        return encode("head", self.write_id, members)

    @staticmethod
    def decode(body: bytes, slot: Slot, root: TableRoot) -> Head:
        read = decode(body, "head", slot.key)
        if read.string("name") != slot.name:
            raise read.damaged("name", f"is not {slot.name!r}")
        manifest = read.optional_within("manifest")
        return Head(
            name=slot.name,
            write_id=read.string("write_id"),
            epoch=read.integer("epoch"),
            replace_epoch=read.integer("replace_epoch"),
            last_job=_job(read, "last_job"),
            decisions=_jobs(read, "decisions"),
            manifest=_manifest_reference(manifest, root) if manifest else None,
            dropped=_jobs(read, "dropped"),
            claim=_job(read, "claim"),
            trail=read.each(
                "trail", lambda state: FormerState(state.string("etag"), state.integer("epoch"))
            ),
        )

    def _from(self, write_id: str, etag: str | None) -> Head:
        trail = self.trail
        if etag is not None:
            trail = (*trail, FormerState(etag, self.epoch))[-TRAIL_LENGTH:]
        return replace(self, write_id=write_id, trail=trail)

    def claimed(self, job: str, write_id: str, etag: str | None) -> Head:
        """This head with ``job``'s claim; ``etag`` is this state's."""
        return replace(self._from(write_id, etag), claim=job)

    def released(self, write_id: str, etag: str) -> Head:
        """This head without its claim."""
        return replace(self._from(write_id, etag), claim=None)

    def moved(
        self,
        job: str,
        change: PartitionDecision | None,
        write_id: str,
        etag: str,
    ) -> Head:
        """The head after ``job``'s decision; ``change`` is ``None`` for a ``once`` slot."""
        after = replace(self._from(write_id, etag), claim=None, epoch=self.epoch + 1, last_job=job)
        if change is None:
            return after
        own = (job,) if change.files or change.adopted else ()
        if change.replace:
            return replace(
                after, replace_epoch=after.epoch, decisions=own, manifest=None, dropped=()
            )
        dropped = after.dropped
        if self.manifest and change.dropped_job and change.dropped_job not in self.decisions:
            dropped = (*dropped, change.dropped_job)
        kept = tuple(d for d in self.decisions if d != change.dropped_job)
        return replace(after, decisions=kept + own, dropped=dropped)


def _job(read: Fields, member: str) -> str | None:
    job = read.optional_string(member)
    if job is not None and not is_job_id(job):
        raise read.damaged(member, "is not a job id")
    return job


def _jobs(read: Fields, member: str) -> tuple[str, ...]:
    jobs = read.strings(member)
    if not all(is_job_id(job) for job in jobs):
        raise read.damaged(member, "names something that is not a job id")
    return jobs


def _manifest_reference(read: Fields, root: TableRoot) -> PartReference:
    key = read.string("key")
    if not key.startswith(root.manifest_key("").removesuffix(".json")):
        raise read.damaged("key", "is not a manifest of this table")
    return PartReference(key, read.string("etag"))


@dataclass(frozen=True)
class HeadState:
    """A head as it was read or written: ``etag`` is ``None`` where no object is there yet."""

    slot: Slot
    head: Head
    etag: str | None

    def epoch_at(self, base: str | None) -> int | None:
        """The epoch of the state whose ETag was ``base`` (``None``: there was no head).

        ``None`` when that state is older than the trail.
        """
        if base is None:
            return 0
        if base == self.etag:
            return self.head.epoch
        for state in self.head.trail:
            if state.etag == base:
                return state.epoch
        return None


@dataclass(frozen=True)
class Manifest:
    """A folded list: the files a partition held when many decisions became one object."""

    partition: str
    write_id: str
    files: tuple[DataFile, ...]

    def encode(self) -> bytes:
        files = [
            {name: value for name, value in vars(file).items() if name != "partition"}
            for file in self.files
        ]
        return encode("manifest", self.write_id, {"partition": self.partition, "files": files})

    @staticmethod
    def decode(body: bytes, key: str, root: TableRoot, partition: str) -> Manifest:
        read = decode(body, "manifest", key)
        if read.string("partition") != partition:
            raise read.damaged("partition", f"is not {partition!r}")

        def file(item: Fields) -> DataFile:
            name = item.string("key")
            if root.partition_of_data_key(name) != partition:
                raise item.damaged("key", f"lies outside the partition {partition!r}")
            return DataFile(
                key=name,
                partition=partition,
                size=item.integer("size"),
                rows=item.signed("rows") or 0,
                checksum=item.string("checksum"),
                job=item.string("job"),
            )

        return Manifest(partition, read.string("write_id"), read.each("files", file))


def partition_of_slot_key(root: TableRoot, key: str) -> str | None:
    """The partition whose head lies at ``key``; ``None`` for a foreign key."""
    name = root.partition_of_head_key(key)
    if name is None or (name != UNPARTITIONED and "=" not in name):
        return None
    return name


def head_at(root: TableRoot, found: Found) -> HeadState:
    """The head in an object that was listed, a partition's or a run's.

    :raises RecordDamagedError: it is not the head that belongs at its key.
    """
    read = decode(found.body, "head", found.key)
    name = read.string("name")
    slot = Slot.partition(root, name)
    if slot.key != found.key:
        slot = Slot.once(root, name)
    if slot.key != found.key:
        raise read.damaged("name", "is not what its key says")
    return HeadState(slot, Head.decode(found.body, slot, root), found.etag)
