"""Step 8: sweep the uploads that a job left, and close it when nothing of it is left to do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..errors import UnfinishedCommitError, ZeroRenameError, counted
from ..format.layout import job_in_key
from ..format.records.decision import Decision
from ..store import listing as paging
from ..store.backoff import Backoff
from ..store.requests import AbortUpload, All, Delete, ListedUpload, Step, Unknown
from .state.context import Context
from .state.tolerance import or_error

#: The second listing comes at once: it shows that the first abort sufficed.
_SWEEPS = Backoff(tries=5, first=0.5, at_once=2)


def list_uploads(context: Context) -> Step[list[ListedUpload]]:
    """List the multipart uploads under way below the table.

    If the store's listing by prefix is known to be always empty, the bucket's listing is filtered.
    """
    prefix = f"{context.root.prefix}/"
    asked = prefix if context.facts.uploads_by_prefix else ""
    found = yield from paging.list_uploads(asked)
    return [upload for upload in found if upload.key.startswith(prefix)]


@dataclass(frozen=True)
class Swept:
    """Result of a sweep.

    :param aborted: by job, how many of its uploads were aborted.
    :param errors: by job, why some of its uploads may be left.
    """

    aborted: Mapping[str, int]
    errors: Mapping[str, ZeroRenameError]


def sweep_jobs(
    context: Context, jobs: Collection[str], keep: Collection[tuple[str, str]] = frozenset()
) -> Step[Swept]:
    """Abort the uploads with one of ``jobs`` in their keys, until a listing shows none.

    A single round is not enough: a part that arrives late can leave parts behind.

    :param keep: (key, UploadId) of uploads that a decision names, which are not aborted.
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
    """Abort the uploads of one job, as :func:`sweep_jobs`.

    :returns: how many uploads were aborted.
    :raises UnfinishedCommitError: some are still listed.
    """
    return _number((yield from sweep_jobs(context, (job,))), job)


def sweep_losers(context: Context, decision: Decision) -> Step[None]:
    """Abort uploads of a committed job that its decision does not name: attempts have left them.

    :raises UnfinishedCommitError: some are still there.
    """
    job = decision.job
    _number((yield from sweep_jobs(context, (job,), decision.upload_ids)), job)


def _number(swept: Swept, job: str) -> int:
    if job in swept.errors:
        raise swept.errors[job]
    return swept.aborted[job]


def _still_listed(
    context: Context, job: str, uploads: Sequence[ListedUpload]
) -> UnfinishedCommitError:
    what = counted(len(uploads), "upload of this job is", "uploads of this job are")
    return UnfinishedCommitError(
        f"{what} still listed after {_SWEEPS.tries} rounds of aborting. Nothing of them is "
        "visible. The job stays open.",
        job=job,
        key=uploads[0].key,
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


def close(context: Context, job: str) -> Step[int]:
    """Abort the uploads that an aborted job left, then delete its open record.

    :returns: how many uploads were aborted.
    """
    swept = yield from sweep(context, job)
    yield from delete_open_record(context, job)
    return swept


def delete_open_record(context: Context, job: str) -> Step[None]:
    """Delete a job's open record: nothing of the job is left to do."""
    answer = yield from Delete(context.root.open_key(job))
    if isinstance(answer, Unknown):
        yield from Delete(context.root.open_key(job))
