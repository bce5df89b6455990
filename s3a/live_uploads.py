"""Uploads that a run at work may still complete: those below a table with a live try on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..committer.layout import TableRoot
from ..committer.maintenance.purge_plan import folders_of
from ..committer.s3.requests import All, ListedUpload, Step
from ..committer.uploads.judge import Name, Spared, name_of
from .recovery.liveness import PATIENCE
from .runs.ledger import OpenTries, open_tries


def spare_live_runs(bucket: str) -> Spared:
    """Leave the uploads of Hadoop's committers below a table that a run is at work on.

    Nothing in a listing tells such a job's uploads from those of a dead one, so all of its table
    are left. The record is the one that ``ZeroRenameSparkSubmitOperator`` keeps beside the table;
    of jobs without one nothing is known, and an upload's age has to do.
    """

    def spared(uploads: Sequence[ListedUpload]) -> Step[Mapping[Name, str]]:
        # Asked anew for every page, after its listing: a run that begins in between has none.
        around = {name_of(upload): _roots(bucket, upload.key) for upload in uploads}
        roots = sorted({root for found in around.values() for root in found}, key=str)
        tries = yield All(tuple(open_tries(root) for root in roots))
        live = {root for root, found in zip(roots, tries, strict=True) if _at_work(found)}
        return {
            name: f"an S3A run is at work on {root.url}"
            for name, found in around.items()
            for root in found
            if root in live
        }

    return spared


def _roots(bucket: str, key: str) -> list[TableRoot]:
    """The folders around a key that S3A jobs may have as their table: no partition's."""
    folders = folders_of(key)
    return [TableRoot(bucket, folder) for folder in folders if "=" not in folder.split("/")[-1]]


def _at_work(tries: OpenTries) -> bool:
    """Also where nobody can tell: a record that cannot be read may be of a run at work."""
    return bool(tries.damage) or any(one.silent_for < PATIENCE for one in tries.known)
