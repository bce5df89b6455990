"""Removal of the files that a decision removes."""

from __future__ import annotations

from ..errors import UnfinishedCommitError
from ..format.layout import job_in_key
from ..format.records.partition_decision import StoredFile
from ..store.deletion import denial, remove
from ..store.requests import Absent, All, Head, Step
from .state.context import Context


def remove_listed(context: Context, removals: tuple[StoredFile, ...]) -> Step[None]:
    """Remove listed files, each only if its ETag is still the listed one.

    A file with a job's id in its key is written only once, so it needs no condition if the store
    ignores conditions on deletes. A foreign file is then read before it is removed.

    :raises UnfinishedCommitError: some could not be removed; the job stays open.
    """
    if not removals:
        return
    if not context.facts.conditional_delete:
        removals = yield from _unchanged(removals)
    failed = yield from remove((file.key, file.etag) for file in removals)
    if failed:
        key, cause = next(iter(failed.items()))
        raise UnfinishedCommitError(
            f"The job is committed, and {len(failed)} of the files it replaces could not be "
            f"removed ({cause}). Readers that list still see them; readers through heads do not.",
            key=key,
            remedy="Finish it when the store allows deletes: "
            f"zero-rename recover {context.root.url} --apply",
        ) from denial(key, cause)


def _unchanged(removals: tuple[StoredFile, ...]) -> Step[tuple[StoredFile, ...]]:
    foreign = tuple(file for file in removals if job_in_key(file.key) is None)
    looks = yield from All(tuple(Head(file.key) for file in foreign))
    changed = {
        file.key
        for file, found in zip(foreign, looks, strict=True)
        if isinstance(found, Absent) or found.etag != file.etag
    }
    return tuple(file for file in removals if file.key not in changed)
