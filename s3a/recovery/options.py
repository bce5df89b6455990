"""Options of a recovery: what it may do, and what its caller knows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from ...committer.errors import InvalidInputError
from ...committer.format.layout import TableRoot


class Action(StrEnum):
    FORWARD = "roll-forward"
    BACK = "roll-back"
    #: Nothing may be done: its metadata name what is not its.
    REFUSE = "refuse"
    #: Nothing is done until somebody says which way.
    ASK = "ask"


@dataclass(frozen=True)
class RecoveryOptions:
    """What recovery may do, and what its caller knows.

    :param apply: act; else only report.
    :param force: act on jobs too of which it is not known whether they live.
    :param patience: seconds of silence after which a job of which nothing else is known counts
        as dead; ``None``: such a job stays unknown. Longer than the longest task: one that is
        writing a file is silent.
    :param dead: UUIDs of jobs, or ids of runs, whose application is known to have ended.
    :param direction: ``Action.BACK``: roll back even where rolling forward would do; or
        ``Action.FORWARD`` where both would do and only the caller can tell. Either vouches for
        files that are there and cannot be compared.
    :param jobs: only these UUIDs; ``None`` for all.
    :param folders: further destinations below the table, as paths relative to its root.
    :param deep: list the whole table for jobs that left nothing but their metadata.
    :param staging: where the directory and partitioned committers keep their pending sets, as
        :class:`~..hadoop.staging_dir.StagingFolder` takes it.
    """

    apply: bool = False
    force: bool = False
    patience: float | None = None
    dead: Collection[str] = frozenset()
    direction: Action | None = None
    jobs: Collection[str] | None = None
    folders: Collection[str] = ()
    deep: bool = False
    staging: str | None = None

    def check(self, root: TableRoot) -> None:
        """:raises InvalidInputError: options that cannot be right."""
        parts = [part for folder in self.folders for part in folder.strip("/").split("/")]
        if self.patience is not None and self.patience < 0:
            wrong = f"patience={self.patience} is negative"
        elif self.direction not in (None, Action.FORWARD, Action.BACK):
            wrong = f"{self.direction} is no direction"
        elif not {"", ".", ".."}.isdisjoint(parts):
            wrong = f"{', '.join(self.folders)}: a folder of a table has no '..' or empty component"
        else:
            return
        raise InvalidInputError(f"{wrong}.", table=root.url)


#: Report all, and do nothing.
REPORT = RecoveryOptions()
