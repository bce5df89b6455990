"""Names of tables: URLs, or names below a table root."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ..committer.errors import InvalidInputError, without_secrets
from ..committer.format.catalog_name import refuse_one_name
from ..committer.store.s3_urls import check_bucket_part
from .runs.arguments import read_names

if TYPE_CHECKING:
    from ..committer.upkeep.purging.upload_selection import UploadsPath
    from ..maintenance.destinations import Destination


def table_url(table: str | None, root: str | None, of: str) -> str:
    """Return the URL of a table that is named by its URL or by a name below a table root.

    :param root: the table root for names without ``s3://``: ``s3://bucket/prefix``.
    :param of: the owner of the setting ``table_root``, such as a connection, for the message.
    :raises InvalidInputError: a relative name without a table root, or no name at all.
    """
    name = check_table_name(table)
    if "://" in name:
        return name
    if not root:
        raise InvalidInputError(
            f"The table {table!r} has no s3://bucket/, and {of} gives no table root.",
            remedy="Name the table as s3://bucket/prefix, or give a table_root there.",
        )
    return f"{root.rstrip('/')}/{name}"


def check_table_name(table: str | None) -> str:
    """Return a table's name, without blanks and slashes around it.

    :raises InvalidInputError: it is not a name, such as a template that rendered to nothing or to
        ``None``: with it, the table root itself would be read or written.
    """
    name = table.strip() if isinstance(table, str) else ""
    check_bucket_part(name)
    whole = "://" in name
    parts = name.split("://", 1)[-1].rstrip("/").split("/") if whole else name.strip("/").split("/")
    if any(part.strip() in ("", "None", ".", "..") for part in parts):
        raise InvalidInputError(
            f"{table!r} names no table; nothing was read or written.",
            remedy="Name it s3://bucket/prefix, or by a name below the table root; "
            "where it is a template, see what that renders to.",
        )
    return name if whole else name.strip("/")


def listed_tables(name: str, given: object) -> tuple[str, ...]:
    """Return the tables in an argument, as :func:`.read_names` finds them."""
    return read_names(name, given, None, "tables", "names such as flights")


def urls_below(root: str | None, client: Any, of: str) -> list[str]:
    """Find the URLs of all tables below a table root.

    :param client: a boto3 S3 client; ``None`` for boto3's standard chain.
    :param of: the owner of the setting ``table_root``, such as a connection, for the message.
    :raises InvalidInputError: there is no table root.
    """
    from ..committer.store.driver import connect
    from ..committer.upkeep.tables_below import tables_below

    path = _path(root, of)
    return [table.url for table in connect(path.bucket, client).run(tables_below(path))]


def all_below(table_root: str | None, client: Any, of: str) -> list[Destination]:
    """Find what maintenance works on below a table root.

    These are all tables and all destinations of Hadoop's committers, and last the objects and
    uploads below the root that belong to none of them. The parameters and errors are those of
    :func:`urls_below`.
    """
    from ..committer.store.driver import connect
    from ..maintenance.destinations import destinations_of

    path = _path(table_root, of)
    return connect(path.bucket, client).run(destinations_of(path))


def _path(root: str | None, of: str) -> UploadsPath:
    from ..committer.upkeep.purging.upload_selection import UploadsPath

    if not root:
        raise InvalidInputError(
            f"{of[:1].upper()}{of[1:]} gives no table_root, so nobody knows which tables are "
            "meant; nothing was read.",
            remedy="Give it a table_root, or name the tables.",
        )
    return UploadsPath.parse(root)


def check_catalog(url: str) -> str:
    """Return a catalog's URL: ``glue://database``, or ``glue://database/table``.

    :raises InvalidInputError: any other URL. Only Spark can register a table in a Hive metastore.
    """
    known = isinstance(url, str) and re.fullmatch(r"glue://[\w\-]+(/[\w\-]+)?/?", url, re.ASCII)
    if not known:
        shown = without_secrets(url) if isinstance(url, str) else url
        raise InvalidInputError(
            f"catalog={shown!r} is no catalog of AWS Glue; nothing was sent.",
            remedy="Name it as glue://database or glue://database/table; a Hive metastore is told "
            "by the Spark application: sync_catalog(table, catalog, spark=spark).",
        )
    return url


def check_catalog_of(url: str, tables: int) -> None:
    """Check that a number of tables can be registered under one catalog URL.

    :raises InvalidInputError: an invalid URL, or the URL of one table for several tables.
    """
    refuse_one_name(check_catalog(url), tables)
