"""What an error tells its reader to do can be done: the commands, options, arguments, settings
and files that advice names exist.

Advice is every text of the package that is prose, remedies among them: a string with a space and
without a line break that is no docstring. So no remedy is missed for the way it reaches its error.
What f-strings put in is ``{}`` here, which may be anything.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import dagster
import pytest
import typer
from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import dagster_zero_rename
import support.airflow  # noqa: F401 - Airflow's home comes before the first import of Airflow
import zero_rename
from dagster_zero_rename import ZeroRenameIOManager, ZeroRenameResource
from support.optional_providers import OF_THEM
from zero_rename import JobSpec, Table
from zero_rename.catalog import sync_catalog
from zero_rename.cli import app
from zero_rename.committer import FileOptions
from zero_rename.orchestration.job_query import ON_FOREIGN_MARKER
from zero_rename.orchestration.runs.task_run import ON_REPEAT
from zero_rename.provider import get_provider_info
from zero_rename.provider.connection import ConnectionSettings
from zero_rename.provider.staleness import ON_STALE
from zero_rename.s3a.hadoop.settings import CONFLICT_MODE_OF, Committer, S3ASettings
from zero_rename.spark import delete, load, merge, save, stream, update
from zero_rename.spark.option_table import camel
from zero_rename.spark.options import ReaderOptions, WriterOptions
from zero_rename.tables import DeltaTable

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
#: The examples are programs that call the package, not the package.
FOLDERS = sorted(
    folder
    for name in PROJECT["tool"]["setuptools"]["packages"]
    if (folder := name.removeprefix("zero_rename.")) not in ("zero_rename", "example_dags")
    and "." not in folder
)

# The advice


@dataclass(frozen=True)
class Advice:
    place: str
    text: str


def rendered(node: ast.AST) -> str | None:
    """A string's text, an f-string's with ``{}`` for what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
        )
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def strings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of every string but docstrings."""
    text = rendered(node)
    if text is not None:
        yield node.lineno, text  # pyrefly: ignore[missing-attribute]
    if isinstance(node, ast.Expr) and rendered(node.value) is not None:
        return
    for child in ast.iter_child_nodes(node):
        if not (isinstance(node, ast.JoinedStr) and isinstance(child, ast.Constant)):
            yield from strings(child)


@cache
def package_strings() -> tuple[Advice, ...]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, text in strings(ast.parse(path.read_text("utf-8"))):
                found.append(Advice(f"{path.relative_to(ROOT)}:{line}", text))
    return tuple(found)


def is_prose(text: str) -> bool:
    return re.search(r"\S \S", text) is not None and "\n" not in text


@cache
def advice() -> tuple[Advice, ...]:
    return tuple(one for one in package_strings() if is_prose(one.text))


@cache
def constants() -> frozenset[str]:
    """Strings that are no prose: names of settings and variables that the package looks at."""
    return frozenset(one.text for one in package_strings() if not is_prose(one.text))


# What there is


@cache
def cli_commands() -> dict[str, set[str]]:
    """The options of each command of the command line."""
    group: Any = typer.main.get_command(app)
    return {
        name: {
            option
            for one in (command, *getattr(command, "commands", {}).values())
            for parameter in one.params
            for option in (*parameter.opts, *getattr(parameter, "secondary_opts", ()))
        }
        for name, command in group.commands.items()
    }


@cache
def make_targets() -> set[str]:
    rules = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    return set(rules)


@cache
def airflow_parser() -> argparse.ArgumentParser:
    from airflow.cli.cli_parser import get_parser

    return get_parser()


def below(parser: argparse.ArgumentParser, word: str) -> argparse.ArgumentParser | None:
    """The parser of a sub-command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices.get(word)
    return None


def has_commands(parser: argparse.ArgumentParser) -> bool:
    return any(isinstance(action, argparse._SubParsersAction) for action in parser._actions)


@cache
def modules() -> tuple[Any, ...]:
    found = [
        *walk_packages(zero_rename.__path__, "zero_rename."),
        *walk_packages(dagster_zero_rename.__path__, "dagster_zero_rename."),
    ]
    names = [module.name for module in found if ".example_dags" not in module.name]
    return tuple(import_module(name) for name in names if name not in OF_THEM)


@cache
def classes() -> dict[str, type]:
    """The classes that the package defines, by name."""
    return {
        name: value
        for module in modules()
        for name, value in vars(module).items()
        if inspect.isclass(value)
        and value.__module__.startswith(("zero_rename.", "dagster_zero_rename."))
    }


def parameters(function: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(inspect.unwrap(function)).parameters)


