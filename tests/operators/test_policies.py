"""Walk of docs/policies.md: each policy is submitted by each operator with each committer, to a
stand-in for what runs Spark. A refused cell submits nothing and says its words; an honoured one is
seen in what the application is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from docs.extensions.policies import CASES, WORDS, Case, refusal, value_text
from support import service_loads
from support.airflow import JOB_FILE, Connect, Tables, run_task
from support.aws_services import Service
from support.fake_spark import IDLE, FakeSpark
from support.http_services import SERVICES
from zero_rename.committer import InvalidInputError
from zero_rename.committer.errors import ZeroRenameError
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.records.success_marker import COMMITTER as NATIVE
from zero_rename.operators.spark_function import zero_rename_task
from zero_rename.operators.spark_submit import ZeroRenameSparkSubmitOperator
from zero_rename.s3a.hadoop.settings import STAGING
from zero_rename.s3a.runs import ledger
from zero_rename.s3a.services import RULES

pytestmark = [pytest.mark.memory_s3, pytest.mark.slow]

ONCE = "flights/scheduled__2013-02-02/load"
#: No policy differs between Hadoop's committers: each of them is asked of some services.
BY_HADOOP = (
    *(("EmrServerless", "magic"), ("EmrSteps", "directory"), ("EmrContainers", "partitioned")),
    *(("Glue", "magic"), ("Kubernetes", "directory")),
)
#: What applications were told: variables and settings.
Submissions = list[tuple[Mapping[str, str], Mapping[str, str]]]
#: How an operator refuses: as the DAG file is parsed, or as its task begins.
REFUSED = (InvalidInputError, AirflowFailException)


def load(day=None):
    """What a function of a DAG file runs."""


@dataclass
class Submitter:
    """An operator, and what its stand-in has been asked to run.

    :param make: a task of it, from its arguments.
    :param submitted: what each application since the last call was told, and each one's settings.
    """

    make: Callable[..., Any]
    submitted: Callable[[], Submissions]


def by_spark_submit(spark: FakeSpark, make: Callable[..., Any]) -> Submitter:
    def settings(call: Mapping[str, Any]) -> dict[str, str]:
        texts = [f["text"] for name, f in call["files"].items() if name.endswith("properties")]
        lines = (line for text in texts for line in text.splitlines() if "=" in line)
        return dict(line.partition("=")[::2] for line in lines)

    def submitted() -> Submissions:
        found: Submissions = [(it["env"], settings(it)) for it in spark.calls()]
        spark.record.unlink(missing_ok=True)
        return found

    spark.runs(IDLE)
    return Submitter(make, submitted)


def walk(tables: Tables, submitter: Submitter, connect: Connect, committer: str) -> list[str]:
    """Submit each case. Returns what is not as the table says, a line each."""
    wrong = []
    for number, case in enumerate(CASES["airflow"]):
        connect("walked", extra=dict(case.connection))
        name = f"flights{number}"
        given = {"partition": "day=1", "table": tables.url(name), **case.said}
        given |= {"partition": given["partition"] or None, "committer": committer}
        error = refusal("airflow", case, committer)
        said = ""
        try:
            task = submitter.make(**given, zero_rename_conn_id="walked")
            run_task(task, service_loads.context(task))
        except REFUSED as refused:
            said = str(refused)
        except (AirflowException, ZeroRenameError):
            pass  # Of an application that writes nothing.
        after = submitter.submitted()
        if error is not None:
            if after or str(error.message) not in said:
                wrong.append(f"{case} is to be refused: {said or 'submitted'}")
        elif not after:
            wrong.append(f"{case} is to be honoured: {said or 'not submitted'}")
        else:
            wrong += not_seen(case, committer, tables, name, *after[-1])
    return wrong


def not_seen(
    case: Case,
    committer: str,
    tables: Tables,
    name: str,
    variables: Mapping[str, str],
    settings: Mapping[str, str],
) -> Iterator[str]:
    handoff = Handoff.decode(variables)
    root = tables.table(name).root
    tries = tables.table(name).run(ledger.tries_of(root, ONCE))
    for member, value in case.seen(committer).items():
        kind, _, inner = member.partition(".")
        if kind == "setting":
            found: Any = settings.get(inner)
        elif kind == "record":
            found = getattr(tries[-1].record, inner)
        else:
            found = value_text(getattr(handoff, member))
        if str(found) != str(value):
            yield f"{case}: {member} is {found!r}, not {value!r}"


@pytest.mark.parametrize("committer", [NATIVE, "magic"])
def test_spark_submit_honours_or_refuses_each_policy(
    tables: Tables, spark: FakeSpark, connect: Connect, committer: str
) -> None:
    def make(**given: Any) -> Any:
        return ZeroRenameSparkSubmitOperator(task_id="load", application=str(JOB_FILE), **given)

    assert walk(tables, by_spark_submit(spark, make), connect, committer) == []


@pytest.mark.parametrize("committer", [NATIVE, "directory"])
def test_function_of_a_dag_file_honours_or_refuses_each_policy(
    tables: Tables, spark: FakeSpark, connect: Connect, committer: str
) -> None:
    def make(**given: Any) -> Any:
        made: Any = zero_rename_task(load, **given)
        return made().operator

    assert walk(tables, by_spark_submit(spark, make), connect, committer) == []


@pytest.mark.parametrize(
    ("service", "committer"),
    [*((name, NATIVE) for name in SERVICES), *BY_HADOOP],
    indirect=["service"],
)
def test_service_honours_or_refuses_each_policy(
    service: Service, tables: Tables, connect: Connect, committer: str
) -> None:
    def make(**given: Any) -> Any:
        # Pods share what is pending by a volume of their template.
        accepts = {"spark.zero_rename.s3a.accept": "staging-not-shared"}
        shares = service_loads.request_with(service, accepts) if committer in STAGING else {}
        return service_loads.operator(service, **{"retries": 0, "mode": None, **shares, **given})

    def submitted() -> Submissions:
        found: Submissions = [
            (service.variables(it), service.settings(it)) for it in service.requests
        ]
        service.requests.clear()
        return found

    assert walk(tables, Submitter(make, submitted), connect, committer) == []


@pytest.mark.parametrize("service", SERVICES, indirect=True)
def test_service_refuses_committers_that_it_does_not_run(service: Service) -> None:
    for committer in {*WORDS} - {NATIVE, *RULES[service.kind].words}:
        with pytest.raises(InvalidInputError, match=f"committer='{committer}'"):
            service_loads.operator(service, committer=committer)
