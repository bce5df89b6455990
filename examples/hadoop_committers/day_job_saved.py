"""The same job, whose table, partition, mode and committer are the operator's to say."""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from zero_rename.spark import save

day = sys.argv[1]
spark = SparkSession.builder.appName("day_job").getOrCreate()
flights = spark.range(0, 6, 1, numPartitions=2).select(
    F.col("id").alias("flight"), F.lit(day).alias("day")
)
save(flights, partition_by=["day"])
