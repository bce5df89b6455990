"""PySpark's daemon, with what this package's workers import already imported.

PySpark starts a daemon for each kind of worker, which forks a worker per task and per planning
step; each imports boto3 and pyarrow anew, about a second of work. Set as
``spark.python.daemon.module``, this module imports them once per daemon. It holds nothing that a
fork would break: no client, no thread.
"""

from pyspark.daemon import manager

from . import data_source, reader, writer

__all__ = ["data_source", "manager", "reader", "writer"]

if __name__ == "__main__":
    manager()
