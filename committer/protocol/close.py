"""Step 8: close a job when nothing of it is left to do, and sweep the uploads it left."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import UnfinishedCommitError
from ..layout import job_in_key
from ..s3 import listing as paging
from ..s3.backoff import Backoff
from ..s3.requests import AbortUpload, All, Delete, ListedUpload, Step, Unknown
from ..state.context import Context

#: The second listing comes at once: it shows that the first abort sufficed.
_SWEEPS = Backoff(tries=5, first=0.5, at_once=2)


def list_uploads(context: Context) -> Step[list[ListedUpload]]:
    """The multipart uploads under way below the table.

    Where the store's listing by prefix is known to be empty always, the bucket's is filtered.
    """
    prefix = f"{context.root.prefix}/"
    asked = prefix if context.facts.uploads_by_prefix else ""
    found = yield from paging.list_uploads(asked)
    return [upload for upload in found if upload.key.startswith(prefix)]


def sweep(context: Context, job: str, keep: Collection[tuple[str, str]] = frozenset()) -> Step[int]:
    """Abort the uploads with ``job`` in their key, but those in ``keep``, until a listing shows
    none: a part that arrives late can leave parts behind.

    :param keep: (key, UploadId) of uploads that the decision names.
    :returns: how many uploads were aborted.
    :raises UnfinishedCommitError: some are still listed. A store that lists none hides them.
    """
    aborted: set[tuple[str, str]] = set()
    for attempt in _SWEEPS.attempts():
        yield from _SWEEPS.pause(attempt)
        uploads = yield from list_uploads(context)
        left = [
            upload
            for upload in uploads
            if job_in_key(upload.key) == job and (upload.key, upload.upload_id) not in keep
        ]
        if not left:
            return len(aborted)
        yield All(tuple(_abort(upload.key, upload.upload_id) for upload in left))
        aborted |= {(upload.key, upload.upload_id) for upload in left}
    raise UnfinishedCommitError(
        f"{len(left)} uploads of this job are still listed after {_SWEEPS.tries} rounds of "
        "aborting them. Nothing of them is visible. The job stays open.",
        table=context.root.url,
        job=job,
        key=left[0].key,
        remedy=f"Run recovery later: zero-rename recover {context.root.url} --apply",
    )


def _abort(key: str, upload_id: str) -> Step[None]:
    answer = yield AbortUpload(key, upload_id)
    if isinstance(answer, Unknown):
        yield AbortUpload(key, upload_id)


def close(context: Context, job: str, keep: Collection[tuple[str, str]] = frozenset()) -> Step[int]:
    """Sweep, then delete the open record.

    :returns: how many uploads were aborted.
    """
    swept = yield from sweep(context, job, keep)
    yield from delete_open_record(context, job)
    return swept


def delete_open_record(context: Context, job: str) -> Step[None]:
    """Say that nothing of a job is left to do."""
    answer = yield Delete(context.root.open_key(job))
    if isinstance(answer, Unknown):
        yield Delete(context.root.open_key(job))
