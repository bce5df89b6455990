"""Count of the rows that Spark writes, taken while it writes them."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("zero_rename.spark.s3a.row_count")
#: Seconds to wait for Spark's listeners to say it, after the write has returned.
_PATIENCE = 60.0


class RowCount:
    """Counts one write: of each task, the attempt that counts for Spark.

    :param name: of the write, used once.
    """

    def __init__(self, name: str) -> None:
        from pyspark.sql import Observation

        self._observation = Observation(name)
        self._rows: int | None = None

    def of(self, frame: DataFrame) -> DataFrame:
        """The frame, whose next action is counted."""
        from pyspark.sql import functions as F

        return frame.observe(self._observation, F.count(F.lit(1)).alias("rows"))

    def rows(self) -> int | None:
        """The number, once the write has returned; ``None`` where Spark does not say it."""
        # Spark waits for it without an end.
        asks = threading.Thread(target=self._ask, name="zero-rename-rows", daemon=True)
        asks.start()
        asks.join(_PATIENCE)
        if self._rows is None:
            logger.warning("Spark did not say how many rows it wrote; they are not compared")
        return self._rows

    def _ask(self) -> None:
        try:
            self._rows = self._observation.get.get("rows")
        except Exception:  # Of the JVM, and about a number: what was written stays written.
            logger.warning("Spark could not count the rows that it wrote", exc_info=True)
