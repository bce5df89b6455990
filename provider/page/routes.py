"""Routes of the page. They only read, and accept only GET."""

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
#: Threads that read tables for visitors. They are the page's own, so that a store that does not
#: answer blocks no thread of the API server.
_READERS = ThreadPoolExecutor(8, thread_name_prefix="zero-rename-page")
#: Tables and connections, kept for :data:`.table_watch.REFRESH` seconds.
_shared = SharedTables()
_FILES = Path(__file__).parent / "files"
_STATIC = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icon-dark.svg": "image/svg+xml",
}
#: The browser loads nothing from other servers, runs no script inside a page, and shows the page
#: only in Airflow's own frame.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: HTTP status codes of a table's errors.
_STATUS: dict[type[ZeroRenameError], int] = {
    TableNotFoundError: 404,
    InvalidInputError: 400,
    StoreRefusedError: 502,
}


def visitor(user: Annotated[BaseUser, Depends(get_user)]) -> Visitor:
    """Return the visitor of a request.

    Without a user the answer is 401; for a user who may not see pages of plugins it is 403.
    """
    found = Visitor(user)
    found.check_page()
    return found


VisitorDep = Annotated[Visitor, Depends(visitor)]


def page_routes() -> FastAPI:
    """Build the application that Airflow mounts."""
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
    """Serve style, script and icons. They hold no data, so all users may read them."""
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
    """Render a table's line in the list; the browser asks for it after the list is shown."""
    return pages.glance(conn, table, *_with_tasks(visitor, conn, table))


def _table(
    visitor: VisitorDep, conn: str, table: str, year: int | None = None, day: date | None = None
) -> str:
    return pages.table(visitor, conn, table, *_with_tasks(visitor, conn, table), year, day)


def _with_tasks(visitor: Visitor, conn: str, table: str) -> tuple[TableOverview, list[FailedTask]]:
    """Read the overview of a table, and the failed tasks that left no record there."""
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
    """Render orphaned uploads and problems.

    They are a part of the table's page; the browser asks for it after the page is shown.
    """
    asked = directories_of(conn, table)
    template = "upkeep_part.html" if part else "upkeep.html"
    found = {"left": asked.orphaned_uploads(), "problems": asked.problems()}
    return pages.page(template, conn=conn, name=table, url=asked.root.url, **found)


def _route(look: Callable[..., str]) -> Callable[..., Awaitable[Response]]:
    """Make a route of a function that renders a connection's tables; check the visitor's rights."""

    @wraps(look)
    async def route(visitor: Visitor, conn: str, **asked: Any) -> Response:
        await run_in_threadpool(_check, visitor, conn)
        return HTMLResponse(await read(conn, partial(look, visitor, conn, **asked)))

    return route


def _check(visitor: Visitor, conn: str) -> None:
    """Check that a visitor may see a connection's tables.

    :raises NotAllowedError: they may not; or they may not read the connection itself, and it has no
        table root: then its tables would be all that its keys can read.
    """
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
    """Answer with an error of this package: its message and its remedy."""
    kinds = (_STATUS[kind] for kind in _STATUS if isinstance(error, kind))
    return _problem(next(kinds, 502), "The table cannot be shown", error.message, error.remedy)


async def _refused(request: Request, error: Any) -> Response:
    return _problem(403, "Not allowed", str(error), "Ask the administrator of this Airflow.")


async def _http(request: Request, error: Any) -> Response:
    if error.status_code == 401:
        return _problem(401, "Not logged in", "This page is for users of this Airflow.", "Log in.")
    if error.status_code == 403:
        return _problem(403, "Not allowed", "Airflow does not let you in.", "Log in again.")
    return _problem(error.status_code, "No such page", "There is nothing here.", None)


async def _unfit(request: Request, error: Any) -> Response:
    names = ", ".join(sorted({str(it["loc"][-1]) for it in error.errors()}))
    said = f"The address has missing or invalid parameters: {names}."
    return _problem(400, "No such page", said, "Begin at the list of tables.")


def _unexpected(error: BaseException) -> Response:
    """Answer with an unexpected error, without its message, which may quote a connection.

    The error may be of Airflow, of boto3 or of this package.
    """
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
    """Run a function that asks a store, in a thread.

    :raises StoreUnreachableError: it took longer than :data:`PATIENCE`.
    :raises Exception: as the function; the connection is then read again by the next request.
    """
    loop = asyncio.get_running_loop()
    try:
        return await asyncio.wait_for(loop.run_in_executor(_READERS, work), PATIENCE)
    except TimeoutError as error:
        raise StoreUnreachableError(
            f"The store of the connection {conn_id!r} has not answered everything within "
            f"{PATIENCE:.0f} s.",
            remedy="Check that it answers (Test in the form of the connection), and reload the "
            "page.",
        ) from error
    except Exception:
        _shared.drop(conn_id)
        raise


def hook_of(conn_id: str) -> ZeroRenameHook:
    """Return the hook of a connection."""
    return _shared.hook(conn_id)


def table_of(conn_id: str, name: str) -> Table:
    """Return a table by its URL or its name below the connection's table root.

    :raises InvalidInputError: the connection cannot be used, the name is invalid, or the table is
        not below the table root: the right to see a connection's tables does not include all that
        its keys can read.
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
    """Return a table of directories, or a root without a table yet, as :func:`table_of`.

    :raises InvalidInputError: as :func:`table_of`; or it is a Delta table, which this page does not
        show.
    """
    found = table_of(conn_id, name)
    if delta_table_at(found) is not None:
        raise InvalidInputError(
            f"{found.root.url} is a Delta table; this page shows only tables of directories.",
            remedy="See its jobs by `zero-rename history` and `zero-rename jobs`, its partitions "
            "by `zero-rename show`.",
        )
    return found


def name_in(root: str | None, url: str) -> str:
    """Return a table's name below the table root, or its URL if it is not below it."""
    if root and url.startswith(f"{_plain(root)}/"):
        return url.removeprefix(f"{_plain(root)}/")
    return url


def _plain(url: str) -> str:
    return re.sub(f"^{SCHEME}", "s3://", url.rstrip("/"))
