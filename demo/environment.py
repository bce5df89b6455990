"""What Spark and Airflow are told: variables, connections, settings. All of it loopback and
below the workspace."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from zero_rename.spark.startup.launch import SMALL_JOB_FLAGS, jvm_options

from .store import Store
from .workspace import Workspace

#: The two connections besides AWS's own.
SPARK_CONNECTION = {"conn_type": "spark", "host": "local[2]"}
#: A JVM otherwise writes its performance counters to /tmp, whatever its temporary folder is.
_NO_FILES = "-XX:-UsePerfData"
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def spark_options(workspace: Workspace) -> str:
    """Options for the JVM of ``spark-submit``: quick for small jobs, nothing outside the
    workspace, where it finds written what it may log.

    Settings come as system properties rather than in a ``SPARK_CONF_DIR``: that folder would be
    first on the class path, and the JVM would ignore a class archive made without it.
    """
    temporary, logging = workspace.temporary, workspace.root / "log4j2.properties"
    logging.write_text(_LOG4J)
    settings = {
        "java.io.tmpdir": temporary,
        "log4j2.configurationFile": logging.as_uri(),
        "spark.local.dir": temporary,
        "spark.sql.warehouse.dir": temporary / "warehouse",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    # The flags use the class archive made at set-up; it saves half of a small job's time.
    properties = (f'"-D{name}={value}"' for name, value in settings.items())
    return " ".join((jvm_options(), _NO_FILES, *properties))


def variables(
    workspace: Workspace, store: Store, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of all processes that are started."""
    ours = ("AIRFLOW", "AWS_", "SPARK_", "PYSPARK_", "PYTHON", "S3_ENDPOINT", "ZERO_RENAME_")
    kept = {name: value for name, value in environ.items() if not name.startswith(ours)}
    scripts = Path(sys.executable).parent
    return {
        **kept,
        **store.environment,
        "PATH": f"{scripts}{os.pathsep}{environ.get('PATH', os.defpath)}",
        "TMPDIR": str(workspace.temporary),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_SUBMIT_OPTS": spark_options(workspace),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(workspace.temporary),
        # The JVM that makes up the command line of the one that does the work.
        "SPARK_LAUNCHER_OPTS": f"{' '.join(SMALL_JOB_FLAGS)} {_NO_FILES}",
        "PYSPARK_PYTHON": sys.executable,
    }


def airflow_variables(workspace: Workspace, store: Store, root: str) -> dict[str, str]:
    """What Airflow is told besides: its home and its connections.

    :param root: the table root of the ``zero_rename`` connection.
    """
    keys = {
        "login": store.environment.get("AWS_ACCESS_KEY_ID"),
        "password": store.environment.get("AWS_SECRET_ACCESS_KEY"),
    }
    extra = {
        "endpoint_url": store.endpoint,
        "region_name": store.environment.get("AWS_DEFAULT_REGION"),
        "aws_session_token": store.environment.get("AWS_SESSION_TOKEN"),
    }
    aws = {"conn_type": "aws", **_given(keys), "extra": _given(extra)}
    policy = {"table_root": root, "aws_conn_id": "aws_default"}
    return {
        "AIRFLOW_HOME": str(workspace.airflow),
        "AIRFLOW__CORE__DAGS_FOLDER": str(workspace.airflow / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(aws),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(SPARK_CONNECTION),
        "AIRFLOW_CONN_ZERO_RENAME_DEFAULT": json.dumps(
            {"conn_type": "zero_rename", "extra": policy}
        ),
    }


def _given(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
