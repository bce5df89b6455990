"""Why an application failed, by all that spark-submit writes."""

from __future__ import annotations

import pytest

from zero_rename.orchestration.submit.spark_log import LastWords

START = """\
WARNING: Using incubator modules: jdk.incubator.vector
26/11/23 02:00:01 INFO SparkContext: Running Spark version 4.3.0
26/11/23 02:00:03 INFO Utils: Successfully started service 'sparkDriver' on port 36437.
"""
END = """\
26/11/23 02:00:09 INFO SparkContext: Invoking stop() from shutdown hook
26/11/23 02:00:09 INFO ShutdownHookManager: Deleting directory /tmp/spark-1
"""
OWN = """\
Traceback (most recent call last):
  File "/opt/jobs/flights_job.py", line 12, in <module>
    main()
  File "/opt/jobs/flights_job.py", line 7, in fares
    raise ValueError("no fare for AA at JFK")
ValueError: no fare for AA at JFK
"""
#: As Spark 4 prints an error of a UDF, on the driver; the executor's log has it before.
OF_A_WORKER = """\
26/11/23 02:00:07 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/jobs/flights_job.py", line 3, in fare
    return FARES[carrier]
KeyError: 'AA'

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
Traceback (most recent call last):
  File "/opt/jobs/flights_job.py", line 12, in <module>
    save(flights)
  File "/x/site-packages/pyspark/errors/exceptions/captured.py", line 269, in deco
    raise converted from None
pyspark.errors.exceptions.captured.PythonException:
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/jobs/flights_job.py", line 3, in fare
    return FARES[carrier]
KeyError: 'AA'


JVM stacktrace:
org.apache.spark.SparkException: Job aborted due to stage failure
	at org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2935)
"""
OF_SPARK = """\
Traceback (most recent call last):
  File "/opt/jobs/flights_job.py", line 9, in <module>
    flights.select("nothing")
  File "/x/site-packages/pyspark/errors/exceptions/captured.py", line 269, in deco
    raise converted from None
pyspark.errors.exceptions.captured.AnalysisException: [UNRESOLVED_COLUMN] No column `nothing`.;
'Project ['nothing]
+- Range (0, 3)

"""
WITHOUT_TEXT = """\
Traceback (most recent call last):
  File "/opt/jobs/flights_job.py", line 9, in <module>
    go()
jobs.errors.NoFares:
  AA has none.
more
"""
CHAINED = f"""\
{OWN}
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/jobs/flights_job.py", line 14, in <module>
    raise SystemError("the day is not whole") from error
SystemError: the day is not whole
"""
IGNORED = f"""\
{OWN}Exception ignored in: <function Stream.__del__ at 0x7f>
Traceback (most recent call last):
  File "/opt/jobs/flights_job.py", line 99, in __del__
    self.close()
OSError: closed already
"""


@pytest.mark.parametrize(
    ("written", "code", "told"),
    [
        (OWN, 1, "ValueError: no fare for AA at JFK (flights_job.py, line 7, in fares)."),
        (OF_A_WORKER, 1, "KeyError: 'AA' (flights_job.py, line 3, in fare)."),
        (
            OF_SPARK,
            1,
            "AnalysisException: [UNRESOLVED_COLUMN] No column `nothing`.; "
            "(flights_job.py, line 9, in <module>).",
        ),
        (WITHOUT_TEXT, 1, "NoFares: AA has none. (flights_job.py, line 9, in <module>)."),
        (CHAINED, 1, "SystemError: the day is not whole (flights_job.py, line 14, in <module>)."),
        (IGNORED, 1, "ValueError: no fare for AA at JFK (flights_job.py, line 7, in fares)."),
        (
            'Exception in thread "main" org.apache.spark.SparkException: Application application_1 '
            "finished with failed status\n\tat org.apache.spark.deploy.yarn.Client.run\n",
            1,
            "SparkException: Application application_1 finished with failed status.",
        ),
        (
            "day 7 is read\n",
            137,
            "The application was killed (SIGKILL) without a word of why. The last that it wrote: "
            '"day 7 is read".',
        ),
        (
            "",
            -15,
            "The application was killed (SIGTERM) without a word of why. The last that it wrote: "
            '"WARNING: Using incubator modules: jdk.incubator.vector".',
        ),
        (
            "no such day\x1b[2J\n",
            3,
            "The application failed without a word of why. The last that it wrote: "
            '"no such day\\x1b[2J".',
        ),
    ],
)
def test_the_first_that_is_said(written: str, code: int, told: str) -> None:
    lines = f"{START}{written}{END}".splitlines(keepends=True)
    words = LastWords()
    assert list(words.noted(lines)) == lines
    assert words.told(code) == f"{told} Error code is: {code}."


def test_a_long_error_is_cut() -> None:
    words = LastWords()
    list(words.noted([*OWN.splitlines()[:-1], f"ValueError: {'x' * 100_000}"]))
    assert len(words.told(1)) < 1_200


def test_nothing_is_written() -> None:
    assert LastWords().told(1) == (
        "The application failed without a word of why. Error code is: 1."
    )


def test_missing_classes_of_hadoops_committers_name_the_jars() -> None:
    """Spark refuses the settings at the first statement, before save() can check the classes."""
    error = (
        "pyspark.errors.exceptions.captured.IllegalArgumentException: "
        "[INVALID_CONF_VALUE.REQUIREMENT] The value "
        "'org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter' in the config "
        '"spark.sql.parquet.output.committer.class" is invalid. Class must be loadable\n'
    )
    words = LastWords()
    list(words.noted([*OWN.splitlines()[:2], error]))
    said = words.told(1)
    assert "Put spark-hadoop-cloud and hadoop-aws with its SDK on the class path" in said
    assert "committer='zero_rename'" in said
