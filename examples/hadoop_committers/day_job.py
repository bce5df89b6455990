"""A job as many have it: Spark's own writer, for one day. ``DIES=1`` ends the driver half-way."""

import os
import signal
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

destination, day = sys.argv[1:]
spark = SparkSession.builder.appName("day_job").getOrCreate()
flights = spark.range(0, 6, 1, numPartitions=2).select(
    F.col("id").alias("flight"), F.lit(day).alias("day")
)
if os.environ.get("DIES"):
    jvm = os.getppid()

    @F.udf("long")
    def deadly(flight: int) -> int:
        """Let the machine fail in the last task."""
        if flight == 5:
            os.kill(jvm, signal.SIGKILL)
        return flight

    flights = flights.withColumn("flight", deadly("flight"))
flights.write.mode("append").partitionBy("day").parquet(destination)
