"""Rule for the URL of a catalog under which the tables of a folder are registered."""

from __future__ import annotations

from ..errors import InvalidInputError, counted


def refuse_one_name(url: str, tables: int, table: str | None = None) -> None:
    """Refuse the URL of one table of a catalog for several tables: each would take its name.

    :param url: a valid URL, ``glue://database`` or ``glue://database/table``.
    :param table: the folder of the tables, for the error.
    :raises InvalidInputError: it is one table's, and there are several.
    """
    names_one = "/" in url.partition("://")[2].rstrip("/")
    if tables < 2 or not names_one:
        return
    raise InvalidInputError(
        f"The catalog {url} is one table's, and {counted(tables, 'table')} would be registered "
        "there. Nothing was changed.",
        table=table,
        remedy="Name the database alone, glue://database: each table is called there by the last "
        "word of its root. Or name the root of one table.",
    )
