"""Orphaned uploads below a table, and how much they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import StoreRefusedError
from ..format.layout import TableRoot
from ..store.requests import Step
from ..upkeep.purging.purge import PurgeAction
from ..upkeep.purging.purge_plan import Whose
from ..upkeep.purging.upload_selection import Selection, UploadsPath
from ..upkeep.purging.upload_sweep import SeenUpload, UploadSweep

_DAY = 24 * 3600.0
#: Uploads that are reported one by one, at the most.
_SHOWN = 50


@dataclass(frozen=True)
class OrphanedUploads:
    """Uploads below a table that cost money and are of no use.

    :param uploads: the first of those that ``count`` counts.
    :param count: how many were made by jobs of this package, holding ``bytes``.
    :param foreign: how many other programs made, over a day old, holding ``foreign_bytes``; another
        program may still need them.
    :param needed: how many others there are, holding ``needed_bytes``: a live or committed job may
        need them, or they are foreign and younger.
    :param refused: why they cannot be listed; ``""`` if they can.
    """

    uploads: tuple[SeenUpload, ...] = ()
    count: int = 0
    bytes: int = 0
    foreign: int = 0
    foreign_bytes: int = 0
    needed: int = 0
    needed_bytes: int = 0
    refused: str = ""


def find_orphaned_uploads(root: TableRoot) -> Step[OrphanedUploads]:
    """Find the uploads that :meth:`.table.Table.orphaned_uploads` reports."""
    shown: list[SeenUpload] = []
    counts, sizes = Counter[str](), Counter[str]()

    def add(page: Sequence[SeenUpload]) -> None:
        for upload in page:
            kind = _kind(upload)
            counts[kind] += 1
            sizes[kind] += upload.bytes or 0
            if kind == "lost" and len(shown) < _SHOWN:
                shown.append(upload)

    path = UploadsPath(root.bucket, f"{root.prefix}/")
    try:
        yield from UploadSweep(path, Selection(), add, sizes=True).run()
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return OrphanedUploads(refused=error.message)
    return OrphanedUploads(
        uploads=tuple(shown),
        count=counts["lost"],
        bytes=sizes["lost"],
        foreign=counts["foreign"],
        foreign_bytes=sizes["foreign"],
        needed=counts["needed"],
        needed_bytes=sizes["needed"],
    )


def _kind(upload: SeenUpload) -> str:
    if upload.whose is Whose.FOREIGN:
        return "foreign" if upload.age >= _DAY else "needed"
    return "lost" if upload.action is PurgeAction.WOULD_ABORT else "needed"
