"""A second driver in a process of its own, on the JVM of a session that is there: it can be killed
for the price of a Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ATTACH = """
import sys
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

gateway = launch_gateway()  # By PYSPARK_GATEWAY_PORT: to a JVM that runs.
java = gateway.jvm.org.apache.spark
java = java.api.java.JavaSparkContext(java.SparkContext.getOrCreate())
context = SparkContext(gateway=gateway, jsc=java, conf=SparkConf(_jconf=java.getConf()))
spark = SparkSession(context)
"""


def start_driver(spark: Any, program: str, *arguments: str, folder: Path) -> subprocess.Popen[str]:
    """Start a program that finds ``spark``, a session on the JVM of the session given.

    :param folder: for its standard error, ``driver.log``.
    """
    parameters = spark.sparkContext._gateway.gateway_parameters
    variables = {
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        "PYSPARK_PYTHON": spark.sparkContext.pythonExec,
    }
    with (folder / "driver.log").open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-c", _ATTACH + program, *arguments],
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
        )
