"""docs/policies.md, and the cells of it that need no operator: ``save()`` and ``Table.job``."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from docs.extensions import policies
from docs.extensions.policies import CASES, ENTRIES, HONOURED, TABLES, TESTS, WORDS, Case
from support.memory_store import MemoryStore
from support.protocol import SCHEMA, memory_table
from zero_rename.committer import RefusedError
from zero_rename.committer.format.job_spec import JobSpec
from zero_rename.operators.loading.load import LoadOperator
from zero_rename.spark.options import WriterOptions

#: Options of the native writer that say who runs a job, or which the table's rows repeat.
_NO_POLICIES = ("path", "dag", "run", "task", "map_index", "try_number", "series")


def cells(entry: str, columns: tuple[str, ...]) -> list[tuple[Case, str]]:
    return [(case, column) for case in CASES[entry] for column in columns]


def test_page_is_up_to_date() -> None:
    """Write it anew: python -m docs.extensions.policies"""
    text = policies.DOCUMENT.read_text("utf-8")
    assert policies.page(text) == text


@pytest.mark.parametrize("entry", ENTRIES)
def test_each_cell_is_honoured_with_a_test_or_refused(entry: str) -> None:
    rows = [line for line in policies.table(entry).splitlines()[2:]]
    for line in rows:
        _, *found = line.strip("| ").split(" | ")
        assert len(found) == len(ENTRIES[entry][0])
        for cell in found:
            assert cell.startswith("refused") or f"{HONOURED} ([test](../tests/" in cell, line
            assert "(../tests/)" not in cell, line


def test_each_policy_of_an_operator_stands_in_the_table() -> None:
    """What is told to assets is asked of the report, which every committer leaves."""
    named = {name for case in CASES["airflow"] for name in case.said} | {"table", "committer"}
    others = {"asset_partitions", "zero_rename_conn_id"}
    assert {*LoadOperator.template_fields} - named == others


def test_tests_that_the_table_names_exist() -> None:
    for entry, cases in CASES.items():
        for case in cases:
            for named in filter(None, (case.native, case.hadoop)):
                file, _, name = named.partition("::")
                assert f"def {name}(" in (TESTS / file).read_text("utf-8"), (entry, named)


@pytest.mark.parametrize(("case", "committer"), cells("save", WORDS), ids=str)
def test_save_hands_a_policy_to_its_writer_or_refuses_it(case: Case, committer: str) -> None:
    error = policies.refusal("save", case, committer)
    if error is not None:
        assert isinstance(error, RefusedError)
        assert error.remedy
        return
    options = policies.ask_save(case, committer)
    for member, value in case.seen(committer).items():
        if member != "base":
            assert policies.value_text(getattr(options, member)) == value
    assert ("base" not in case.handed) or options.base is not None


@pytest.mark.parametrize(
    "name", [it.name for it in dataclasses.fields(WriterOptions) if it.name not in _NO_POLICIES]
)
@pytest.mark.parametrize("spelling", ["camel", "snake"])
def test_each_option_of_the_native_writer_is_refused_with_magic(name: str, spelling: str) -> None:
    """But for those that Spark's writer of Parquet has itself."""
    first, *rest = name.split("_")
    camel = first + "".join(map(str.capitalize, rest))
    value = "newest_run" if name == "on_conflict" else "1"
    case = Case(said={"options": {camel if spelling == "camel" else name: value}})
    error = policies.refusal("save", case, "magic")
    assert (error is None) == (name == "compression")


@pytest.mark.parametrize(("case", "kind"), cells("job", tuple(TABLES)), ids=str)
def test_job_of_a_table_keeps_a_policy_or_refuses_it(case: Case, kind: str) -> None:
    error = policies.refusal("job", case, kind)
    store = MemoryStore()
    table = memory_table(store)
    given: dict[str, Any] = {**TABLES[kind], **case.said, "partition_by": ("day",)}
    if error is not None:
        with pytest.raises(RefusedError) as caught:
            table.open_job(JobSpec(SCHEMA, **given))
        assert caught.value.message == error.message
        assert store.upload_keys() == []
        return
    spec = table.open_job(JobSpec(SCHEMA, **given)).spec
    for member, value in case.handed.items():
        assert policies.value_text(getattr(spec, member)) == value
