"""Symlink manifests: each partition's files as a list of URLs, which other engines read.

The form is that of Hive's ``org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat``, which Athena,
Trino, Presto, Spark and Redshift Spectrum know: a text with a URL a line and nothing else. So it
holds no version and no write id, by which records are told apart. A list is made of the head that
is read *after* the list that it takes the place of, and written on that one's ETag. A list can come
back with all its bytes (a partition that is emptied twice), and so can its ETag; so whoever has
written one looks at the head again, and writes anew where it has moved.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Mapping

from ...errors import DamagedError, HeadMovedError, UnfinishedCommitError
from ...format.layout import TableRoot
from ...format.records.data_file import DataFile
from ...format.records.head import HeadState, Slot
from ...store.conditional_put import Uncertain, Written, put_record
from ...store.requests import LIST_BYTES, All, Found, Get, Put, Step, etag_of
from .context import Context
from .decide import Decided
from .heads import read_head
from .partition_files import files_of_head, read_commit
from .tolerance import or_damage

logger = logging.getLogger("zero_rename.committer.commit.state.symlink_manifest")
_TRIES = 8


def symlinks_of(root: TableRoot, files: Iterable[DataFile]) -> bytes:
    """A manifest's text; empty for no files."""
    return "".join(f"s3://{root.bucket}/{file.key}\n" for file in files).encode()


def decisions_named(
    context: Context, own: Decided, held: Mapping[Slot, HeadState] | None
) -> Step[tuple[Decided, ...]]:
    """The decisions that the heads of a job's partitions name, and its own, each read once: a job
    of a thousand partitions finds the same ones in all of their heads.

    :param held: the heads, where they are known.
    """
    names = [change.partition for change in own.decision.partitions]
    slots = [Slot.partition(context.root, name) for name in names]
    if held is None:
        states = yield from All(tuple(read_head(context, slot) for slot in slots))
    else:
        states = [held[slot] for slot in slots]
    jobs = {job for state in states for job in state.head.decisions} - {own.decision.job}
    found = yield from All(tuple(or_damage(read_commit(context, job)) for job in sorted(jobs)))
    return (own, *(decided for decided in found if isinstance(decided, Decided)))


def write_symlinks(context: Context, partition: str, known: Collection[Decided] = ()) -> Step[bool]:
    """Make a partition's manifest say what its head says now; whether it had to be written.

    Where that cannot be read, it stays as it is: a commit goes on beside what is damaged.

    :param known: decisions that need not be read.
    :raises UnfinishedCommitError: the store did not say whether it was written.
    """
    slot = Slot.partition(context.root, partition)
    key = context.root.symlink_key(partition)
    cause = "others kept writing it"
    written = False
    for _ in range(_TRIES):
        there = yield from Get(key, most=LIST_BYTES)
        state = yield from read_head(context, slot)
        files = yield from or_damage(files_of_head(context, state, known))
        if isinstance(files, HeadMovedError):
            continue
        if isinstance(files, DamagedError):
            logger.warning("%s: the symlink manifest was not renewed: %s", context.root.url, files)
            return written
        body = symlinks_of(context.root, files)
        if isinstance(there, Found) and there.body == body:
            return written
        etag = etag_of(there)
        put = Put(key, body, if_none_match=etag is None, if_match=etag)
        outcome = yield from put_record(put, _digest(body), _digest)
        if isinstance(outcome, Uncertain):
            cause = outcome.cause
            break
        if isinstance(outcome, Written):
            written = True
            again = yield from read_head(context, slot)
            if again.head.version == state.head.version:
                return True
    raise UnfinishedCommitError(
        f"A partition's symlink manifest could not be written ({cause}); readers of it see the "
        "state before.",
        key=key,
        remedy="Do not run a job again for it; finish what is open and write the manifests: "
        f"zero-rename recover {context.root.url} --apply, then zero-rename catalog manifests "
        f"{context.root.url}",
    )


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
