"""Report of a registration, and the name of the table that was registered."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..committer.errors import InvalidInputError, ZeroRenameError
from .described_table import ReadBy

_URL = re.compile(r"(glue|hive)://([A-Za-z0-9_\-]+)/([A-Za-z0-9_\-]+)")


class CatalogUnsyncedError(ZeroRenameError):
    """A catalog could not be told of a table's state. The table is as its jobs committed it."""


@dataclass(frozen=True)
class CatalogReport:
    """What a catalog was told.

    :param table: ``created``, ``updated`` (its columns or place) or ``unchanged``.
    :param projected: the table's partitions are computed by the engine, none are registered.
    """

    catalog: str
    read_by: ReadBy
    table: str
    added: int = 0
    updated: int = 0
    dropped: int = 0
    projected: bool = False


@dataclass(frozen=True)
class CatalogUrl:
    """A table's name in a catalog: ``glue://database/table`` or ``hive://database/table``."""

    kind: str
    database: str
    table: str

    @staticmethod
    def parse(text: str) -> CatalogUrl:
        """Read such a URL.

        :raises InvalidInputError: it is none.
        """
        found = _URL.fullmatch(text)
        if found is None:
            raise InvalidInputError(
                f"{text!r} names no table of a catalog; nothing was sent.",
                remedy="Name it as glue://database/table or hive://database/table.",
            )
        return CatalogUrl(*found.groups())

    def __str__(self) -> str:
        return f"{self.kind}://{self.database}/{self.table}"
