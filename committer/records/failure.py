"""The last failure of a run's application, for whoever submitted it: an exit code says little."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import (
    CommitConflictError,
    InvalidInputError,
    TableMismatchError,
    ZeroRenameError,
)
from ..job_spec import Owner
from ..layout import TableRoot
from .codec import decode, encode

#: Errors that the next try would meet again, or hide: a conflict under on_conflict=fail is gone in
#: a try that begins on what is there now, and that try would overwrite it.
_FINAL = (InvalidInputError, TableMismatchError, CommitConflictError)


@dataclass(frozen=True)
class Failure:
    """Written over by the next failure of the same run.

    :param error: the class of the error.
    :param final: whether running the same again cannot mend it, or would hide it.
    """

    write_id: str
    once: str
    owner: Owner
    error: str
    message: str
    remedy: str | None
    job: str | None
    key: str | None
    final: bool

    @staticmethod
    def of(
        error: ZeroRenameError, root: TableRoot, once: str, owner: Owner, write_id: str
    ) -> Failure:
        """What an error says, on record.

        A conflict over the run's own key is not final: another try did the run's work, which the
        next one reports.
        """
        over_once = (error.key or "").startswith(root.once_prefix)
        return Failure(
            write_id,
            once,
            owner,
            type(error).__name__,
            error.message,
            error.remedy,
            error.job,
            error.key,
            isinstance(error, _FINAL) and not over_once,
        )

    def encode(self) -> bytes:
        return encode("failure", self.write_id, self)

    @staticmethod
    def decode(body: bytes, key: str) -> Failure:
        return decode(body, "failure", key).read(Failure)
