"""docs/policies.md: what each committer does about each policy of a load, as the code has it.

``python -m docs.extensions.policies`` writes it anew. The calls are in policies.toml. Whether a
cell is honoured or refused, and in which words, is what the product's own checks say of the call;
tests/operators/test_policies.py submits each one.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagster_zero_rename.asset_write import WritePolicy
from dagster_zero_rename.registration import Registration
from dagster_zero_rename.spark.spark_load import check_application_policies
from zero_rename.committer.commit.uncoordinated import check_uncoordinated
from zero_rename.committer.errors import ZeroRenameError
from zero_rename.committer.format.handoff import Handoff
from zero_rename.committer.format.job_spec import Coordination, JobSpec, SchemaMode
from zero_rename.committer.format.layout import TableRoot
from zero_rename.committer.format.records.success_marker import COMMITTER as NATIVE
from zero_rename.committer.format.run_rank import RunRanks
from zero_rename.committer.store.encryption import Encryption
from zero_rename.orchestration.load_policies import check_policies
from zero_rename.s3a.hadoop.settings import COMMITTERS, Committer
from zero_rename.s3a.services import RULES, check_word
from zero_rename.spark.options import writer_options
from zero_rename.spark.write_target import resolve

from .tables import between

DOCUMENT = Path(__file__).resolve().parents[1] / "policies.md"
TESTS = DOCUMENT.parents[1] / "tests"
ROOT = TableRoot.parse("s3://bucket/wh/flights")
HONOURED = "honoured"
WORDS = tuple(map(str, COMMITTERS))
#: Tables of directories, by what a job that makes one says.
TABLES: Mapping[str, Mapping[str, Any]] = {
    "coordination=store": {},
    "coordination=none": {"coordination": Coordination.NONE},
}


@dataclass(frozen=True)
class Case:
    """A policy, as a call says it.

    :param said: its arguments.
    :param connection: members of its connection or resource.
    :param handed: what is to be seen of it in what is submitted; ``by_hadoop`` where one of
        Hadoop's committers writes.
    :param native: the test that shows what is done; ``hadoop`` by Hadoop's committers.
    """

    said: Mapping[str, Any] = field(default_factory=dict)
    connection: Mapping[str, Any] = field(default_factory=dict)
    handed: Mapping[str, Any] = field(default_factory=dict)
    by_hadoop: Mapping[str, Any] | None = None
    native: str = ""
    hadoop: str = ""

    def __str__(self) -> str:
        """The call, as a user writes it."""
        own = [f"{name}={_code(value)}" for name, value in self.said.items()]
        return ", ".join([*own, *(f"connection: {_pair(it)}" for it in self.connection.items())])

    def seen(self, committer: str) -> Mapping[str, Any]:
        """What is to be seen of it where a committer writes."""
        hadoop = self.handed if self.by_hadoop is None else self.by_hadoop
        return self.handed if committer == NATIVE else hadoop

    def shown_by(self, column: str) -> str:
        """The test that shows what is done in a column."""
        return self.hadoop if column in list(Committer) else self.native


def _pair(member: tuple[str, Any]) -> str:
    return f"{member[0]}={_code(member[1])}"


def _code(value: Any) -> str:
    return str(value) if isinstance(value, bool) else json.dumps(value)


def _cases() -> dict[str, tuple[Case, ...]]:
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return {entry: tuple(Case(**it) for it in cases) for entry, cases in read.items()}


#: By who is called: ``airflow``, ``save``, ``job``, ``dagster``.
CASES = _cases()


def ask_airflow(case: Case, committer: str) -> None:
    """Ask what every operator asks before it submits.

    :raises ZeroRenameError: the call is refused.
    """
    given = dict(case.said)
    given.setdefault("partition", "day=1")
    partition = given["partition"]
    named = [partition] if isinstance(partition, str) else partition
    # On use: what imports Airflow has to choose its settings first.
    from zero_rename.operators.loading.load import POLICIES

    own = {name: parse(given[name]) for name, parse in POLICIES.items() if name in given}
    said = {**dict.fromkeys(POLICIES), **case.connection, **own}
    said["catalog"] = given.get("catalog", case.connection.get("catalog"))
    said["partitions"] = () if named == ["*"] else tuple(named)
    check_policies(committer, said, given.get("s3a_options"))


def ask_save(case: Case, committer: str) -> Any:
    """Ask ``save()``. Returns the options that the native writer gets.

    :raises ZeroRenameError: the call is refused.
    """
    call: dict[str, Any] = {"partition_by": ["day"], **case.said}
    target = resolve(ROOT.url, Handoff(), committer=committer, **call)
    return writer_options(target.options, Handoff(), target.named_options)


def ask_job(case: Case, kind: str) -> JobSpec:
    """Ask ``Table.job`` of a new table of directories. Returns the job.

    :raises ZeroRenameError: the call is refused.
    """
    spec = JobSpec(pa.schema([("day", pa.int32())]), **{**TABLES[kind], **case.said})
    if spec.coordination is Coordination.NONE:
        check_uncoordinated(ROOT, spec)
    return spec


def ask_dagster(case: Case, committer: str) -> None:
    """Ask the load of an asset by an application that Dagster submits.

    :raises ZeroRenameError: the call is refused.
    """
    given = {**case.said, **case.connection}
    catalog = given.pop("catalog", None)
    if "schema_mode" in given:
        given["schema_mode"] = SchemaMode(given["schema_mode"])
    if "encryption" in given:
        given["encryption"] = Encryption.parse(given["encryption"])
    given["merge_on"] = tuple(given.get("merge_on", ()))
    registration = None if catalog is None else Registration(catalog, lambda: None)
    policy = WritePolicy(**given, registration=registration)
    check_application_policies(policy, committer, ("day=1",))


#: By who is called, the columns and who is asked.
ENTRIES: Mapping[str, tuple[tuple[str, ...], Callable[[Case, str], Any]]] = {
    "airflow": (WORDS, ask_airflow),
    "save": (WORDS, ask_save),
    "job": (tuple(TABLES), ask_job),
    "dagster": (WORDS, ask_dagster),
}


def refusal(entry: str, case: Case, column: str) -> ZeroRenameError | None:
    """Return the error by which a call is refused; ``None``: it is honoured."""
    try:
        ENTRIES[entry][1](case, column)
    except ZeroRenameError as error:
        return error
    return None


def value_text(value: Any) -> Any:
    """Return a value of a hand-off as the table has it."""
    if isinstance(value, RunRanks):
        return str(value.rank(""))
    return list(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _cells(entry: str, case: Case) -> Iterator[str]:
    """A case's cells; a refusal in the words of the column before says so."""
    before, words = "", ""
    for column in ENTRIES[entry][0]:
        error = refusal(entry, case, column)
        if error is None:
            yield f"{HONOURED} ([test]({_test(case.shown_by(column))}))"
            continue
        said = str(error.message)
        same = said.replace(column, "…")
        yield f"refused, as `{before}`" if same == words else f"refused: {_escaped(said)}"
        before, words = (before, words) if same == words else (column, same)


