"""Pending files, not visible to readers yet, and the task results that name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .data_file import Content
from .marks import ENCLOSING, LEFT_OUT, Count


@dataclass(frozen=True)
class PendingFile:
    """A file that its task has written, not yet visible to readers.

    It is a multipart upload with all its parts, which is not completed yet. In a Delta table it is
    a whole object that no entry of the log names yet.

    :param key: whole key in the bucket.
    :param partition: Hive-escaped partition path, or :data:`.layout.UNPARTITIONED`.
    :param upload_id: the store's id of the upload; ``""`` for a whole object.
    :param etags: ETags of parts 1…n, without quotes; for a whole object its ETag, from the answer
        to its PUT.
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
        """True for a whole object: there is no upload to complete."""
        return not self.upload_id


@dataclass(frozen=True)
class TaskResult:
    """The result that one successful task attempt sends to the driver.

    :param job: the job's id; a result with another job's id is refused before the decision.
    :param task: the task's number, 0…n-1.
    :param attempt: the attempt, unique among the task's attempts.
    :param files: the pending files of this attempt; empty for a task without rows.
    :param retries: number of requests that its process sent again during the attempt.
    :param left_out: number of rows that were not written, since a plan left out their partitions.
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
