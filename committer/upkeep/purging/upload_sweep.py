"""Sweep over the uploads below a path, page by page: reports their owners and sizes, aborts them.

Only counts are kept of a page, so a hundred thousand uploads take no more memory than a thousand.
Uploads of jobs are judged as in a purge (:mod:`.upkeep.purging.purge_plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...commit.state.context import Context
from ...format.layout import TableRoot
from ...store.deletion import abort_until_gone, is_denied
from ...store.fast_root import is_fast
from ...store.requests import All, ListedUpload, ListUploads, PartsPage, ServerName, Step
from ...store.upload_parts import parts_held
from ..recovery import Recovered
from .purge import PurgeAction, became_of
from .purge_plan import Judged, Whose
from .upload_judge import UploadJudge, job_of_upload
from .upload_selection import Selection, Spared, UploadsPath, spare_none

#: A store that lists uploads by prefix correctly. Others may show none, as MinIO does.
_LISTS_BY_PREFIX = "AmazonS3"
#: How often a path is swept at most. A sweep that finds nothing to abort is the last.
_SWEEPS = 3


@dataclass(frozen=True)
class SeenUpload:
    """An upload, and the action on it, done or planned.

    :param initiated: when it was begun, in Unix seconds; ``age``: its age in seconds; both by the
        store's clock.
    :param table: the root of the table that it lies in; ``None``: in no table of this package.
    :param job: the id of this package's job, or the UUID of the S3A job that needs it.
    :param parts: the number of its parts; ``bytes``: their size. ``None`` if they were not
        requested.
    :param is_denied: the store refused the action for want of a right: repeating does not help.
    """

    key: str
    upload_id: str
    initiated: float
    age: float
    table: str | None
    job: str | None
    whose: Whose
    action: PurgeAction
    reason: str
    parts: int | None = None
    bytes: int | None = None
    is_denied: bool = False


class UploadSweep:
    """Sweep that reports the uploads below a path, and aborts those that no job will complete.

    :param emit: called with the uploads of each page, in the order of the listing.
    :param apply: abort uploads; ``False`` only reports which.
    :param sizes: measure each upload: one request for each, and one more for a thousand parts.
    :param spared: finds foreign uploads that are kept, each with the reason.
    :param context: makes the context for a table that uploads lie in.
    """

    def __init__(
        self,
        path: UploadsPath,
        selection: Selection,
        emit: Callable[[Sequence[SeenUpload]], None],
        *,
        apply: bool = False,
        sizes: bool = False,
        spared: Spared = spare_none,
        context: Callable[[TableRoot], Context] = Context,
    ) -> None:
        self._path = path
        self._selection = selection
        self._emit = emit
        self._apply = apply
        self._sizes = sizes
        self._judge = UploadJudge(path, selection, apply, spared, context)

    def run(self) -> Step[list[Recovered]]:
        """Carry out the sweep. It may be run again at any time, and goes on where it was.

        :returns: the outcomes of dead jobs that were fenced, in tables that lie completely below
            the path: their other uploads, claims and open records are removed, too.
        """
        yield from self._judge.look_at_path()
        asked = yield from self._prefix_to_ask()
        for sweep in range(_SWEEPS if self._apply else 1):
            if not (yield from self._pass(asked, only_doomed=sweep > 0)):
                break
        return (yield from self._judge.settled())

    def _prefix_to_ask(self) -> Step[str]:
        """Return the prefix to list: the path's; or ``""``, the whole bucket, if the store shows
        nothing for a prefix."""
        prefix = self._path.prefix
        # All uploads of a data root's bucket are listed in any case, and then selected.
        if not prefix or is_fast(prefix):
            return prefix
        page = yield from ListUploads(prefix)
        if page.uploads or (yield from ServerName()) == _LISTS_BY_PREFIX:
            return prefix
        return ""

    def _pass(self, asked: str, only_doomed: bool) -> Step[int]:
        """Sweep once over the path.

        :param only_doomed: report only uploads that are to be aborted.
        :returns: how many were to be aborted.
        """
        marker, doomed = None, 0
        while True:
            page = yield from ListUploads(asked, marker)
            chosen = [upload for upload in page.uploads if self._is_meant(upload, page.date)]
            judged = yield from self._judge.judged(chosen)
            if self._selection.whose:
                judged = [it for it in judged if it[1].whose in self._selection.whose]
            if only_doomed:
                judged = [it for it in judged if it[1].abort]
            listed = partial(_listed_until, asked, marker)
            doomed += yield from self._treat(judged, page.date, listed)
            marker = page.marker
            if marker is None:
                return doomed

    def _is_meant(self, upload: ListedUpload, date: float) -> bool:
        jobs = self._selection.jobs
        return (
            upload.key.startswith(self._path.prefix)
            and _age(upload, date) >= self._selection.older_than
            and (not jobs or job_of_upload(upload.key) in jobs)
        )

    def _treat(
        self,
        judged: Sequence[tuple[str | None, Judged]],
        date: float,
        listed: Callable[[str], Step[list[ListedUpload]]],
    ) -> Step[int]:
        doomed = [it.upload for _, it in judged if it.abort]
        parts: tuple[PartsPage | None, ...] = (None,) * len(judged)
        if self._sizes:
            uploads = (it.upload for _, it in judged)
            parts = yield from All(tuple(parts_held(it.key, it.upload_id) for it in uploads))
        left: Mapping[ListedUpload, str] = {}
        if self._apply and doomed:
            last = max(upload.key for upload in doomed)
            left = yield from abort_until_gone(doomed, partial(listed, last))
        self._emit(
            [
                self._seen(table, it, held, date, left.get(it.upload))
                for (table, it), held in zip(judged, parts, strict=True)
            ]
        )
        return len(doomed)

    def _seen(
        self,
        table: str | None,
        it: Judged,
        held: PartsPage | None,
        date: float,
        failure: str | None,
    ) -> SeenUpload:
        action, reason = became_of(it, self._apply, failure, "it was aborted")
        count, size = (None, None) if held is None else (held.count, held.size)
        upload = it.upload
        return SeenUpload(
            upload.key,
            upload.upload_id,
            upload.initiated,
            _age(upload, date),
            table,
            it.job,
            it.whose,
            action,
            reason,
            count,
            size,
            is_denied=failure is not None and is_denied(failure),
        )


def _age(upload: ListedUpload, date: float) -> float:
    return max(0.0, date - upload.initiated)


def _listed_until(
    asked: str, marker: tuple[str, str] | None, last: str
) -> Step[list[ListedUpload]]:
    """List the uploads after a marker, up to the key ``last``."""
    found: list[ListedUpload] = []
    while True:
        page = yield from ListUploads(asked, marker)
        found += (upload for upload in page.uploads if upload.key <= last)
        marker = page.marker
        if marker is None or (page.uploads and page.uploads[-1].key > last):
            return found