def _escaped(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|").replace("_", "\\_").replace("*", "\\*")


def _test(name: str) -> str:
    file = name.partition("::")[0]
    return f"../tests/{file}"


def page(text: str) -> str:
    """Return the page with what the code says now between its marks."""
    for entry in ENTRIES:
        text = between(text, entry, table(entry))
    return between(text, "operators", operators())


def table(entry: str) -> str:
    """Return the table of who is called."""
    columns, _ = ENTRIES[entry]
    rows = ((f"`{case}`", *_cells(entry, case)) for case in CASES[entry])
    return _markdown(("policy", *(f"`{it}`" for it in columns)), rows)


def operators() -> str:
    """Return the table of Airflow's operators and the committers that each takes."""
    spark = (
        ("`ZeroRenameSparkSubmitOperator`", *("yes" for _ in WORDS)),
        ("`@task.zero_rename`", *("yes" for _ in WORDS)),
    )
    services = ((f"`{it}`", *(_takes(it, word) for word in WORDS)) for it in RULES)
    return _markdown(("operator", *(f"`{it}`" for it in WORDS)), (*spark, *services))


def _takes(service: Any, word: str) -> str:
    if word == NATIVE:
        return "yes"
    try:
        check_word(service, word)
    except ZeroRenameError as error:
        return f"refused: {_escaped(str(error.message))}"
    return "yes"


def _markdown(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def lines() -> Iterator[str]:
        yield f"| {' | '.join(columns)} |"
        yield "|---" * len(tuple(columns)) + "|"
        yield from (f"| {' | '.join(row)} |" for row in rows)

    return "\n".join(lines())


if __name__ == "__main__":
    DOCUMENT.write_text(page(DOCUMENT.read_text("utf-8")), "utf-8")
