"""What holds the house together: arrows between rooms, sizes, names; no machine in any file.

The rules stand in docs/architecture.md. An import inside a function or under ``TYPE_CHECKING``
counts as any other.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "zero_rename"
#: The one folder that is a package by its own name, as Dagster's integrations are.
DAGSTER = "dagster_zero_rename"
#: What each folder may import of ours, besides itself.
MAY_IMPORT = {
    "committer": set(),
    "log": {"committer"},
    "layouts": {"log", "committer"},
    "tables": {"layouts", "log", "committer"},
    "s3a": {"committer"},
    "spark": {"committer", "s3a", "tables"},
    "catalog": {"committer", "tables"},
    "lineage": {"committer", "tables"},
    "maintenance": {"committer", "s3a", "tables"},
    "cli": {"committer", "s3a", "catalog", "lineage", "maintenance", "tables"},
    "orchestration": {"committer", "s3a", "spark", "maintenance", "tables"},
    "provider": {
        *("orchestration", "committer", "s3a", "catalog", "lineage", "maintenance", "tables")
    },
    "operators": {
        *("provider", "orchestration", "committer", "s3a", "lineage", "maintenance", "tables")
    },
    "sensors": {"provider", "orchestration", "committer", "s3a", "lineage"},
    "example_dags": {"operators", "sensors", "provider", "committer", "spark"},
    DAGSTER: {
        *("orchestration", "committer", "s3a", "spark", "catalog", "lineage", "maintenance"),
        "tables",
    },
}
#: The only parts of a folder that another one may import, where that is not the whole.
ONLY = {
    ("orchestration", "spark"): "zero_rename.spark.startup",
    ("log", "committer"): (
        *("zero_rename.committer.store", "zero_rename.committer.errors"),
        "zero_rename.committer.format.layout",
        "zero_rename.committer.format.run_file",
        "zero_rename.committer.format.run_rank",
        "zero_rename.committer.format.settling",
        "zero_rename.committer.format.records.partition_ranks",
    ),
    ("layouts", "committer"): (
        *("zero_rename.committer.store", "zero_rename.committer.errors"),
        "zero_rename.committer.format.records.success_marker",
        "zero_rename.committer.format.schema.spark_types",
    ),
}
#: Within a folder: the rooms, and modules that lie beside them, that each may import besides
#: itself. A module that is not named here stands above all that are.
ROOMS: Mapping[str, Mapping[str, set[str]]] = {
    "committer": {
        "errors": set(),
        "sigterm": set(),
        "periodic": {"errors"},
        "store": {"errors"},
        "format": {"errors", "store"},
        "commit": {"errors", "store", "format"},
        "scan": {"errors", "store", "format", "commit"},
        "upkeep": {"errors", "store", "format", "commit", "scan"},
        "overview": {"errors", "store", "format", "commit", "upkeep"},
    },
    "committer/format": {
        "run_file": set(),
        "layout": {"run_file"},
        "row_changes": set(),
        "code_version": set(),
        "given_numbers": set(),
        "run_rank": {"given_numbers", "layout"},
        "settling": {"run_rank"},
        "job_spec": {
            *("code_version", "layout", "read_base", "row_changes", "run_rank", "settling"),
            "given_numbers",
        },
        "file_checks": {"given_numbers", "job_spec"},
        "schema": {"layout"},
        "records": {"job_spec", "layout", "row_changes", "run_rank", "schema", "settling"},
        "given_rows": {"schema"},
        "parquet": {"job_spec", "file_checks", "layout", "given_rows", "schema", "records"},
    },
    "committer/commit": {"state": set(), "index": {"state"}},
    "layouts": {"delta": set()},
    "committer/upkeep": {
        "gc": set(),
        "problem": set(),
        "recovery": set(),
        "repair": set(),
        "adopt": set(),
        "compaction": set(),
        "lost_partitions": set(),
        "put_back": {"problem"},
        "table_encryption": {"problem"},
        "conflicts": {"compaction"},
        "purging": {"recovery"},
        "doctor": {
            *("adopt", "lost_partitions", "problem", "purging", "put_back", "repair"),
            "table_encryption",
        },
    },
    "s3a": {
        "hadoop": set(),
        "checks": {"hadoop"},
        "runs": {"hadoop"},
        "verification": {"hadoop", "runs"},
        "recovery": {"hadoop", "runs", "verification"},
        "write_plan": {"hadoop"},
    },
    "spark": {
        "startup": {"java_classes"},
        "s3a": {
            *("options", "write_target", "job_tags", "startup", "column_names", "java_classes")
        },
        "reading": {
            *("options", "types", "worker", "session_settings", "planned_frame", "startup", "s3a"),
            *("column_names", "java_classes"),
        },
        "saving": {
            *("options", "types", "worker", "write_target", "job_tags", "startup", "reading"),
            *("session_settings", "planned_frame", "column_names", "java_classes"),
        },
        "changing": {
            *(
                "options",
                "pipes",
                "types",
                "worker",
                "write_target",
                "submitters",
                "startup",
                "reading",
            ),
            *("saving", "session_settings", "column_names"),
        },
    },
    "operators": {"loading": set()},
    "example_dags": {"jobs": set()},
    DAGSTER: {
        "spark": {
            *("asset_step", "asset_write", "distinct_keys", "event_metadata", "failures"),
            *("key_paths", "resource", "step_log", "waiting"),
        },
        "watch": {"asset_step", "asset_write", "event_metadata", "key_paths", "resource"},
    },
    "orchestration": {
        "runs": set(),
        "submit": set(),
        "s3a": {"runs", "submit"},
        "look": set(),
        "delta_query": {"look"},
        "job_query": {"delta_query", "s3a", "runs"},
    },
    "provider": {
        "assets": {"compat", "hooks", "table_watch"},
        "hooks": {"aws_identity", "compat", "connection"},
        "table_watch": {"compat", "hooks"},
        "triggers": {"table_watch"},
        "page": {"hooks", "table_watch"},
    },
}
#: The third parties that only some folders may know.
KNOWN_ONLY_TO = {
    "airflow": {"provider", "operators", "sensors", "example_dags"},
    "dagster": {DAGSTER},
    "dagster_pipes": {DAGSTER, "spark"},
    "pyspark": {"spark", "example_dags", DAGSTER},
    "py4j": {"spark"},
}
#: What is never installed, and the parts of it that may know a scheduler; the examples of one know
#: nothing of the other.
OUTSIDE = {
    "airflow": {"demo/airflow_worker.py", "examples/hadoop_committers/flights_magic.py"},
    "dagster": {"examples"},
    "dagster_pipes": set(),
    DAGSTER: {"examples"},
}
#: The folders of the repository beside the package that have code of their own.
SURROUNDINGS = ("examples", "demo", "tools", "benchmarks")
#: Where AWS's own library may be imported.
BOTO = ("committer/store/", "catalog/glue.py")


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).glob("**/*.py"))


def package_parts(path: Path) -> tuple[str, ...]:
    """The package that a module lies in."""
    parts = path.relative_to(ROOT).parent.parts
    return parts if parts[:1] == (DAGSTER,) else (PACKAGE, *parts)


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Absolute names of all that a module of ours imports, wherever in it."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    package = package_parts(path)
    for node in ast.walk(ast.parse(path.read_text("utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join((*base, *([node.module] if node.module else [])))
            # `from .. import committer` imports a sub-package by its name.
            yield from (f"{name}.{alias.name}" for alias in node.names)


def importing(paths: Iterable[Path], wrong: Callable[[str], object]) -> list[str]:
    """What modules import that is wrong, and which."""
    found = ((path.relative_to(ROOT).as_posix(), name) for path in paths for name in imports(path))
    return [f"{path} imports {name}" for path, name in found if wrong(name)]


def of_library(*libraries: str) -> Callable[[str], bool]:
    return lambda name: name.split(".")[0] in libraries


def known_folder(name: str) -> str | None:
    """The sub-package of ours that an imported name lies in."""
    parts = name.split(".")
    if parts[0] == DAGSTER:
        return DAGSTER
    if parts[0] != PACKAGE:
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else ""


def test_every_folder_has_its_rule() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    packages = project["tool"]["setuptools"]["packages"]
    folders = {name.removeprefix(f"{PACKAGE}.").split(".")[0] for name in packages}
    assert folders - {PACKAGE} == set(MAY_IMPORT)


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_point_one_way(folder: str) -> None:
    # The examples import as users do, from the package itself too.
    allowed = {*MAY_IMPORT[folder], folder, None, *([""] if folder == "example_dags" else [])}

    def wrong(name: str) -> bool:
        target = known_folder(name)
        return target not in allowed or not name.startswith(ONLY.get((folder, target or ""), ""))

    assert not importing(modules(folder), wrong)


def own_modules() -> dict[str, Path]:
    """The modules of the package by their names; a package's is its ``__init__``."""
    paths = [path for folder in MAY_IMPORT for path in modules(folder)]
    return {dotted(path): path for path in paths}


