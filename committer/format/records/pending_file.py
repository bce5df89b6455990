"""Pending files: bytes in the store of which nothing is visible yet, and what a task reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .data_file import Content
from .marks import ENCLOSING, LEFT_OUT, Count


@dataclass(frozen=True)
class PendingFile:
    """A multipart upload whose parts are all there and which is not completed; or, in a Delta
    table, an object that its task has written whole where nobody looks for it.

    :param key: whole key in the bucket.
    :param partition: Hive-escaped partition path, or :data:`.layout.UNPARTITIONED`.
    :param upload_id: the store's id of the upload; ``""`` of an object.
    :param etags: ETags of parts 1…n, without quotes; that of the object, as its writer was told.
    :param size: bytes of the finished object.
    :param rows: rows in the file.
    :param checksum: ``sha256:<hex>`` of the finished object's bytes.
    :param summary: bounds of its first columns, as :mod:`.column_bounds` writes them.
    :param content: as :attr:`.data_file.DataFile.content`.
    """

    key: str
    partition: Annotated[str, ENCLOSING]
    upload_id: str
    etags: tuple[str, ...]
    size: Count
    rows: Count
    checksum: str
    summary: Annotated[str, LEFT_OUT] = ""
    content: Content = ""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is to be completed."""
        return not self.upload_id


@dataclass(frozen=True)
class TaskResult:
    """What one successful task attempt hands to the driver.

    :param job: the job's id; a foreign one is refused before the decision.
    :param task: the task's number, 0…n-1.
    :param attempt: the attempt, unique among the task's attempts.
    :param files: the pending files this attempt left; empty for a task without rows.
    :param retries: requests that its process had to send again meanwhile.
    :param left_out: rows of partitions that a plan has left out.
    """

    job: str
    task: int
    attempt: int
    files: tuple[PendingFile, ...]
    retries: int = 0
    left_out: int = 0

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)
