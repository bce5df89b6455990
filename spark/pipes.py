"""Dagster Pipes: reports of commits to the run that launched the application.

:func:`~zero_rename.spark.save` reports by itself. An application may open Pipes itself, with its
own loader and writer, before it saves. Otherwise the session is opened here, once for the process,
and closed at its end.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from traceback import TracebackException
from typing import TYPE_CHECKING, Any

from ..committer.format.layout import UNPARTITIONED, TableRoot
from ..committer.store.clients import client_at

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

    from ..committer.commit.state.job_state import Committed

logger = logging.getLogger("zero_rename.spark.pipes")
#: The member of a custom message that holds a commit.
MESSAGE = "zero_rename"
#: Most partitions in a materialisation's metadata. The message has all.
_SHOWN = 100


def pipes_session() -> PipesContext | None:
    """Return the session with the run that launched this process.

    ``None`` if no run did, if the session is closed, or if Python has no ``dagster_pipes``.
    """
    session = _opened()
    return None if session is None or session.is_closed else session


def _opened() -> PipesContext | None:
    if sys.modules.get("dagster_pipes") is not None:
        from dagster_pipes import PipesContext

        if PipesContext.is_initialized():
            return PipesContext.get()
    if "DAGSTER_PIPES_CONTEXT" not in os.environ:
        return None
    try:
        import dagster_pipes
    except ImportError:
        logger.warning(
            "This application was launched by Dagster Pipes, and its Python has no dagster-pipes: "
            "what it commits is not reported. Install dagster-pipes where the driver runs."
        )
        return None
    params = dagster_pipes.PipesEnvVarParamsLoader()
    loader = writer = None
    if "bucket" in params.load_context_params():
        loader = dagster_pipes.PipesS3ContextLoader(client_at(None, None))
    if "bucket" in params.load_messages_params():
        writer = dagster_pipes.PipesS3MessageWriter(client_at(None, None))
    session = dagster_pipes.open_dagster_pipes(context_loader=loader, message_writer=writer)
    atexit.register(_close, session)
    return session


def _close(session: PipesContext) -> None:
    """Close a session at the end of the process, with the error that ended the process, if any."""
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException):
        session.close()
    else:
        session.close(_told(TracebackException.from_exception(error)))


def _told(error: TracebackException) -> Any:
    kind = error.exc_type
    return {
        "message": "".join(error.format_exception_only()),
        "stack": error.stack.format(),
        "name": None if kind is None else kind.__name__,
        "cause": None if error.__cause__ is None else _told(error.__cause__),
        "context": None if error.__context__ is None else _told(error.__context__),
    }


def report_commit(session: PipesContext, committed: Committed, is_asset: bool) -> None:
    """Report a commit to Dagster, in a message of its own and as the asset's materialisation.

    If it cannot be reported, a warning is logged: the job is committed, and its step reads this
    from the table.

    :param is_asset: the table is that of the step's only asset.
    """
    try:
        _report(session, committed, is_asset)
    except Exception as error:
        logger.warning(
            "%s: job %s is committed, and could not be reported to Dagster: %s: %s",
            committed.table,
            committed.job,
            type(error).__name__,
            error,
        )


def _report(session: PipesContext, committed: Committed, is_asset: bool) -> None:
    from dagster_pipes import DagsterPipesError

    session.report_custom_message({MESSAGE: asdict(committed)})
    if not is_asset or not session.is_asset_step or len(session.asset_keys) != 1:
        return
    try:
        session.report_asset_materialization(commit_metadata(committed), committed.version)
    except DagsterPipesError as error:
        # A second write of the same asset: its commit is in the message.
        logger.warning("the materialisation was not reported again: %s", error)


def commit_metadata(committed: Committed) -> Mapping[str, Any]:
    """Return a commit as metadata of a materialisation.

    The names are those of assets that are written without Pipes. If there are several partitions,
    their numbers are in a table, since each partition's event has this same metadata.
    """
    url = TableRoot.parse(committed.table).url
    found: dict[str, Any] = {"zero_rename/job": committed.job}
    if len(committed.partitions) == 1:
        (only,) = committed.partitions
        whole = only.partition == UNPARTITIONED
        url = url if whole else f"{url}/{only.partition}"
        found |= {f"zero_rename/{name}": getattr(only, name) for name in _NUMBERS}
    else:
        found["zero_rename/partitions"] = [
            {"partition": p.partition, **{name: getattr(p, name) for name in _NUMBERS}}
            for p in committed.partitions[:_SHOWN]
        ]
    return {**found, "dagster/uri": {"type": "url", "raw_value": url}}


_NUMBERS = ("version", "rows", "bytes", "files")