def dotted(path: Path) -> str:
    stem = () if path.stem == "__init__" else (path.stem,)
    return ".".join((*package_parts(path), *stem))


def imported_modules(path: Path, known: Mapping[str, Path]) -> set[str]:
    """The modules of ours that a module imports: ``from .room import name`` may be one or two."""
    found = set()
    for name in imports(path):
        module = name if name in known else name.rpartition(".")[0]
        if module in known and known[module] != path:
            found.add(module)
    return found


def module_arrows() -> dict[str, set[str]]:
    known = own_modules()
    return {name: imported_modules(path, known) for name, path in known.items()}


def test_no_modules_import_each_other() -> None:
    # A package's __init__ only says what it exports, and imports it on use.
    packages = {dotted(path) for path in own_modules().values() if path.name == "__init__.py"}
    arrows = {
        name: found - packages for name, found in module_arrows().items() if name not in packages
    }
    TopologicalSorter(arrows).prepare()  # A CycleError names the modules of a circle.


def room_of(module: str, folder: str) -> str | None:
    """The room of a module within its folder, or the module that lies beside the rooms."""
    inner = module.removeprefix(f"{PACKAGE}.").replace(".", "/")
    below, slash, rest = inner.partition(f"{folder}/")
    return rest.split("/")[0] if slash and not below else None


