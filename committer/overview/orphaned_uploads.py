"""Orphaned uploads below a table, and what they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import StoreRefusedError
from ..format.layout import TableRoot
from ..store.requests import Step
from ..upkeep.purge import PurgeAction
from ..upkeep.purge_plan import Whose
from ..upkeep.upload_selection import Selection, UploadsPath
from ..upkeep.upload_sweep import SeenUpload, UploadSweep

_DAY = 24 * 3600.0
#: Uploads that are told one by one.
_SHOWN = 50


@dataclass(frozen=True)
class OrphanedUploads:
    """Uploads below a table that are paid for and of use to nobody.

    :param uploads: the first of them.
    :param count: of jobs of this table, holding ``bytes``.
    :param foreign: of none that this package made, over a day old, holding ``foreign_bytes``;
        somebody else may still need them.
    :param needed: those that a live or committed job needs, holding ``needed_bytes``.
    :param refused: why they cannot be told; ``""`` where they can.
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
    """As :meth:`.table.Table.orphaned_uploads`."""
    found = _Counted()
    path = UploadsPath(root.bucket, f"{root.prefix}/")
    try:
        yield from UploadSweep(path, Selection(), found.add, sizes=True).run()
    except StoreRefusedError as error:
        if not error.lacks_right:
            raise
        return OrphanedUploads(refused=error.message)
    return found.total()


class _Counted:
    def __init__(self) -> None:
        self._lost: list[SeenUpload] = []
        self._sums = {"lost": [0, 0], "foreign": [0, 0], "needed": [0, 0]}

    def add(self, page: Sequence[SeenUpload]) -> None:
        for upload in page:
            sums = self._sums[self._kind(upload)]
            sums[0] += 1
            sums[1] += upload.bytes or 0
            if upload.action is PurgeAction.WOULD_ABORT and len(self._lost) < _SHOWN:
                self._lost.append(upload)

    @staticmethod
    def _kind(upload: SeenUpload) -> str:
        if upload.whose is Whose.FOREIGN:
            return "foreign" if upload.age >= _DAY else "needed"
        return "lost" if upload.action is PurgeAction.WOULD_ABORT else "needed"

    def total(self) -> OrphanedUploads:
        lost, foreign, needed = self._sums["lost"], self._sums["foreign"], self._sums["needed"]
        return OrphanedUploads(
            uploads=tuple(self._lost),
            count=lost[0],
            bytes=lost[1],
            foreign=foreign[0],
            foreign_bytes=foreign[1],
            needed=needed[0],
            needed_bytes=needed[1],
        )
