"""Handoff of a submitter that could set no variables of the driver."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ...committer.format.handoff import HANDOFF, HANDOFF_SETTING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def take_handoff(spark: SparkSession) -> None:
    """Make a variable of this process of the Spark setting by which a submitter told what to write,
    as it does on AWS Glue and on EMR in client mode; a variable that is there stays."""
    if not os.environ.get(HANDOFF):
        told = spark.conf.get(HANDOFF_SETTING, None)
        if told:
            os.environ[HANDOFF] = told
