"""Routes of the page. All of them read; none takes anything but GET."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException as StarletteHTTPException

from ...committer import TableOverview
from ...committer.errors import (
    InvalidInputError,
    StoreRefusedError,
    StoreUnreachableError,
    TableNotFoundError,
    ZeroRenameError,
)
from ...committer.store.s3_urls import SCHEME
from ...committer.table import Table
from ...orchestration.delta_query import delta_table_at
from ..hooks import DEFAULT_CONN_ID, ZeroRenameHook
from ..table_watch import SharedTables
from . import pages
from .access import NotAllowedError, Visitor
from .addresses import relative
from .failed_tasks import FailedTask, failed_tasks

T = TypeVar("T")
_log = logging.getLogger(__name__)
#: Seconds that a visitor waits for a store.
PATIENCE = 25.0
#: Visitors whose tables are read at once: threads of the page's own, so that a store which does
#: not answer keeps none of the API server's.
_READERS = ThreadPoolExecutor(8, thread_name_prefix="zero-rename-page")
#: Seconds for which the connections are kept: :data:`.table_watch.REFRESH`.
_shared = SharedTables()
_FILES = Path(__file__).parent / "files"
_STATIC = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}
#: Nothing from elsewhere, no script within a page, shown in Airflow's own frame only.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: What HTTP calls the errors of a table.
_STATUS: dict[type[ZeroRenameError], int] = {
    TableNotFoundError: 404,
    InvalidInputError: 400,
    StoreRefusedError: 502,
}


def visitor(user: Annotated[BaseUser, Depends(get_user)]) -> Visitor:
    """Who asks; 401 for nobody, 403 for who may not see pages of plugins."""
    found = Visitor(user)
    found.check_page()
    return found


VisitorDep = Annotated[Visitor, Depends(visitor)]


def page_routes() -> FastAPI:
    """The application that Airflow mounts."""
    app = FastAPI(title="Zero Rename", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_with_headers)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.get("/", response_class=HTMLResponse)(_connections)
    for path, look in _LOOKS.items():
        app.get(path, response_model=None)(_route(look))
    app.get("/files/{name}")(_static)
    return app


async def _with_headers(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Any:
    try:
        response = await go_on(request)
    except Exception as error:
        response = _unexpected(error)
    response.headers.update(_HEADERS)
    return response


async def _static(name: str) -> Response:
    """Style, script and icons, which tell nothing and are for everybody."""
    if name not in _STATIC:
        raise HTTPException(404)
    return FileResponse(_FILES / name, media_type=_STATIC[name])


async def _connections(visitor: VisitorDep) -> Response:
    known = await run_in_threadpool(visitor.connections)
    if len(known) == 1:
        return RedirectResponse(relative("tables", conn=known[0]), status_code=303)
    if not known:  # Secrets backends may hold some.
        await run_in_threadpool(visitor.check_tables, DEFAULT_CONN_ID)
    return HTMLResponse(pages.page("connections.html", known=known, default=DEFAULT_CONN_ID))


def _tables(visitor: VisitorDep, conn: str) -> str:
    hook = hook_of(conn)
    root = hook.settings.table_root
    names = [name_in(root, it) for it in hook.table_urls()] if root else []
    return pages.page("tables.html", conn=conn, root=root, names=names)


def _glance(visitor: VisitorDep, conn: str, table: str) -> str:
    """A table's line in the list, asked for when the list is there."""
    return pages.glance(conn, table, *_with_tasks(visitor, conn, table))


def _table(
    visitor: VisitorDep, conn: str, table: str, year: int | None = None, day: date | None = None
) -> str:
    return pages.table(visitor, conn, table, *_with_tasks(visitor, conn, table), year, day)


def _with_tasks(visitor: Visitor, conn: str, table: str) -> tuple[TableOverview, list[FailedTask]]:
    """A table at one look, and the failed tasks that it knows nothing of."""
    overview = directories_of(conn, table).overview()
    root = hook_of(conn).settings.table_root
    return overview, failed_tasks(visitor, conn, root, overview)


def _partition(visitor: VisitorDep, conn: str, table: str, partition: str) -> str:
    asked = directories_of(conn, table)
    overview = asked.overview()
    history = asked.partition_history(partition, overview.jobs)
    return pages.partition(visitor, conn, table, overview, history)


def _job(visitor: VisitorDep, conn: str, table: str, job: str) -> str:
    return pages.job(visitor, conn, table, job, directories_of(conn, table).manifest(job))


def _upkeep(visitor: VisitorDep, conn: str, table: str, part: bool = False) -> str:
    """Orphaned uploads and problems: a part of the table's page, asked for when that is there."""
    asked = directories_of(conn, table)
    template = "upkeep_part.html" if part else "upkeep.html"
    found = {"left": asked.orphaned_uploads(), "problems": asked.problems()}
    return pages.page(template, conn=conn, name=table, url=asked.root.url, **found)


def _route(look: Callable[..., str]) -> Callable[..., Awaitable[Response]]:
    """What a look at a connection's tables makes a page of, for who may have it."""

    @wraps(look)
    async def route(visitor: Visitor, conn: str, **asked: Any) -> Response:
        await run_in_threadpool(_check, visitor, conn)
        return HTMLResponse(await read(conn, partial(look, visitor, conn, **asked)))

    return route


