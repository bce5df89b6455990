"""Files of a partition, which its head names through decisions and manifests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import DamagedError, HeadMovedError
from ...format.records.data_file import DataFile
from ...format.records.decision import Decision
from ...format.records.head import HeadState, NamedManifest, PartitionHead, Slot
from ...format.records.manifest import Manifest, write_id_of_manifest
from ...format.records.partition_decision import PartitionDecision
from ...store.conditional_put import Written, put_record
from ...store.requests import LIST_BYTES, Absent, All, Get, Put, Step
from .context import Context
from .decide import Decided, read_decision
from .heads import head_moved, read_head
from .tolerance import or_damage, undamaged


def files_of_decision(decision: Decision, partition: str) -> list[DataFile]:
    """Return the files that a decision gives a partition: adopted ones, then the job's own."""
    changes = (change for change in decision.partitions if change.partition == partition)
    return [file for change in changes for file in _files_of_change(decision.job, change)]


def _files_of_change(job: str, change: PartitionDecision) -> Iterator[DataFile]:
    for file in change.adopted:
        yield DataFile(
            key=file.key, partition=change.partition, size=file.size, rows=-1, checksum="", job=""
        )
    for file in change.files:
        yield DataFile(
            key=file.key,
            partition=change.partition,
            size=file.size,
            rows=file.rows,
            checksum=file.checksum,
            job=job,
            summary=file.summary,
            content=file.content,
        )


def read_decisions(context: Context, jobs: Iterable[str]) -> Step[dict[str, Decided]]:
    """Read the commit decisions that heads name, by job.

    :raises DamagedError: a head names a job without a commit decision.
    """
    names = sorted(set(jobs))
    found = yield from All(tuple(read_commit(context, job) for job in names))
    return dict(zip(names, found, strict=True))


def read_commit(context: Context, job: str) -> Step[Decided]:
    """Read the commit decision of a job that a head names.

    :raises DamagedError: it has none.
    """
    decided = yield from read_decision(context, job)
    if decided is None or not decided.decision.is_commit or decided.decision.condensed:
        raise DamagedError(
            "A partition's head names a job that has no commit decision with files.",
            job=job,
            key=context.root.decision_key(job),
            remedy="Restore the decision from a version or backup, or load the partition again "
            "with mode replace; the table's other partitions are not concerned.",
        )
    return decided


def read_manifests(
    context: Context, head: PartitionHead, manifests: Sequence[NamedManifest] | None = None
) -> Step[tuple[DataFile, ...]]:
    """Read the files of a head's manifests, without those of jobs dropped since.

    :param manifests: some of the head's; ``None`` for all.
    """
    wanted = head.manifests if manifests is None else manifests
    lists = yield from All(tuple(_read_manifest(context, head.name, it.key) for it in wanted))
    return tuple(file for files in lists for file in files if file.job not in head.dropped)


def _read_manifest(context: Context, partition: str, key: str) -> Step[tuple[DataFile, ...]]:
    found = yield from Get(key, most=LIST_BYTES)
    if isinstance(found, Absent):
        raise DamagedError(
            f"The manifest that the head of {partition!r} names is missing.",
            key=key,
            remedy="Restore the object from a version or backup.",
        )
    return Manifest.decode(found.body, found.key, context.root, partition).files


def assemble(
    head: PartitionHead,
    folded: tuple[DataFile, ...],
    decisions: Mapping[str, Decided],
    known: Mapping[str, Sequence[DataFile]] | None = None,
) -> tuple[DataFile, ...]:
    """Return a partition's files, oldest first, from the records that its head names.

    :param folded: the files of its manifests.
    :param known: files of jobs whose decisions were not read, by job.
    """
    known = known or {}
    files = list(folded)
    for job in head.decisions:
        if job in known:
            files += known[job]
            continue
        # By the mapping: a job of five thousand partitions is looked up for each of them.
        for change in decisions[job].changes.get(head.name, ()):
            files += _files_of_change(job, change)
    return tuple(files)