@pytest.mark.parametrize("folder", ROOMS)
def test_rooms_import_one_way(folder: str) -> None:
    rules = ROOMS[folder]
    wrong = [
        f"{name} imports {other}"
        for name, found in module_arrows().items()
        if (room := room_of(name, folder)) is not None and room in rules
        for other in sorted(found)
        if (target := room_of(other, folder)) is not None
        and target != room
        and target not in rules[room]
    ]
    assert not wrong


def test_the_rules_name_rooms_that_exist() -> None:
    named = {f"{folder}/{room}" for folder, rules in ROOMS.items() for room in rules}
    missing = {n for n in named if not (ROOT / n).is_dir() and not (ROOT / f"{n}.py").is_file()}
    assert not missing


def test_every_room_has_its_rule() -> None:
    rooms = {path.parent.relative_to(ROOT) for path in own_modules().values()}
    inner = {room.as_posix() for room in rooms if len(room.parts) > 1}
    assert inner <= {f"{folder}/{room}" for folder, rules in ROOMS.items() for room in rules}


def test_only_one_room_knows_boto() -> None:
    others = [
        path
        for path in own_modules().values()
        if not path.relative_to(ROOT).as_posix().startswith(BOTO)
    ]
    assert not importing(others, of_library("boto3", "botocore", "s3transfer"))


def test_steps_are_run_and_contexts_made_by_tables_alone() -> None:
    """Others ask a ``Table``, or a ``DeltaTable``; what it has no method for, they have it run."""
    leaks = re.compile(r"\bdriver\.run\b|\bContext\(")
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in own_modules().values()
        if path.relative_to(ROOT).parts[0] not in ("committer", "tables")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if leaks.search(line)
    ]
    assert not wrong


