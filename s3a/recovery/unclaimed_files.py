"""Files that readers see of a job whose pending sets do not name all it wrote.

A staging committer's driver that dies in its job commit leaves some files complete and the
uploads of the others; a job that committed well may leave the upload of a task attempt that
lost. The names of both carry the job's UUID, and nothing in the store tells them apart. Of a
job with metadata, a pending set that cannot be read may have named files that are complete; they
carry the UUID of Spark's write, as its other files do. What is known by its name alone is told,
and never removed: names are easily made.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...committer.s3.listing import list_objects
from ...committer.s3.requests import All, Step
from ..hadoop.magic_paths import is_magic, uuids_in_name
from .leftover_job import Kind, LeftoverJob
from .marker import DestinationMarker

#: More folders than this are not asked one by one: the destination is listed as a whole.
_FOLDERS = 100


@dataclass(frozen=True)
class Unclaimed:
    """Keys of complete files that no readable pending set names and that carry a job's UUID.

    :param is_committed: they are none of these: the destination's ``_SUCCESS`` is the job's or
        names some of them, or every upload that the job left has a complete file at its key.
        Other attempts of its tasks won.
    :param is_unknown: nothing that can be read says what its files are called.
    """

    keys: tuple[str, ...] = ()
    is_committed: bool = False
    is_unknown: bool = False

    @property
    def told(self) -> str:
        """What they are, to be followed by an object."""
        return f"{len(self.keys)} complete files, such as {min(self.keys, default='')!r}, carry"


def unclaimed_files(job: LeftoverJob, marker: DestinationMarker) -> Step[Unclaimed]:
    """Look for them: of uploads alone in those uploads' folders, of a job some of whose pending
    sets cannot be read anywhere below its destination; a request per thousand keys."""
    named = {commit.key for commit in job.commits}
    alone = {upload.key for upload in job.uploads}
    uuids = {job.uuid.lower()} - {""}
    if job.kind is Kind.UPLOADS:
        if not uuids:
            return Unclaimed()
    elif all(one.read is not None for one in job.sets):
        return Unclaimed()
    else:
        uuids = uuids if job.kind is Kind.STAGING else set()
        uuids |= {uuid for key in (named | alone).union(job.running) for uuid in uuids_in_name(key)}
        if not uuids:
            return Unclaimed(is_unknown=True)

    def is_its(key: str) -> bool:
        return not is_magic(key) and not uuids.isdisjoint(uuids_in_name(key))

    places = {f"{key.rpartition('/')[0]}/" for key in alone}
    direct = job.kind is Kind.UPLOADS and len(places) <= _FOLDERS
    listed = yield All(
        tuple(
            list_objects(place, direct, lambda item: is_its(item.key))
            for place in (sorted(places) if direct else [f"{job.destination}/"])
        )
    )
    found = {key for one in listed for key in one.keys}
    if job.kind is Kind.UPLOADS and (
        alone <= found or marker.job == job.uuid or marker.keys & found
    ):
        return Unclaimed(is_committed=True)
    return Unclaimed(tuple(sorted(found - named)))
