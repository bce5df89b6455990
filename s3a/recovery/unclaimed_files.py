"""Files that readers see of a job whose pending sets do not name all it wrote.

A staging committer's driver that dies in its job commit leaves some files complete and the
uploads of the others; a job that committed well may leave the upload of a task attempt that
lost. The names of both carry the job's UUID, and nothing in the store tells them apart. Of a
magic job, a pending set that cannot be read may have named files that are complete; they carry
the UUID of Spark's write, as its other files do. What is known by its name alone is told, and
never removed: names are easily made.
"""

from __future__ import annotations

from ...committer.s3.listing import list_objects
from ...committer.s3.requests import All, Step
from ..hadoop.magic_paths import is_magic, uuids_in_name
from .leftovers import Kind, LeftoverJob

#: More folders than this are not looked into.
_FOLDERS = 100


def visible_files(job: LeftoverJob) -> Step[tuple[str, ...]]:
    """Keys of complete files that no readable pending set of the job names and that carry the
    UUID of its files: of uploads alone in those uploads' folders, of a magic job anywhere below
    its destination, a request per thousand keys.

    Not of a task attempt that lost: where every upload has a complete file at its key, another
    attempt of each task won, and the answer is empty.
    """
    if job.kind is Kind.MAGIC:
        if all(one.read is not None for one in job.sets):
            return ()
        named = {commit.key for commit in job.commits}
        keys = named | {upload.key for upload in job.uploads} | set(job.running)
        uuids = {uuid for key in keys for uuid in uuids_in_name(key)}
        if not uuids:
            return ()
        listing = yield from list_objects(f"{job.destination}/")
        found = {key for key in listing.keys if not is_magic(key)} - named
        return tuple(sorted(key for key in found if uuids & set(uuids_in_name(key))))
    keys = {upload.key for upload in job.uploads}
    folders = sorted({key.rpartition("/")[0] for key in keys}) if job.uuid else []
    listed = yield All(
        tuple(list_objects(f"{folder}/", direct=True) for folder in folders[:_FOLDERS])
    )
    found = {key for one in listed for key in one.keys if job.uuid in uuids_in_name(key)}
    return () if keys <= found else tuple(sorted(found))
