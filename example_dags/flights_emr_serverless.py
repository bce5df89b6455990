"""A DAG that loads yesterday's flights every day by a job of EMR Serverless.

It needs:

* the connection ``aws_default``, which may start jobs of the application and write to the table's
  bucket
* the connection ``zero_rename_default`` with a table root
* the variable ``emr_application_id``
* the variable ``emr_job_role``: the ARN of the role that may write to the table
* an image of the application with Python 3.11 or later, boto3 and pyarrow
* the Spark application of ``flights_daily``, uploaded to the URL in the parameter ``code``
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.common.compat.sdk import DAG, Param
from airflow.timetables.interval import CronDataIntervalTimetable

from zero_rename.operators.emr_serverless import ZeroRenameEmrServerlessOperator

PARAMS: Any = {
    "table": Param("flights", type="string", description="Below the connection's table root"),
    "code": Param("s3://lake/code/flights_job.py", type="string"),
    "csv": Param("s3://lake/raw/flights.csv", type="string"),
}

with DAG(
    dag_id="flights_emr_serverless",
    schedule=CronDataIntervalTimetable("@daily", "UTC"),
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
    params=PARAMS,
    tags=["example", "zero_rename"],
    doc_md=__doc__,
) as dag:
    ZeroRenameEmrServerlessOperator(
        task_id="load",
        table="{{ params.table }}",
        partition_format="year=%Y/month=%-m/day=%-d",
        mode="overwrite",
        application_id="{{ var.value.emr_application_id }}",
        execution_role_arn="{{ var.value.emr_job_role }}",
        job_driver={
            "sparkSubmit": {
                "entryPoint": "{{ params.code }}",
                "entryPointArguments": [
                    "--csv",
                    "{{ params.csv }}",
                    "--day",
                    "{{ data_interval_start | ds }}",
                ],
                "sparkSubmitParameters": "--conf spark.executor.cores=4",
            }
        },
        # The worker is free while the job runs.
        deferrable=True,
    )
