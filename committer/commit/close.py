"""Step 8: close a job when nothing of it is left to do, and sweep the uploads it left."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import UnfinishedCommitError, ZeroRenameError, counted
from ..format.job_spec import Readers
from ..format.layout import job_in_key
from ..format.records.decision import Decision
from ..store import listing as paging
from ..store.backoff import Backoff
from ..store.deletion import remove
from ..store.requests import AbortUpload, All, Delete, ListedUpload, Step, Unknown
from ..store.upload_parts import SMALLEST_PART
from .state.context import Context
from .state.tolerance import or_error, unless_gone

#: The second listing comes at once: it shows that the first abort sufficed.
_SWEEPS = Backoff(tries=5, first=0.5, at_once=2)


def list_uploads(context: Context) -> Step[list[ListedUpload]]:
    """The multipart uploads under way below the table.

    Where the store's listing by prefix is known to be empty always, the bucket's is filtered.
    """
    prefix = f"{context.root.prefix}/"
    asked = prefix if context.facts.uploads_by_prefix else ""
    found = yield from paging.list_uploads(asked)
    uploads = [upload for upload in found if upload.key.startswith(prefix)]
    for folder in context.fast_folders:
        # Those of a root that cannot be reached are looked for when it can: by the next purge.
        uploads += yield from unless_gone(paging.list_uploads(folder), [])
    return uploads


@dataclass(frozen=True)
class Swept:
    """What a sweep did.

    :param aborted: by job, how many of its uploads were aborted.
    :param errors: by job, why some of them may be left.
    """

    aborted: Mapping[str, int]
    errors: Mapping[str, ZeroRenameError]


def sweep_jobs(context: Context, jobs: Collection[str]) -> Step[Swept]:
    """Abort the uploads of aborted jobs, and remove the files that their tasks have written whole,
    where the table's readers go by heads.

    :raises ZeroRenameError: the uploads cannot be listed.
    """
    swept = yield from _sweep_uploads(context, jobs)
    if context.readers is Readers.LISTING:
        return swept
    found = yield from All(tuple(or_error(sweep_data(context, job)) for job in jobs))
    errors = {j: it for j, it in zip(jobs, found, strict=True) if isinstance(it, ZeroRenameError)}
    return replace(swept, errors={**errors, **swept.errors})


def _sweep_uploads(
    context: Context, jobs: Collection[str], keep: Collection[tuple[str, str]] = frozenset()
) -> Step[Swept]:
    """Abort the uploads with one of ``jobs`` in their keys, but those in ``keep``, until a listing
    shows none: a part that arrives late can leave parts behind.

    :param keep: (key, UploadId) of uploads that a decision names.
    :raises ZeroRenameError: the uploads cannot be listed. A store that lists none hides them.
    """
    aborted: dict[str, set[tuple[str, str]]] = {job: set() for job in jobs}
    errors: dict[str, ZeroRenameError] = {}
    for attempt in _SWEEPS.attempts():
        yield from _SWEEPS.pause(attempt)
        left: dict[str, list[ListedUpload]] = {}
        for upload in (yield from list_uploads(context)):
            job = job_in_key(upload.key) or ""
            if job in aborted and job not in errors and _name(upload) not in keep:
                left.setdefault(job, []).append(upload)
        if not left:
            break
        met = yield from All(tuple(or_error(_abort_all(its)) for its in left.values()))
        last = attempt == _SWEEPS.tries - 1
        for (job, its), error in zip(left.items(), met, strict=True):
            aborted[job].update(map(_name, its))
            if error is not None or last:
                errors[job] = error or _still_listed(context, job, its)
    return Swept({job: len(names) for job, names in aborted.items()}, errors)


def sweep(context: Context, job: str) -> Step[int]:
    """:func:`sweep_jobs` of one job.

    :returns: how many uploads were aborted.
    :raises UnfinishedCommitError: some are still listed.
    """
    return _number((yield from sweep_jobs(context, (job,))), job)


def sweep_losers(context: Context, decision: Decision, sole: bool = False) -> Step[None]:
    """Sweep what attempts of a committed job have left that its decision does not name: uploads.
    Where its readers go by heads, files that are whole; and uploads where a file of the job was
    large enough for one, so that another attempt at it may have left its own.

    :param sole: nothing was written but what the decision names.
    :raises UnfinishedCommitError: some are still there.
    """
    if sole:
        return
    job, keep = decision.job, decision.upload_ids
    if decision.readers is Readers.HEADS:
        yield from sweep_data(context, job, {key for key, _ in keep})
        if all(file.size < SMALLEST_PART for file in decision.files):
            return
    _number((yield from _sweep_uploads(context, (job,), keep)), job)


def _number(swept: Swept, job: str) -> int:
    if job in swept.errors:
        raise swept.errors[job]
    return swept.aborted[job]


def _still_listed(
    context: Context, job: str, uploads: Sequence[ListedUpload]
) -> UnfinishedCommitError:
    what = counted(len(uploads), "upload of this job is", "uploads of this job are")
    what = f"{what} still listed after {_SWEEPS.tries} rounds of aborting"
    return _left(context, job, what, uploads[0].key)


def _left(context: Context, job: str, what: str, key: str) -> UnfinishedCommitError:
    return UnfinishedCommitError(
        f"{what}. Nothing of them is visible. The job stays open.",
        job=job,
        key=key,
        remedy=f"Run recovery later: zero-rename recover {context.root.url} --apply",
    )


def _name(upload: ListedUpload) -> tuple[str, str]:
    return upload.key, upload.upload_id


def _abort_all(uploads: Sequence[ListedUpload]) -> Step[None]:
    yield from All(tuple(_abort(upload.key, upload.upload_id) for upload in uploads))


def _abort(key: str, upload_id: str) -> Step[None]:
    answer = yield from AbortUpload(key, upload_id)
    if isinstance(answer, Unknown):
        yield from AbortUpload(key, upload_id)


def sweep_data(context: Context, job: str, keep: Collection[str] = frozenset()) -> Step[None]:
    """Remove the files that attempts of a decided job have written whole and that its decision
    does not name. One that comes after this look is seen by nobody, and goes with a purge.

    :param keep: keys that the decision names.
    :raises UnfinishedCommitError: some may still be there; the job stays open.
    """
    listings = tuple(
        unless_gone(paging.list_objects(folder), None) for folder in context.data_folders(job)
    )
    found = yield from All(listings)
    there = [key for listing in found if listing is not None for key in listing.keys]
    lost = [key for key in there if key not in keep]
    failed = yield from remove((key, None) for key in lost)
    if failed:
        key, cause = next(iter(failed.items()))
        what = f"{counted(len(failed), 'file')} of attempts of this job could not be removed"
        raise _left(context, job, f"{what} ({cause})", key)


def close(context: Context, job: str) -> Step[int]:
    """Sweep what is left of an aborted job, then delete the open record.

    :returns: how many uploads were aborted.
    """
    swept = yield from sweep(context, job)
    yield from delete_open_record(context, job)
    return swept


def delete_open_record(context: Context, job: str) -> Step[None]:
    """Say that nothing of a job is left to do."""
    answer = yield from Delete(context.root.open_key(job))
    if isinstance(answer, Unknown):
        yield from Delete(context.root.open_key(job))
