"""A partition's head: what it holds now, and which job is about to change it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

from ...errors import RecordDamagedError
from ...store.requests import Found
from ..layout import UNPARTITIONED, TableRoot
from .codec import decode, encode
from .kept_state import STILL, KeptState, Move, NamedManifest, as_of, bounded, line_of, version_at
from .marks import LEFT_OUT, Count, JobId
from .partition_decision import PartitionDecision
from .partition_ranks import NO_RANKS, PartitionRanks

#: Former states a head remembers, so that an ETag from a listing can be dated by version.
TRAIL_LENGTH = 16


@dataclass(frozen=True)
class Slot:
    """What a job can claim: a partition, or the idempotency key of a run (a head without files)."""

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
class FormerState:
    """A state this head had: its ETag then, and the version."""

    etag: str
    version: Count


@dataclass(frozen=True)
class PartitionHead:
    """The head of one slot. Absent means version 0: :meth:`initial`.

    :param version: how many jobs have moved this head.
    :param replace_version: the version that the last replace made; 0 for none.
    :param replaced_at: when that replace was decided, by the store's clock; ``None``: not known.
    :param last_job: the job that moved it last.
    :param decisions: jobs whose decisions name files that the partition holds, oldest first.
    :param manifest: a folded list of files, older than all of ``decisions``.
    :param newer: further ones, oldest first, each of fewer files than the one before.
    :param dropped: jobs whose files in ``manifests`` no longer count.
    :param claim: the job about to change it.
    :param holder: the process of that job which put the claim there.
    :param schema_version: of the table's columns, at the least, that hold the files' columns.
    :param ranks: how new the runs are whose rows it holds.
    :param trail: the last states before this one, oldest first.
    :param moves: in a table read by heads, the versions since it last stopped naming files.
    :param kept: there, what it named before, oldest first.
    :param marker: there, the ETag that its marker will have, if nobody else writes one: a guess,
        by which the next job need not read it.
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
    moves: Annotated[tuple[Move, ...], LEFT_OUT] = ()
    kept: Annotated[tuple[KeptState, ...], LEFT_OUT] = ()
    marker: Annotated[str | None, LEFT_OUT] = None
    ranks: Annotated[PartitionRanks, LEFT_OUT] = NO_RANKS

    @staticmethod
    def initial(slot: Slot) -> PartitionHead:
        return PartitionHead(name=slot.name, write_id="")

    @property
    def manifests(self) -> tuple[NamedManifest, ...]:
        """All folded lists of files, oldest first."""
        return () if self.manifest is None else (self.manifest, *self.newer)

    def encode(self) -> bytes:
        # Who does not know of several manifests, or of compressed ones, must not read it.
        known = not any(manifest.files for manifest in self.manifests)
        return encode("head", self.write_id, self, format=1 if known else 2)

    @staticmethod
    def decode(body: bytes, slot: Slot, root: TableRoot) -> PartitionHead:
        document = decode(body, "head", slot.key)
        head = document.read(PartitionHead)
        if head.name != slot.name:
            raise document.damaged("name", f"is not {slot.name!r}")
        manifests = root.manifest_key("").removesuffix(".json")
        if not all(key.startswith(manifests) for key in head.lists):
            raise document.damaged("manifest.key", "is not a manifest of this table")
        return head

    def _from(self, write_id: str, etag: str | None) -> PartitionHead:
        trail = self.trail
        if etag is not None:
            trail = (*trail, FormerState(etag, self.version))[-TRAIL_LENGTH:]
        return replace(self, write_id=write_id, trail=trail)

    def claimed(self, job: str, holder: str, write_id: str, etag: str | None) -> PartitionHead:
        """This head with ``job``'s claim, put there by the process ``holder``; ``etag`` is this
        state's."""
        return replace(self._from(write_id, etag), claim=job, holder=holder)

    def released(self, write_id: str, etag: str) -> PartitionHead:
        """This head without its claim."""
        return replace(self._from(write_id, etag), claim=None, holder=None)

    def naming(
        self, manifests: tuple[NamedManifest, ...], decisions: tuple[JobId, ...]
    ) -> PartitionHead:
        """The same files by other lists, without those of dropped jobs."""
        first, newer = manifests[0], manifests[1:]
        return replace(self, manifest=first, newer=newer, decisions=decisions, dropped=())

    def tidied(self, write_id: str, etag: str, remembers: int) -> PartitionHead:
        """This head, whose lists have changed, as another state of the same version.

        :param remembers: how many former states, this one's among them.
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
        since: float | None = None,
    ) -> PartitionHead:
        """The head after ``job``'s decision; ``change`` is ``None`` for a run's head.

        :param at: when it was decided, by the store's clock.
        :param schema_version: the decision's; so too ``since``: what goes is kept where it is told.
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
        if since is not None:
            move = Move(after.version, job, since, change.ranks)
            after = after._keeping(self, change.goes_on, move)
        if change.replace:
            after = replace(after, replace_version=after.version, replaced_at=at)
            if change.restores is not None:
                return after._naming_as(self._kept(change.restores))
        own = (job,) if change.files or change.adopted else ()
        if change.replace:
            return replace(after, decisions=own, manifest=None, newer=(), dropped=())
        gone = change.dropped_jobs
        folded = (job for job in gone if self.manifest and job not in self.decisions)
        dropped = (*after.dropped, *folded)
        kept = tuple(job for job in self.decisions if job not in gone)
        return replace(after, decisions=kept + own, dropped=dropped)

    # What it held before

    @property
    def lines(self) -> tuple[KeptState, ...]:
        """All that it can tell of itself, oldest first; last what it names now."""
        return (*self.kept, self._line(STILL))

    @property
    def lists(self) -> frozenset[str]:
        """The keys of all folded lists of files that it names or keeps."""
        return frozenset(manifest.key for line in self.lines for manifest in line.manifests)

    @property
    def states(self) -> tuple[PartitionHead, ...]:
        """All that its files can be told by: as it was at the end of each line, and as it is."""
        return tuple(self._naming_as(line) for line in self.lines)

    def _line(self, until: float) -> KeptState:
        return KeptState(
            until, self.moves, self.decisions, self.manifests, self.dropped, self.schema_version
        )

    def _keeping(self, before: PartitionHead, goes_on: bool, move: Move) -> PartitionHead:
        """This head with its history: in the same line as the one before it, or in a new one."""
        if goes_on:
            return replace(self, moves=line_of((*before.moves, move)))
        kept = (*before.kept, before._line(move.since)) if before.moves else before.kept
        return replace(self, moves=(move,), kept=bounded(kept, (move,)))

    def version_at_time(self, at: float) -> int | None:
        """The version that counted at a time; ``None``: it is not known any more."""
        return version_at(self.lines, at)

    def as_of(self, version: int) -> PartitionHead | None:
        """The head as it was at a version, as far as its files go; ``None``: it is not kept, or
        never was."""
        state = as_of(self.lines, version)
        if state is None:
            return None
        ranks = state.moves[-1].ranks if state.moves else NO_RANKS
        named = self._naming_as(state)
        return replace(named, version=version, schema_version=state.schema_version, ranks=ranks)

    def _kept(self, version: int) -> KeptState:
        state = as_of(self.lines, version)
        if state is None:
            raise RecordDamagedError(
                f"The head of {self.name!r} does not keep its version {version}, which a committed "
                "job takes back: when it decided it did.",
                field="kept",
                job=self.claim,
                remedy="Restore the head from a version or backup.",
            )
        return state

    def _naming_as(self, state: KeptState) -> PartitionHead:
        first = state.manifests[0] if state.manifests else None
        return replace(
            self,
            decisions=state.decisions,
            manifest=first,
            newer=state.manifests[1:],
            dropped=state.dropped,
        )

    def forgetting(
        self, before: float, most: int, write_id: str, etag: str
    ) -> PartitionHead | None:
        """This head without what was replaced before a time, so that its files may go; ``None``:
        there is nothing to forget.

        :param most: how many of its former lines stay at the most.
        """
        kept = tuple(line for line in self.kept if line.until >= before)
        kept = kept[max(0, len(kept) - most) :]
        if len(kept) == len(self.kept):
            return None
        return replace(self._from(write_id, etag), kept=kept)