def _by_job(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    """Group a partition's files by the job that wrote them; all files of a job are there.

    Empty if some files were adopted, since they do not say which job adopted them.
    """
    found: dict[str, list[DataFile]] = {}
    for file in files:
        found.setdefault(file.job, []).append(file)
    return {} if "" in found else found


def files_of_head(
    context: Context, state: HeadState, known: Collection[Decided] = ()
) -> Step[tuple[DataFile, ...]]:
    """Read all files of one partition.

    :param known: decisions that need not be read.
    :raises HeadMovedError: a record that the head names is missing, since the head has moved.
    """
    named = yield from files_of_heads(context, (state,), held=known)
    return undamaged(named.files[0])


def files_now(context: Context, slot: Slot) -> Step[tuple[DataFile, ...]]:
    """Read all files of one partition, by its head as it is now."""
    while True:
        state = yield from read_head(context, slot)
        try:
            return (yield from files_of_head(context, state))
        except HeadMovedError:
            continue


@dataclass(frozen=True)
class NamedFiles:
    """Files that heads name.

    :param files: the files of each head, or why it cannot be read: :class:`HeadMovedError` if it is
        to be read again.
    :param decisions: those that were read.
    """

    files: list[tuple[DataFile, ...] | DamagedError]
    decisions: tuple[Decided, ...]


def files_of_heads(
    context: Context,
    states: Sequence[HeadState],
    before: Mapping[str, Iterable[DataFile]] | None = None,
    held: Collection[Decided] = (),
) -> Step[NamedFiles]:
    """Read the files of several partitions, each decision only once.

    :param before: by partition, the files that heads named in a former state. The decisions behind
        these files need not be read.
    :param held: decisions that need not be read.
    """
    before = before or {}
    own = {decided.decision.job: decided for decided in held}
    known = [_by_job(before.get(state.slot.name, ())) for state in states]
    asked = [
        [job for job in state.head.decisions if job not in of_before]
        for state, of_before in zip(states, known, strict=True)
    ]
    named = sorted({job for jobs in asked for job in jobs} - own.keys())
    folded, found = yield from All(
        (
            All(tuple(or_damage(read_manifests(context, state.head)) for state in states)),
            All(tuple(or_damage(read_commit(context, job)) for job in named)),
        )
    )
    decisions = {**own, **dict(zip(named, found, strict=True))}
    files: list[tuple[DataFile, ...] | DamagedError] = []
    for state, manifest, of_before, jobs in zip(states, folded, known, asked, strict=True):
        try:
            read = {job: undamaged(decisions[job]) for job in jobs}
            files.append(assemble(state.head, undamaged(manifest), read, of_before))
        except DamagedError as damage:
            files.append((yield from _moved_or(context, state, damage)))
    return NamedFiles(files, tuple(it for it in found if isinstance(it, Decided)))


def _moved_or(context: Context, state: HeadState, damage: DamagedError) -> Step[DamagedError]:
    """Return the error for a head whose records cannot be read.

    If the head has moved since, that is no damage: a manifest was folded into another, or a
    decision was condensed.
    """
    now = yield from or_damage(read_head(context, state.slot))
    if isinstance(now, DamagedError) or now.etag == state.etag:
        return damage
    return head_moved(state.slot)


def fold(
    context: Context,
    state: HeadState,
    head: PartitionHead,
    jobs: Collection[str],
    known: Collection[Decided] = (),
) -> Step[tuple[PartitionHead, str | None]]:
    """Fold a head's oldest decisions into a manifest, so that the head stays small.

    Manifests of at most twice as many files are merged into it, as in a log-structured merge tree.
    So a head names few manifests, each of at most half as many files as the one before it, and a
    file is listed again only when its list grows by half.

    :param state: the head that is there, for which the new one is to be swapped.
    :param head: the head that is to name the manifest.
    :param jobs: the oldest of its decisions.
    :param known: decisions that need not be read.
    :returns: the head that names the manifest, and the manifest's key; or the head as it was and
        ``None``, if the manifest could not be written, or records that the head names cannot be
        read: folding can wait, a commit cannot.
    """
    own = {decided.decision.job: decided for decided in known}
    asked = [job for job in jobs if job not in own]
    decisions = yield from or_damage(read_decisions(context, asked))
    if isinstance(decisions, DamagedError):
        return head, None
    oldest = replace(head, decisions=tuple(job for job in head.decisions if job in jobs))
    young = assemble(oldest, (), {**decisions, **own})
    kept, merged = _merged(head, len(young), context.limits.merged_below)
    old = yield from or_damage(read_manifests(context, head, merged))
    if isinstance(old, DamagedError):
        return head, None
    write_id = context.write_id()
    files = (*old, *young)
    manifest = Manifest(head.name, write_id, files, follows=state.etag)
    key = context.root.manifest_key(write_id)
    put = Put(key, manifest.encode(), if_none_match=True)
    outcome = yield from put_record(put, write_id, write_id_of_manifest)
    if not isinstance(outcome, Written):
        return head, None
    named = (*kept, NamedManifest(key, outcome.etag, len(files)))
    rest = tuple(job for job in head.decisions if job not in jobs)
    return head.naming(named, rest), key


def _merged(
    head: PartitionHead, files: int, below: int
) -> tuple[tuple[NamedManifest, ...], tuple[NamedManifest, ...]]:
    """Split a head's manifests into those to keep and those to merge with so many new files."""
    manifests = head.manifests
    if head.dropped or not all(manifest.files for manifest in manifests):
        return (), manifests
    number = len(manifests)
    while number and manifests[number - 1].files <= below * files:
        number -= 1
        files += manifests[number].files
    return manifests[:number], manifests[number:]