@cache
def arguments() -> frozenset[str]:
    """What can be given by name: arguments of operators and sensors, of a table's methods, of
    ``save()``, ``load()`` and ``stream()``, of Dagster's resource and assets, options of the data
    source, fields of connections, options of the configuration."""
    from airflow.sdk import BaseOperator

    names: set[str] = set()
    for kind in classes().values():
        if issubclass(kind, BaseOperator):
            for ancestor in kind.__mro__[:-1]:
                if "__init__" in vars(ancestor):
                    names |= parameters(vars(ancestor)["__init__"])
    methods = (inspect.getmembers(kind, inspect.isfunction) for kind in (Table, DeltaTable))
    for name, method in chain.from_iterable(methods):
        names |= parameters(method) if not name.startswith("_") else set()
    verbs = (save, load, stream, merge, update, delete)
    for function in (*verbs, ZeroRenameResource.write, dagster.asset):
        names |= parameters(function)
    names |= {*ZeroRenameResource.model_fields, *ZeroRenameIOManager.model_fields}
    kinds = (JobSpec, FileOptions, S3ASettings, ConnectionSettings, WriterOptions, ReaderOptions)
    names |= {field.name for kind in kinds for field in fields(kind)}
    names |= set(get_provider_info()["config"]["zero_rename"]["options"])
    names |= parameters(sync_catalog)
    return frozenset(names) | data_source_options()


@cache
def data_source_options() -> frozenset[str]:
    found = [field for kind in (WriterOptions, ReaderOptions) for field in fields(kind)]
    others = (name for field in found for name in field.metadata["also"])
    return frozenset((*(camel(field.name) for field in found), *others))


@cache
def words_of_enumerations() -> frozenset[str]:
    kinds = [kind for kind in classes().values() if issubclass(kind, StrEnum)]
    return frozenset(str(member) for kind in kinds for member in kind)


@cache
def choices() -> dict[str, set[str]]:
    """The words that an argument takes, where they are few."""
    enumerations = {
        field.name: {str(member) for member in kind}
        for field in fields(JobSpec)
        if (kind := classes().get(str(field.type))) is not None and issubclass(kind, StrEnum)
    }
    return {
        **enumerations,
        "mode": {"append", "overwrite", "replace", "fail-if-exists", "merge"},
        "committer": {"zero_rename", *map(str, Committer)},
        "conflict_mode": set(CONFLICT_MODE_OF),
        "on_repeat": set(ON_REPEAT),
        "on_foreign_marker": set(ON_FOREIGN_MARKER),
        "on_stale": set(ON_STALE),
        "deploy_mode": {"client", "cluster"},
    }


#: Partition columns of examples of paths.
EXAMPLE_COLUMNS = {"name", "column", "year", "day", "hour"}
#: What of spark-submit's own command line is spoken of.
SPARK_SUBMIT = {"--conf", "--jars", "--packages", "--py-files", "--properties-file"}
#: After ``make``, these are English.
ENGLISH = {"sure", "it", "that", "the", "a", "one", "only", "all", "some", "its"}
ENGLISH |= {"again", "everything", "stale", "them"}
#: Words with a capital inside, or an underscore, that are names of things rather than of options.
NAMES = {"macOS", "zero_rename", "arrow_ipc", "sync_catalog"}
#: Arguments of functions of other libraries.
THEIRS = {"index_col", "partition_key"}
NAMES |= THEIRS | {"dag_id", "run_id", "triggering_asset_events"}
#: Words of other engines' SQL, which the package prints.
NAMES |= {"external_location", "partitioned_by", "sync_partition_metadata", "read_parquet"}
NAMES |= {"timestamp_ntz", "hive_partitioning", "hive_types", "union_by_name", "delta_scan"}
NAMES |= {"schema_name", "table_name", "table_location", "timeZone"}
#: Members of requests to services that run Spark.
NAMES |= {"entryPoint", "new_cluster", "apiVersion", "template_spec", "application_file"}
NAMES |= {"spark_submit_task", "spark_python_task", "python_file", "spark_conf"}
NAMES |= {"restartPolicy", "sparkConf", "hadoopConf", "retryPolicy", "runtimeConfiguration"}
NAMES |= {"sparkSubmitParameters"}
#: Members of a Delta log's actions, and features of Delta tables.
NAMES |= {"metaData", "columnMapping", "deletionVectors", "typeWidening"}
#: Members of an AWS connection's extra, and of a request for a role.
_WRAPPER = import_module("airflow.providers.amazon.aws.utils.connection_wrapper")
NAMES |= {field.name for field in fields(_WRAPPER.AwsConnectionWrapper)} | {"DurationSeconds"}
NAMES |= {"config_kwargs", "session_kwargs"}
#: A setting of Spark's, by its last word.
NAMES |= {"useV1SourceList"}