@dataclass(frozen=True)
class HeadState:
    """A head as it was read or written: ``etag`` is ``None`` where no object is there yet.

    :param written_at: when it was written, by the store's clock; 0: not known, or nobody asks.
    """

    slot: Slot
    head: PartitionHead
    etag: str | None
    written_at: float = field(default=0.0, compare=False)

    @property
    def since(self) -> float:
        """The least time from which on a job may count that has this head's claim: never before
        the one that moved it last."""
        return max([self.written_at, *(move.since for move in self.head.moves[-1:])])

    def version_at(self, base: str | None) -> int | None:
        """The version of the state whose ETag was ``base`` (``None``: there was no head).

        ``None`` when that state is older than the trail.
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
    """The partition whose head lies at ``key``; ``None`` for a foreign key."""
    name = root.partition_of_head_key(key)
    if name is None or (name != UNPARTITIONED and "=" not in name):
        return None
    return name


@dataclass(frozen=True)
class _Name:
    """As much of a head as tells which slot it is of."""

    name: str


def head_at(root: TableRoot, found: Found) -> HeadState:
    """The head in an object that was listed, a partition's or a run's.

    :raises RecordDamagedError: it is not the head that belongs at its key.
    """
    document = decode(found.body, "head", found.key)
    name = document.read(_Name).name
    slot = Slot.partition(root, name)
    if slot.key != found.key:
        slot = Slot.run(root, name)
    if slot.key != found.key:
        raise document.damaged("name", "is not what its key says")
    return HeadState(slot, PartitionHead.decode(found.body, slot, root), found.etag)