def test_no_class_name_stands_twice() -> None:
    """Private names count, and so does what surrounds the package."""
    around = [path for folder in SURROUNDINGS for path in modules(folder)]
    names = Counter(
        node.name.lstrip("_")
        for path in [*own_modules().values(), *around]
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_name_stands_twice_in_neighbouring_rooms() -> None:
    """Rooms of one folder, and the folder itself, are neighbours."""
    names = Counter(
        (path.relative_to(ROOT).parts[0], path.stem)
        for path in own_modules().values()
        if path.stem != "__init__"
    )
    assert [key for key, count in names.items() if count > 1] == []


def test_modules_begin_with_what_they_are() -> None:
    """A noun phrase that a stranger understands, not a question."""
    asks = re.compile(r"(What|Who|Whose|Which|Whether|Where|How)\b")
    wrong = [
        f"{path.relative_to(ROOT)}: {text.splitlines()[0]}"
        for path in own_modules().values()
        if asks.match(text := ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "What?")
    ]
    assert not wrong


@pytest.mark.parametrize("library", KNOWN_ONLY_TO)
def test_schedulers_and_engines_are_known_to_few(library: str) -> None:
    folders = MAY_IMPORT.keys() - KNOWN_ONLY_TO[library]
    paths = [path for folder in sorted(folders) for path in modules(folder)]
    assert not importing(paths, of_library(library))


@pytest.mark.parametrize("library", OUTSIDE)
def test_what_surrounds_the_package_knows_schedulers_where_it_says(library: str) -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in SURROUNDINGS
        for path in modules(folder)
        if any(map(of_library(library), imports(path)))
    }
    allowed = OUTSIDE[library]
    assert not {path for path in found if not {path, path.split("/")[0]} & allowed}
    assert all(any(path.startswith(known) for path in found) for known in allowed)


def test_environment_variables_are_named_in_one_place() -> None:
    ours = re.compile(r"\bZERO_RENAME_\w*")
    named = {
        path.relative_to(ROOT).as_posix()
        for path in own_modules().values()
        if ours.search(path.read_text("utf-8"))
    }
    # Whoever connects to the store knows nothing of jobs and tables.
    assert named == {"committer/format/handoff.py", "committer/store/client_settings.py"}


def test_classes_of_the_jvm_are_found_by_full_names() -> None:
    """By ``java_class``: a chain of packages makes the JVM look through its jars."""
    packages = {"org", "java", "scala"}
    chains = [
        f"{name}: {ast.unparse(node)}"
        for name, path in own_modules().items()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in packages
    ]
    assert not chains


def test_the_package_imports_neither_tests_nor_demo() -> None:
    paths = [*own_modules().values(), *ROOT.glob("*.py")]
    assert not importing(paths, of_library("tests", "support", "demo", "tools"))


def test_examples_import_as_users_do() -> None:
    relative = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules("example_dags")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative


def tracked_files() -> list[Path]:
    """What git knows, or all but what .gitignore names where this is no clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        return [path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file()]
    ignored = {".venv", ".demo", "build", "dist"}
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not ignored & set(path.relative_to(ROOT).parts)
    ]


def test_no_file_mentions_a_machines_paths() -> None:
    # Spelled so that this file does not match itself.
    paths = re.compile(r"(?<![\w.])/(?:w[o]rk|r[o]ot|h[o]me/\w+|U[s]ers/\w+)/")
    wrong = []
    for path in tracked_files():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        wrong += [
            f"{path.relative_to(ROOT)}:{number}: {found.group()}"
            for number, line in enumerate(lines, 1)
            if (found := paths.search(line))
        ]
    assert not wrong


def test_no_file_names_a_package_index() -> None:
    index = re.compile(r"^\s*(?:--(?:extra-)?index-url|--find-links|-f |-i )|index-url\s*=")
    files = [*ROOT.glob("*.lock"), ROOT / "pyproject.toml", ROOT / "Makefile"]
    wrong = [
        f"{path.name}: {line}"
        for path in files
        for line in path.read_text("utf-8").splitlines()
        if index.search(line)
    ]
    assert not wrong