def _check(visitor: Visitor, conn: str) -> None:
    """:raises NotAllowedError: they may not see the connection's tables, or it has no table root,
    so that its tables are all that its keys can read."""
    visitor.check_tables(conn)
    if not visitor.may_read(conn) and not hook_of(conn).settings.table_root:
        raise NotAllowedError(
            f"The connection {conn!r} has no table root. Who may not read the connection itself "
            "sees the tables below its root alone."
        )


_LOOKS: dict[str, Callable[..., str]] = {
    "/tables": _tables,
    "/glance": _glance,
    "/table": _table,
    "/partition": _partition,
    "/job": _job,
    "/upkeep": _upkeep,
}


async def _told(request: Request, error: Any) -> Response:
    """An error of this package: what happened, and what to do."""
    kinds = (_STATUS[kind] for kind in _STATUS if isinstance(error, kind))
    return _problem(next(kinds, 502), "The table cannot be shown", error.message, error.remedy)


async def _refused(request: Request, error: Any) -> Response:
    return _problem(403, "Not allowed", str(error), "Ask who looks after this Airflow.")


async def _http(request: Request, error: Any) -> Response:
    if error.status_code == 401:
        return _problem(401, "Not logged in", "This page is for users of this Airflow.", "Log in.")
    if error.status_code == 403:
        return _problem(403, "Not allowed", "Airflow does not let you in.", "Log in again.")
    return _problem(error.status_code, "No such page", "There is nothing here.", None)


async def _unfit(request: Request, error: Any) -> Response:
    names = ", ".join(sorted({str(it["loc"][-1]) for it in error.errors()}))
    said = f"The address lacks what it must say, or says it wrongly: {names}."
    return _problem(400, "No such page", said, "Begin at the list of tables.")


def _unexpected(error: BaseException) -> Response:
    """An error of Airflow, boto3 or ours: what it says may quote a connection."""
    number = uuid4().hex[:8]
    _log.error("Page error %s", number, exc_info=error)
    said = f"Something went wrong that this page does not know ({type(error).__name__})."
    remedy = f"The API server's log has the whole of it, as page error {number}."
    return _problem(500, "The table cannot be shown", said, remedy)


def _problem(status: int, title: str, said: str, remedy: str | None) -> Response:
    told = {"status": status, "title": title, "said": said, "remedy": remedy}
    return HTMLResponse(pages.page("problem.html", **told), status_code=status)


_HANDLERS: dict[type[Exception], Any] = {
    ZeroRenameError: _told,
    NotAllowedError: _refused,
    StarletteHTTPException: _http,
    RequestValidationError: _unfit,
}


async def read(conn_id: str, work: Callable[[], T]) -> T:
    """Carry out what asks a store, in a thread.

    :raises StoreUnreachableError: it took longer than :data:`PATIENCE`.
    :raises Exception: as the work does; the connection is then read anew next time.
    """
    loop = asyncio.get_running_loop()
    try:
        return await asyncio.wait_for(loop.run_in_executor(_READERS, work), PATIENCE)
    except TimeoutError as error:
        raise StoreUnreachableError(
            f"The store of the connection {conn_id!r} has not told all within {PATIENCE:.0f} s.",
            remedy="See whether it answers (Test in the form of the connection), and look again.",
        ) from error
    except Exception:
        _shared.drop(conn_id)
        raise


def hook_of(conn_id: str) -> ZeroRenameHook:
    """The hook of a connection."""
    return _shared.hook(conn_id)


def table_of(conn_id: str, name: str) -> Table:
    """A table by its URL or its name below the connection's table root.

    :raises InvalidInputError: the connection cannot be used, the name is none, or it leads out of
        the table root: who may see a connection's tables may not see all that its keys can read.
    """
    settings = _shared.hook(conn_id).settings
    url = settings.table_url(name).rstrip("/")
    root = settings.table_root
    if root and not f"{_plain(url)}/".startswith(f"{_plain(root)}/"):
        raise InvalidInputError(
            f"The table {url} does not lie below {root}, the table root of the connection "
            f"{conn_id!r}; nothing was read.",
            remedy="Make a connection of type zero_rename with a table root above it.",
        )
    return _shared.table(conn_id, url)


def directories_of(conn_id: str, name: str) -> Table:
    """A table of directories, or a place where there is none yet, as of :func:`table_of`.

    :raises InvalidInputError: also where it is a Delta table, of which this page does not tell.
    """
    found = table_of(conn_id, name)
    if delta_table_at(found) is not None:
        raise InvalidInputError(
            f"{found.root.url} is a Delta table, and this page tells of tables of directories.",
            remedy="See its jobs by `zero-rename history` and `zero-rename jobs`, its partitions "
            "by `zero-rename show`.",
        )
    return found


def name_in(root: str | None, url: str) -> str:
    """A table's name below the table root, or its URL where there is none."""
    if root and url.startswith(f"{_plain(root)}/"):
        return url.removeprefix(f"{_plain(root)}/")
    return url


def _plain(url: str) -> str:
    return re.sub(f"^{SCHEME}", "s3://", url.rstrip("/"))
