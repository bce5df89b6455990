"""Failures of applications, recorded below the table for the process that submitted them.

An application's error reaches its submitter as an exit code and some thousand lines of log. So an
error of this package is also written to a record, with class, message and remedy.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..errors import TaskLateError, ZeroRenameError
from ..format.job_spec import Owner
from ..format.layout import TableRoot, new_write_id
from ..format.records.failure import Failure
from ..store.driver import Driver, connect
from ..store.encryption import Encryption
from ..store.requests import Found, Get, Put, Step

logger = logging.getLogger("zero_rename.committer.commit.failures")


@contextmanager
def failures_told(
    root: TableRoot | None,
    idempotency_key: str | None,
    owner: Owner,
    partitions: Iterable[str] = (),
    encryption: Encryption | None = None,
    driver: Driver | None = None,
) -> Iterator[None]:
    """Record an error of this package that leaves the block; the error is raised on unchanged.

    Does nothing if the application was not submitted as a task's run: without a table, an
    idempotency key or a task. If the record cannot be written, the reason is logged.

    A task's attempt that came late does not know why its job was over, and records nothing.

    :param partitions: that it was to write; none: any.
    :param encryption: of its job; ``None``: none, or it is not known.
    :param driver: of the table's store; ``None``: one of boto3's standard chain.
    """
    try:
        yield
    except TaskLateError:
        raise
    except ZeroRenameError as error:
        tell_failure(error, root, idempotency_key, owner, partitions, encryption, driver)
        raise


def tell_failure(
    error: ZeroRenameError,
    root: TableRoot | None,
    idempotency_key: str | None,
    owner: Owner,
    partitions: Iterable[str] = (),
    encryption: Encryption | None = None,
    driver: Driver | None = None,
) -> None:
    """Record an error, under the conditions of :func:`failures_told`."""
    if root is None or idempotency_key is None or owner.task_id is None:
        return
    try:
        driver = connect(root.bucket) if driver is None else driver
        driver.encrypt_by_default(encryption, root.prefix)
        driver.run(record_failure(error, root, idempotency_key, owner, partitions))
    except ZeroRenameError as met:
        logger.warning("the failure could not be put on record: %s", met)


def record_failure(
    error: ZeroRenameError,
    root: TableRoot,
    idempotency_key: str,
    owner: Owner,
    partitions: Iterable[str] = (),
) -> Step[None]:
    """Write the failure of a task's run to its record."""
    failure = Failure.of(error, root, idempotency_key, owner, new_write_id(), partitions)
    yield from Put(root.failure_key(idempotency_key), failure.encode())


def read_failure(root: TableRoot, idempotency_key: str) -> Step[Failure | None]:
    """Read the last failure of a run's applications; ``None`` if none was recorded."""
    found = yield from read_dated_failure(root, idempotency_key)
    return None if found is None else found[0]


def read_dated_failure(root: TableRoot, idempotency_key: str) -> Step[tuple[Failure, float] | None]:
    """Read the last failure of a run's applications, and when it was recorded, in Unix seconds by
    the store's clock; ``None`` if none was recorded."""
    found = yield from Get(root.failure_key(idempotency_key))
    if not isinstance(found, Found):
        return None
    return Failure.decode(found.body, found.key), found.last_modified
