"""The data source ``zero_rename``, which Spark calls in processes that it chooses.

Of the libraries that may be missing, this module imports only PySpark. Spark's discovery imports
the module, and an error there would hide every Python data source of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .reading.reader import TableReader
    from .writer import TableWriter

FORMAT = "zero_rename"


class ZeroRenameDataSource(DataSource):
    """Data source for ``format("zero_rename")``.

    Each method may run in another process. A method's results reach the next one only if they are
    pickled with this object.
    """

    _known: Any = None  # what schema() read, for reader()

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        """Check everything that can be checked before rows are uploaded, and open the job."""
        from .worker import readable_errors
        from .writer import open_writer

        with readable_errors():
            return open_writer(schema, overwrite, self.options)

    def schema(self) -> StructType:
        """The table's columns, or those that the option ``columns`` names."""
        from .reading.reader import known_table
        from .worker import readable_errors

        with readable_errors():
            self._known = known_table(self.options)
            return self._known.spark_schema

    def reader(self, schema: StructType) -> TableReader:
        """Make a reader. It accepts no filters from Spark; :mod:`.reading.reader` says why."""
        from .reading.reader import TableReader, known_table
        from .worker import readable_errors

        with readable_errors():
            return TableReader(self._known or known_table(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse ``writeStream``: its micro-batches have no job of their own to commit."""
        raise _no_stream(
            "writeStream",
            "Call zero_rename.spark.stream(df, table, checkpoint=…): each micro-batch is a job of "
            "its own there, and a replayed one is not doubled.",
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Refuse ``readStream``, by a reader that raises an error when it is used.

        For an error raised here, PySpark 4.3 would show ``UnboundLocalError`` instead.
        """
        return _NoStreamReader()


class _NoStreamReader(DataSourceStreamReader):
    def initialOffset(self) -> NoReturn:
        raise _no_stream("readStream", "Use scheduled runs with a batch read each.")

    def latestOffset(self, start: dict, limit: Any) -> NoReturn:
        self.initialOffset()

    def partitions(self, start: dict, end: dict) -> NoReturn:
        self.initialOffset()

    def read(self, partition: Any) -> NoReturn:
        self.initialOffset()


def _no_stream(what: str, remedy: str) -> Exception:
    from ..committer.errors import InvalidInputError
    from .worker import hide_traceback

    hide_traceback()
    message = f"zero_rename has no {what}: it commits and reads whole jobs; nothing was done."
    return InvalidInputError(message, remedy=remedy)
