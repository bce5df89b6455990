"""What Airflow's discovery reads, checked against the schemas that Airflow ships."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import airflow
import jsonschema
import pytest
from airflow.sdk import BaseOperatorLink

from support.optional_providers import OF_THEM
from support.waiting import STUCK
from zero_rename.provider import get_provider_info
from zero_rename.provider.connection import ConnectionSettings

AIRFLOW = Path(airflow.__file__).parent
ROOT = Path(__file__).parents[2]


def schema(name: str) -> dict:
    return json.loads((AIRFLOW / name).read_text("utf-8"))


def test_it_is_valid_for_airflow() -> None:
    jsonschema.validate(get_provider_info(), schema("provider_info.schema.json"))


@pytest.mark.parametrize("part", ["connection-types", "config", "triggers", "integrations"])
def test_its_parts_are_valid_by_the_strict_schema(part: str) -> None:
    """The relaxed schema takes a misspelt ``hidden_fields``, which Airflow then ignores."""
    strict = schema("provider.yaml.schema.json")
    checked = strict["properties"][part] | {"definitions": strict.get("definitions", {})}
    jsonschema.validate(get_provider_info()[part], checked)
    broken = json.loads(json.dumps(get_provider_info()["connection-types"]))
    broken[0]["ui-field-behaviour"]["hidden_fields"] = ["host"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, strict["properties"]["connection-types"])


def test_all_it_names_exists() -> None:
    info = get_provider_info()
    for kind in ("operators", "sensors", "hooks", "triggers"):
        for entry in info[kind]:
            for module in entry["python-modules"]:
                # Those of providers that are not installed here are found, and not imported.
                assert find_spec(module) if module in OF_THEM else import_module(module)
    names = [info["connection-types"][0]["hook-class-name"], *info["extra-links"]]
    names += [decorator["class-name"] for decorator in info["task-decorators"]]
    for name in names:
        module, _, member = name.rpartition(".")
        assert hasattr(import_module(module), member)


def test_form_that_is_saved_as_it_is_says_no_policy() -> None:
    """Airflow's form saves the defaults of all its fields with the first one that is filled in; a
    load of a Delta table, or by one of Hadoop's committers, was refused by the one of _SUCCESS."""
    fields = get_provider_info()["connection-types"][0]["conn-fields"]
    saved = {name: field["schema"].get("default") for name, field in fields.items()}
    settings = ConnectionSettings.from_extra(saved | {"table_root": "s3://lake/wh"}, "c")
    assert settings == ConnectionSettings(conn_id="c", table_root="s3://lake/wh")


def test_every_link_of_an_operator_is_listed() -> None:
    """A link that is not listed is dropped when a serialised DAG is read."""
    links = {
        f"{value.__module__}.{value.__name__}"
        for value in vars(import_module("zero_rename.provider.links")).values()
        if isinstance(value, type) and issubclass(value, BaseOperatorLink)
        if value is not BaseOperatorLink
    }
    assert links == set(get_provider_info()["extra-links"])


def test_every_module_of_operators_and_sensors_is_listed() -> None:
    info = get_provider_info()
    for kind in ("operators", "sensors"):
        there = {
            f"zero_rename.{kind}.{path.stem}"
            for path in (ROOT / kind).glob("*.py")
            if path.stem != "__init__"
        }
        assert there == {name for entry in info[kind] for name in entry["python-modules"]}


def test_it_imports_nothing_heavy() -> None:
    program = (
        "import sys; from zero_rename.provider import get_provider_info; get_provider_info();"
        "print([n for n in ('airflow', 'boto3', 'botocore', 'pyarrow', 'pyspark', 'numpy')"
        " if n in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=STUCK
    )
    assert ast.literal_eval(answer.stdout) == []


PROGRAM = """
import json
from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
hook = manager.hooks["zero_rename"]
prefix = "extra__zero_rename__"
from airflow.configuration import conf
from airflow.sdk.plugins_manager import integrate_macros_plugins
integrate_macros_plugins()
from airflow.sdk.execution_time import macros
print("ANSWER", json.dumps({
    "provider": manager.providers["airflow-provider-zero-rename"].version,
    "hook": [hook.hook_class_name, hook.hook_name, hook.connection_type],
    "testable": hook.connection_testable,
    "fields": [
        w.field_name for n, w in manager.connection_form_widgets.items() if n.startswith(prefix)
    ],
    "behaviour": manager.field_behaviours["zero_rename"],
    "links": "zero_rename.provider.links.TableConsoleLink" in manager.extra_links_class_names,
    "config": conf.get("zero_rename", "purge_floor_hours"),
    "macro": macros.zero_rename.idempotency_key_of("a", "b", "c"),
}))
"""


def test_airflow_finds_it_by_its_entry_points() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=STUCK
    )
    assert answer.returncode == 0, answer.stderr
    line = next(x for x in answer.stdout.splitlines() if x.startswith("ANSWER "))
    shown = json.loads(line.removeprefix("ANSWER "))
    assert shown["provider"]
    assert shown["hook"] == [
        "zero_rename.provider.hooks.ZeroRenameHook",
        "Zero Rename",
        "zero_rename",
    ]
    assert shown["testable"] is True
    assert shown["fields"] == list(get_provider_info()["connection-types"][0]["conn-fields"])
    assert {"login", "password", "extra"} <= set(shown["behaviour"]["hidden_fields"])
    assert shown["behaviour"]["placeholders"]["extra__zero_rename__table_root"].startswith("s3://")
    assert shown["links"] is True
    assert shown["config"] == "24"
    assert shown["macro"] == "a/b/c"
