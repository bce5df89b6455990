"""Files of a partition: those its head names, through decisions and a manifest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..errors import DamagedError
from ..records.data_file import DataFile
from ..records.decision import Decision, PartitionDecision, PartReference
from ..records.head import HeadState, PartitionHead, Slot
from ..records.manifest import Manifest
from ..s3.conditional_put import Written, put_record
from ..s3.requests import LIST_BYTES, Absent, All, Get, Put, Step
from .context import Context
from .decide import Decided, read_decision
from .tolerance import or_damage


def files_of_decision(decision: Decision, partition: str) -> list[DataFile]:
    """The files that a decision gives a partition: adopted ones, then the job's own."""
    changes = (change for change in decision.partitions if change.partition == partition)
    return [file for change in changes for file in _files_of_change(decision.job, change)]


def _files_of_change(job: str, change: PartitionDecision) -> Iterator[DataFile]:
    for file in change.adopted:
        yield DataFile(
            key=file.key,
            partition=change.partition,
            size=file.size,
            rows=-1,
            checksum="",
            job="",
        )
    for file in change.files:
        yield DataFile(
            key=file.key,
            partition=change.partition,
            size=file.size,
            rows=file.rows,
            checksum=file.checksum,
            job=job,
        )


def read_decisions(context: Context, jobs: Iterable[str]) -> Step[dict[str, Decided]]:
    """The commit decisions that heads name, by job.

    :raises DamagedError: a head names a job without a commit decision.
    """
    names = sorted(set(jobs))
    found = yield All(tuple(read_commit(context, job) for job in names))
    return dict(zip(names, found, strict=True))


def read_commit(context: Context, job: str) -> Step[Decided]:
    """The commit decision of a job that a head names.

    :raises DamagedError: it has none.
    """
    decided = yield from read_decision(context, job)
    if decided is None or not decided.decision.is_commit:
        raise DamagedError(
            "A partition's head names a job that has no commit decision.",
            table=context.root.url,
            job=job,
            key=context.root.decision_key(job),
            remedy="Restore the decision from a version or backup, or load the partition again "
            "with mode replace; the table's other partitions are not concerned.",
        )
    return decided


def read_manifest(context: Context, head: PartitionHead) -> Step[tuple[DataFile, ...]]:
    """The folded part of a head's files, without jobs dropped since."""
    if head.manifest is None:
        return ()
    found = yield Get(head.manifest.key, most=LIST_BYTES)
    if isinstance(found, Absent):
        raise DamagedError(
            f"The manifest that the head of {head.name!r} names is missing.",
            table=context.root.url,
            key=head.manifest.key,
            remedy="Restore the object from a version or backup.",
        )
    manifest = Manifest.decode(found.body, found.key, context.root, head.name)
    return tuple(file for file in manifest.files if file.job not in head.dropped)


def assemble(
    head: PartitionHead, folded: tuple[DataFile, ...], decisions: Mapping[str, Decided]
) -> tuple[DataFile, ...]:
    """A partition's files, oldest first, from what its head names."""
    files = list(folded)
    for job in head.decisions:
        # By the index: a job of five thousand partitions is asked about each of them.
        for change in decisions[job].changes.get(head.name, ()):
            files += _files_of_change(job, change)
    return tuple(files)


def files_of_head(
    context: Context, state: HeadState, known: Collection[Decided] = ()
) -> Step[tuple[DataFile, ...]]:
    """All files of one partition.

    :param known: decisions that need not be read.
    """
    own = {decided.decision.job: decided for decided in known}
    others = [job for job in state.head.decisions if job not in own]
    folded, decisions = yield All(
        (read_manifest(context, state.head), read_decisions(context, others))
    )
    return assemble(state.head, folded, {**decisions, **own})


def files_of_heads(
    context: Context, states: Sequence[HeadState]
) -> Step[list[tuple[DataFile, ...] | DamagedError]]:
    """The files of each of several partitions, each decision read once; of one that cannot be
    read, why."""
    named = sorted({job for state in states for job in state.head.decisions})
    folded, found = yield All(
        (
            All(tuple(or_damage(read_manifest(context, state.head)) for state in states)),
            All(tuple(or_damage(read_commit(context, job)) for job in named)),
        )
    )
    decisions = dict(zip(named, found, strict=True))
    files: list[tuple[DataFile, ...] | DamagedError] = []
    for state, manifest in zip(states, folded, strict=True):
        read = (manifest, *(decisions[job] for job in state.head.decisions))
        damage = next((it for it in read if isinstance(it, DamagedError)), None)
        files.append(damage or assemble(state.head, manifest, decisions))
    return files


def fold(
    context: Context, head: PartitionHead, own: Decided
) -> Step[tuple[PartitionHead, str | None]]:
    """Put a head's decisions into one manifest, so that the head stays small for years.

    :param own: the decision that moves the head.
    :returns: the head that names the manifest, and the manifest's key; the head as it was and
        ``None`` where the manifest could not be written, or what the head names cannot be read:
        folding can wait, a commit cannot.
    """
    state = HeadState(Slot.partition(context.root, head.name), head, None)
    files = yield from or_damage(files_of_head(context, state, (own,)))
    if isinstance(files, DamagedError):
        return head, None
    write_id = context.write_id()
    manifest = Manifest(head.name, write_id, files)
    key = context.root.manifest_key(write_id)
    put = Put(key, manifest.encode(), if_none_match=True)
    outcome = yield from put_record(put, write_id)
    if not isinstance(outcome, Written):
        return head, None
    reference = PartReference(key, outcome.etag)
    return replace(head, decisions=(), manifest=reference, dropped=()), key
