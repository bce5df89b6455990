"""``zero-rename log-store``: options for Delta on Spark, so that it commits with a condition."""

from __future__ import annotations

import json
import shlex

import typer

from ..tables import log_store_jar, log_store_settings
from .output import AsJson, say


def log_store(as_json: AsJson = False) -> None:
    """Print the options of spark-submit that let Delta on Spark commit with a condition.

    They are the jar of this package's log store, and the settings that name its class. No request
    is sent.
    """
    settings = log_store_settings()
    if as_json:
        typer.echo(json.dumps({"jar": str(log_store_jar()), "settings": settings}, indent=2))
        return
    jars = settings.pop("spark.jars")
    words = ["--jars", jars]
    words += [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    typer.echo(shlex.join(words))
    say(
        "Give these to every session that writes a Delta table on S3 by Delta, as it starts. It "
        "needs hadoop-aws 3.4.2 or later, as Spark 4.1 has; with an earlier one its commits fail, "
        "and write nothing."
    )
