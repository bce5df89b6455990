"""Report of a registration, and the name of the table that was registered."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..committer.errors import InvalidInputError, ZeroRenameError, without_secrets
from ..committer.format.layout import TableRoot
from .described_table import ReadBy

_URL = re.compile(r"(glue|hive)://([A-Za-z0-9_\-]+)(?:/([A-Za-z0-9_\-]+))?/?")


def table_name(root: TableRoot) -> str:
    """Return the default name of a table in a catalog: the last segment of its root, with
    underscores in place of all characters but letters, digits and underscores."""
    return re.sub(r"\W", "_", root.prefix.rsplit("/", 1)[-1], flags=re.ASCII)


class CatalogUnsyncedError(ZeroRenameError):
    """A table's entry in a catalog is not up to date. The table itself is as its jobs committed
    it."""


@dataclass(frozen=True)
class CatalogReport:
    """The changes that were made to a table's entry in a catalog.

    :param table: ``created``, ``updated`` (its columns or location) or ``unchanged``.
    :param added: how many partitions were added; ``updated`` and ``dropped`` likewise.
    :param projected: the engine computes the table's partitions, so none are registered.
    """

    catalog: str
    read_by: ReadBy
    table: str
    added: int = 0
    updated: int = 0
    dropped: int = 0
    projected: bool = False

    def then(self, later: CatalogReport) -> CatalogReport:
        """Return the changes of this report and of a later one together."""
        first = self.table == "created" or later.table == "unchanged"
        return replace(
            later,
            table=self.table if first else later.table,
            added=self.added + later.added,
            updated=self.updated + later.updated,
            dropped=self.dropped + later.dropped,
        )


@dataclass(frozen=True)
class CatalogUrl:
    """A table's name in a catalog: ``glue://database/table`` or ``hive://database/table``.

    :param table: empty if it was left out; then :func:`table_name` names the table.
    """

    kind: str
    database: str
    table: str

    @staticmethod
    def parse(text: str) -> CatalogUrl:
        """Parse the URL of a table in a catalog.

        :raises InvalidInputError: the text does not have this form.
        """
        found = _URL.fullmatch(text)
        if found is None:
            raise InvalidInputError(
                f"{without_secrets(text)!r} names no table of a catalog; nothing was sent.",
                remedy="Name it as glue://database/table or hive://database/table; without /table "
                "it is called by the last word of its root.",
            )
        kind, database, table = found.groups(default="")
        return CatalogUrl(kind, database, table)

    def of(self, root: TableRoot) -> CatalogUrl:
        """Return this URL, with the table's default name if its name was left out."""
        return self if self.table else replace(self, table=table_name(root))

    def __str__(self) -> str:
        return f"{self.kind}://{self.database}/{self.table}"

    def unsynced(self, why: str, root: TableRoot, remedy: str) -> CatalogUnsyncedError:
        """Build the error of a registration that failed, or was done in part."""
        return CatalogUnsyncedError(
            f"{self} was not told, or not wholly, what the table holds: {why.rstrip('.')}. The "
            "table is as its jobs committed it.",
            table=root.url,
            remedy=f"Repeat it{remedy}",
        )