# The rules: each yields what a text names that does not exist


def bad_commands(text: str) -> Iterator[str]:
    """``zero-rename <command> … --option``, up to the end of the clause."""
    spoken = r"(?<![\w-])zero-rename (?!(?:committer )?paper\b)([\w-]+)([^;`.\n]*)"
    for name, rest in re.findall(spoken, text):
        options = cli_commands().get(name)
        if options is None:
            yield f"zero-rename {name}"
            continue
        rest = rest.partition("zero-rename ")[0]
        yield from (f"zero-rename {name} {o}" for o in long_options(rest) if o not in options)


def bad_make_targets(text: str) -> Iterator[str]:
    for target in re.findall(r"\bmake ([a-z][\w-]*)", text):
        if target not in make_targets() | ENGLISH:
            yield f"make {target}"


def bad_airflow_commands(text: str) -> Iterator[str]:
    """``airflow <group> <command> … --option``; ``airflow roles`` comes with FAB's provider."""
    for said in re.findall(r"(?<![\w.-])(?<!policy )airflow (?!roles )([a-z][^;`.\n]*)", text):
        parser, words = airflow_parser(), said.split()
        while words and has_commands(parser):
            word = words.pop(0)
            inner = below(parser, word)
            if inner is None:
                yield f"airflow {said}"
                break
            parser = inner
        else:
            known = parser._option_string_actions
            yield from (f"airflow … {o}" for o in long_options(" ".join(words)) if o not in known)


def bad_packages(text: str) -> Iterator[str]:
    """``pip install 'name>=1'``: of what this project is made of."""
    project = PROJECT["project"]
    extras = [one for names in project["optional-dependencies"].values() for one in names]
    known = {
        re.split(r"[^\w.-]", named)[0]
        for named in (*project["dependencies"], *extras, project["name"])
    }
    for name in re.findall(r"pip install '?([\w-]+)", text):
        if name not in known:
            yield f"pip install {name}"


def bad_options(text: str) -> Iterator[str]:
    """``--option`` of any command."""
    own = {option for options in cli_commands().values() for option in options}
    text = re.sub(r"(?<![\w.-])(?<!policy )airflow [a-z][^;`.\n]*", "", text)
    yield from (o for o in long_options(text) if o not in own | SPARK_SUBMIT)


def bad_arguments(text: str) -> Iterator[str]:
    """``name=value`` and ``NAME=value``: an argument and one of its words, or a variable."""
    given = re.findall(r"(?<![\w.:{}/$-])([A-Za-z_]\w+)=(?!=)('[^']*'|[\w.-]*)", text)
    for name, value in given:
        word = value.strip("'.")
        if name.isupper():
            if name not in constants():
                yield f"{name}="
        elif name not in arguments() | EXAMPLE_COLUMNS | THEIRS:
            yield f"{name}="
        elif value and (word not in choices().get(name, {word}) or not is_read(name, word)):
            yield f"{name}={word}"


def is_read(name: str, value: str) -> bool:
    """Whether the data source takes this value, where it is an option of its own."""
    for option in (*fields(WriterOptions), *fields(ReaderOptions)):
        if name in (option.name, camel(option.name)):
            try:
                option.metadata["parse"](value)
            except ValueError:
                return False
    return True


def bad_words(text: str) -> Iterator[str]:
    """Words in the spelling of options (``partitionBy``) and arguments (``partition_by``)."""
    for word in re.findall(r"(?<![\w.{}])[a-z]+[A-Z]\w*", text):
        if word not in data_source_options() | NAMES and not in_spark(word):
            yield word
    for quote, word in re.findall(r"(\"?)(?<![\w./{}-])([a-z]\w*_\w+)(?![\w({}])", text):
        # A value, where it is quoted.
        known = constants() if quote else words_of_enumerations() | NAMES
        if word not in arguments() | known:
            yield word


def in_spark(name: str) -> bool:
    """Whether an entry point of Spark's has a method of that name."""
    entries = (SparkSession, DataFrame, DataFrameReader, DataFrameWriter, DataStreamWriter)
    return any(hasattr(entry, name) for entry in entries)


def bad_settings(text: str) -> Iterator[str]:
    """Settings of Spark and Hadoop: ones that the package itself looks at or sets."""
    for key in re.findall(r"(?<![\w./-])(?:spark|fs|mapreduce|parquet)(?:\.[\w-]*\w)+", text):
        bare = key.removeprefix("spark.hadoop.")
        method = key.removeprefix("spark.").partition(".")[0]
        if {key, bare} & constants() or key == "spark.hadoop" or in_spark(method):
            continue
        yield key


