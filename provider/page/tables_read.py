"""Tables as the page reads them: by their connection's clients, a few at once, not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ...committer.errors import InvalidInputError, StoreUnreachableError
from ...committer.table import Table
from ...orchestration.table_names import table_url
from ..hooks import ZeroRenameHook
from ..table_watch import SharedTables

T = TypeVar("T")

#: Seconds that a visitor waits for a store.
PATIENCE = 25.0
#: Visitors whose tables are read at once: threads of the page's own, so that a store which does
#: not answer keeps none of the API server's.
_READERS = ThreadPoolExecutor(8, thread_name_prefix="zero-rename-page")
#: Seconds for which the connections are kept: :data:`..table_watch.REFRESH`.
_tables = SharedTables()


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
        _tables.drop(conn_id)
        raise


def hook_of(conn_id: str) -> ZeroRenameHook:
    """The hook of a connection."""
    return _tables.hook(conn_id)


def table_of(conn_id: str, name: str) -> Table:
    """A table by its URL or its name below the connection's table root.

    :raises InvalidInputError: the connection cannot be used, the name is none, or it leads out of
        the table root: who may see a connection's tables may not see all that its keys can read.
    """
    settings = _tables.hook(conn_id).settings
    url = table_url(name, settings.table_root, f"the connection {conn_id!r}").rstrip("/")
    root = settings.table_root
    if root and not f"{_plain(url)}/".startswith(f"{_plain(root)}/"):
        raise InvalidInputError(
            f"The table {url} does not lie below {root}, the table root of the connection "
            f"{conn_id!r}; nothing was read.",
            remedy="Make a connection of type zero_rename with a table root above it.",
        )
    return _tables.table(conn_id, url)


def name_in(root: str | None, url: str) -> str:
    """A table's name below the table root, or its URL where there is none."""
    if root and url.startswith(f"{_plain(root)}/"):
        return url.removeprefix(f"{_plain(root)}/")
    return url


def _plain(url: str) -> str:
    scheme, _, rest = url.rstrip("/").partition("://")
    return f"s3://{rest}" if scheme in ("s3a", "s3n") else f"{scheme}://{rest}"
