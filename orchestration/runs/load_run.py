"""Run that loads a table, whichever scheduler it is of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ...committer import Owner


class LoadRun(Protocol):
    """One try of a run."""

    @property
    def idempotency_key(self) -> str:
        """The key of the run's job, the same in all its tries."""
        ...

    @property
    def is_first(self) -> bool:
        """Whether no try of the run can have been before."""
        ...

    def owns(self, owner: Owner) -> bool:
        """Whether a job's owner is this run, in whatever try."""
        ...

    def made(self, owner: Owner | None) -> bool:
        """Whether a job of this run was made by this very try, as far as is known."""
        ...
