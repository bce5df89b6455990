"""Failures told across processes: by an application, to whoever submitted it.

What an application raises reaches its submitter as an exit code and some thousand lines of log.
An error of this package is put on record below the table besides, with class, message and remedy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .errors import ZeroRenameError
from .job_spec import Owner
from .layout import TableRoot, new_write_id
from .records.failure import Failure
from .s3.driver import connect
from .s3.requests import Found, Get, Put, Step

logger = logging.getLogger("zero_rename.committer.failures")


@contextmanager
def failures_told(
    root: TableRoot | None, once: str | None, owner: Owner, partitions: Iterable[str] = ()
) -> Iterator[None]:
    """Put an error of this package that leaves the block on record; it goes on as it is.

    Does nothing where nobody submitted the application as a task's run: without a table, a ``once``
    key or a task. What keeps the record from being written is logged.

    :param partitions: that it was to write; none: any.
    """
    try:
        yield
    except ZeroRenameError as error:
        if root is not None and once is not None and owner.task_id is not None:
            failure = Failure.of(error, root, once, owner, new_write_id(), partitions)
            _tell(root, failure)
        raise


def _tell(root: TableRoot, failure: Failure) -> None:
    try:
        connect(root.bucket).run(Put(root.failure_key(failure.once), failure.encode()))
    except ZeroRenameError as error:
        logger.warning("the failure could not be put on record: %s", error)


def read_failure(root: TableRoot, once: str) -> Step[Failure | None]:
    """The last failure of a run's applications; ``None`` where none was told."""
    found = yield Get(root.failure_key(once))
    return Failure.decode(found.body, found.key) if isinstance(found, Found) else None
