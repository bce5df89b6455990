"""Uploads that living jobs of Hadoop's committers need. No purge aborts them, at any age.

A job's ledger record shows that it is at work, and so do its pending files: the magic committer's
in the store, the staging committers' in their folder. The age of an upload shows nothing: a task
that has committed may wait a day for the job's last task. A file that a magic job's task has not
closed is in no pending file yet. So uploads below the job's destination that began after the job
may be the job's.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ...committer.commit.state.tolerance import unless_denied
from ...committer.format.layout import TableRoot
from ...committer.store.requests import All, ListedUpload, ListObjects, ObjectPage, Step
from ...committer.upkeep.purging.purge_plan import folders_of
from ...committer.upkeep.purging.upload_selection import Name, NeededBy, name_of
from ..hadoop.job_traces import MAGIC_JOB, uuids_in_name
from ..hadoop.staging_dir import StagingFolder
from ..runs.ledger import OpenTries, open_tries
from .leftovers import LeftoverJob, magic_jobs, staged_job
from .liveness import REPORT, JobLiveness, RecoveryOptions, judge


class LivingJobs:
    """The jobs at work in a bucket, read again for each page of uploads.

    :param options: how liveness is judged, and the folder of the staging committers.
    :param within: the folder that is swept, without a slash at its end. Credentials with rights
        only there may not list the folders around it. Then those count as without jobs.
    """

    def __init__(self, bucket: str, options: RecoveryOptions = REPORT, within: str = "") -> None:
        self._bucket = bucket
        self._options = options
        self._within = within

    def __call__(self, uploads: Sequence[ListedUpload]) -> Step[Mapping[Name, NeededBy]]:
        """Find the uploads that a living job may complete, each with the reason.

        Called after the uploads were listed: a run that begins in between has none among them.
        """
        folders = sorted({folder for upload in uploads for folder in folders_of(upload.key)})
        asked = tuple(map(self._tries_of, folders))
        tries = dict(zip(folders, (yield from All(asked)), strict=True))
        spared: dict[Name, NeededBy] = {}
        for upload in uploads:
            folders = folders_of(upload.key)
            at_work = next((it for it in folders if self._is_at_work(tries[it])), None)
            if at_work is not None:
                url = TableRoot(self._bucket, at_work).url
                spared[name_of(upload)] = NeededBy("", f"an S3A run is at work on {url}")
        left = [upload for upload in uploads if name_of(upload) not in spared]
        for job, why in (yield from self._living_jobs(left, tries)):
            # Once for each job, not for each upload: a job may have ten thousand files.
            needed = {*job.listed, *job.running, *job.uuids}
            for upload in left:
                names = (name_of(upload), upload.key, *uuids_in_name(upload.key))
                if not needed.isdisjoint(names):
                    spared[name_of(upload)] = NeededBy(
                        job.uuid, f"of the S3A job {job.uuid}: {why}"
                    )
                elif job.may_write(upload):
                    may_be = NeededBy(job.uuid, f"it may be of the S3A job {job.uuid}: {why}")
                    spared.setdefault(name_of(upload), may_be)
        return spared

    def _living_jobs(
        self, uploads: Sequence[ListedUpload], tries: Mapping[str, OpenTries]
    ) -> Step[list[tuple[LeftoverJob, str]]]:
        """Find the living jobs with pending files in folders above the uploads, with reasons.

        Hadoop's committers also write into folders that readers skip, and into the bucket itself.
        """
        prefixes = sorted({prefix for upload in uploads for prefix in _prefixes_of(upload.key)})
        # One request for each folder, and more only if there is a magic tree in it.
        pages = yield from All(tuple(map(self._trees_in, prefixes)))
        there = [it for it, page in zip(prefixes, pages, strict=True) if page and page.objects]
        now = max((page.date for page in pages if page), default=0.0)
        jobs, _ = yield from magic_jobs([f"{prefix}{MAGIC_JOB}" for prefix in there])
        if self._options.staging is not None and prefixes:
            bucket, ahead = TableRoot(self._bucket, ""), now - time.time()
            traces = StagingFolder(self._options.staging).jobs()
            jobs += [staged_job(bucket, (), trace, ahead) for trace in traces]
        known = OpenTries(
            tuple(one for found in tries.values() for one in found.known),
            next((found.damage for found in tries.values() if found.damage), ""),
        )
        judged = [(job, judge(job, now, known, self._options)) for job in jobs]
        return [(job, it.reason) for job, it in judged if it.state is JobLiveness.LIVE]

    def _tries_of(self, folder: str) -> Step[OpenTries]:
        """Read the open attempts of a destination."""
        asked = open_tries(TableRoot(self._bucket, folder))
        return (yield from unless_denied(asked, OpenTries()) if self._is_around(folder) else asked)

    def _trees_in(self, prefix: str) -> Step[ObjectPage | None]:
        """List the first page of magic trees in a folder; ``None`` if it may not be listed."""

        def page() -> Step[ObjectPage]:
            return (yield from ListObjects(f"{prefix}{MAGIC_JOB}"))

        is_around = self._is_around(prefix.rstrip("/"))
        return (yield from unless_denied(page(), None) if is_around else page())

    def _is_around(self, folder: str) -> bool:
        """Return whether a folder lies around the one that is swept, as the bucket always does."""
        return not folder or self._within.startswith(f"{folder}/")

    def _is_at_work(self, tries: OpenTries) -> bool:
        """Return whether a run is at work. A record that cannot be read may be of one that is."""
        asks = self._options.ask
        return bool(tries.damage) or any(
            one.silent_for < one.patience or asks(one.record) is JobLiveness.LIVE
            for one in tries.known
        )


def _prefixes_of(key: str) -> list[str]:
    """Return the prefixes of all folders above a key, and of the bucket."""
    return [key[: at + 1] for at, letter in enumerate(key) if letter == "/"] + [""]
