"""Found by PySpark on its own: it looks for ``DefaultSource`` in modules named ``pyspark_…``.

An import error here would hide every other Python data source of the session as well, so the
class imports PySpark alone; what else it needs is imported when it is used.
"""

from zero_rename.spark.data_source import ZeroRenameDataSource as DefaultSource

__all__ = ["DefaultSource"]
