"""The write that verification holds the store to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Expectation:
    """One write, which is one job of a committer.

    :param committer: ``magic``, ``directory``, ``partitioned`` or ``classic``.
    :param uuid: handed in as ``fs.s3a.committer.uuid``; ``None`` where the application writes
        more than once under UUIDs of Spark's own: then any marker that is new enough is its.
    :param since_ms: when the job began, milliseconds by the *store's* clock (the ``Date`` of an
        answer): a marker that the store wrote in an earlier second is another job's.
    :param rows: how many Spark wrote; ``None`` where nobody counted them.
    :param partitions: the only ones that may have received rows; none where any may.
    """

    committer: str
    uuid: str | None
    since_ms: int
    rows: int | None = None
    partitions: tuple[str, ...] = ()