def bad_names(text: str) -> Iterator[str]:
    """Operators and sensors, functions by their whole name, and pages."""
    for name in re.findall(r"\b[A-Z]\w+(?:Operator|Sensor)\b", text):
        if name not in classes():
            yield name
    for dotted in re.findall(r"(?<![\w.])zero_rename(?:\.\w+)+", text):
        module, _, name = dotted.rpartition(".")
        found = import_module(module)
        if not hasattr(found, name) and (
            not hasattr(found, "__path__") or find_spec(dotted) is None
        ):
            yield dotted
    for page in re.findall(r"\bdocs/[\w-]+\.md\b", text):
        if not (ROOT / page).is_file():
            yield page


def long_options(text: str) -> list[str]:
    return re.findall(r"(?<![\w-])--[a-z][\w-]*", text)


RULES = (
    *(bad_commands, bad_make_targets, bad_airflow_commands, bad_packages, bad_names),
    *(bad_options, bad_arguments, bad_words, bad_settings),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_what_advice_names_exists(rule: Callable[[str], Iterator[str]]) -> None:
    assert [f"{one.place}: {bad}" for one in advice() for bad in rule(one.text)] == []


PAGES = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_the_commands_of_a_page_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    found = [*bad_commands(text), *bad_airflow_commands(code_of(text))]
    assert found == []


def code_of(page: str) -> str:
    """What a page sets in the type of code: there, ``airflow`` is the command."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", page, re.DOTALL))


# The test of the test


@pytest.mark.parametrize(
    ("rule", "right", "wrong"),
    [
        (bad_commands, "Finish it: zero-rename recover {}", "Finish it: zero-rename finish {}"),
        (bad_commands, "zero-rename repair {} --job {}", "zero-rename repair {} --task {}"),
        (bad_make_targets, "Run make setup again.", "Run make install again."),
        (
            bad_airflow_commands,
            "airflow connections add {} --conn-host 'local[*]', or another",
            "airflow connections add {} --hostname 'local[*]', or another",
        ),
        (bad_packages, "pip install 'pyspark>=4' there", "pip install 'spark>=4' there"),
        (bad_options, "Give --older-than as well.", "Give --older as well."),
        (bad_arguments, "Give on_repeat='skip' to", "Give on_repetition='skip' to"),
        (bad_arguments, "Give on_repeat='skip' to", "Give on_repeat='omit' to"),
        (bad_arguments, "choose on_conflict=last_wins.", "choose on_conflict=last_win."),
        (bad_arguments, "Set PYSPARK_PYTHON={} before", "Set SPARK_PYTHON={} before"),
        (bad_words, "Raise part_bytes, or", "Raise bytes_per_part, or"),
        (bad_words, "by insertInto or saveAsTable", "by insertTo or saveAsTable"),
        (bad_settings, "Set spark.yarn.maxAppAttempts=1", "Set spark.yarn.maxAttempts=1"),
        (bad_names, "run RecoverJobsOperator on it", "run RecoverTableOperator on it"),
        (bad_names, "call zero_rename.spark.save, which", "call zero_rename.spark.write, which"),
        (bad_names, "docs/s3a.md has the reason", "docs/traps.md has the reason"),
    ],
)
def test_a_rule_tells_what_exists_from_what_does_not(
    rule: Callable[[str], Iterator[str]], right: str, wrong: str
) -> None:
    assert list(rule(right)) == []
    assert len(list(rule(wrong))) == 1


#: What is told of them is that they are several.
NEVER_ONE = {
    *("committer/format/handoff.py", "dagster_zero_rename/asset_step.py"),
    *("orchestration/partitions_query.py", "provider/assets/lineage.py"),
}
NOUNS = "file|row|upload|partition|job|object|write|tr(y|ie)|task|manifest|set|column|key|record"
COUNTED = re.compile(rf" (\w+ )?({NOUNS})s\b")


def uncounted(tree: ast.AST) -> Iterator[int]:
    """Lines of f-strings in which a length stands before a noun that is always plural."""
    for node in ast.walk(tree):
        for number, noun in pairwise(getattr(node, "values", ())):
            if (
                isinstance(number, ast.FormattedValue)
                and ast.unparse(number.value).startswith("len(")
                and isinstance(noun, ast.Constant)
                and COUNTED.match(str(noun.value))
            ):
                yield number.lineno


def test_a_number_and_its_noun_agree() -> None:
    """Not "1 files": ``committer.errors.counted`` says it."""
    assert list(uncounted(ast.parse("f'{len(x)} files and {len(y)} open jobs'"))) == [1, 1]
    assert list(uncounted(ast.parse("f'{counted(len(x), \"file\")} of {n} files'"))) == []
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if any(uncounted(ast.parse(path.read_text("utf-8"))))
    }
    assert found == NEVER_ONE
