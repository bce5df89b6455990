"""The wheel, and what a plain Airflow with nothing but the wheel makes of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.log_store import java_compiler
from support.waiting import STUCK
from tools.log_store_jar import JAR
from zero_rename.provider import get_provider_info

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTION = "airflow-provider-zero-rename"
#: Folders with modules that are not for users.
NOT_PACKAGES = {"tests", "demo", "examples", "benchmarks", "docs", "tools", "build", "dist"}


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def package_folders() -> list[str]:
    """The sub-packages, ``committer`` and ``committer/store`` alike."""
    found = [path.parent.relative_to(ROOT) for path in ROOT.glob("[a-z]*/**/__init__.py")]
    return sorted(path.as_posix() for path in found if path.parts[0] not in NOT_PACKAGES)


def package_name(folder: str) -> str:
    """The package that a folder is: Dagster's by its own name, all others below ``zero_rename``."""
    name = folder.replace("/", ".")
    return name if name.split(".")[0] == "dagster_zero_rename" else f"zero_rename.{name}"


def test_packages_are_the_folders(project: dict[str, Any]) -> None:
    packages = ["zero_rename", *map(package_name, package_folders())]
    assert sorted(project["tool"]["setuptools"]["packages"]) == sorted(packages)


def test_every_package_is_mapped_to_its_folder(project: dict[str, Any]) -> None:
    # setuptools looks a sub-package's folder up from its parent's.
    folders = {package_name(name): name for name in package_folders() if "/" not in name}
    assert project["tool"]["setuptools"]["package-dir"] == {"zero_rename": ".", **folders}


def test_packages_have_no_folders_that_would_be_left_out() -> None:
    packages = {ROOT / name for name in package_folders()}
    modules = {path for package in packages for path in package.rglob("*.py")}
    assert {path for path in modules if path.parent not in packages} == set()


def test_the_core_needs_boto3_and_pyarrow_only(project: dict[str, Any]) -> None:
    names = {re.split(r"[<>=!~\[; ]", need)[0] for need in project["project"]["dependencies"]}
    assert names == {"boto3", "pyarrow"}


def test_the_lock_files_pin_what_pyproject_asks_for(project: dict[str, Any]) -> None:
    locks = (ROOT / "requirements.lock", ROOT / "tools" / "locks" / "optional-providers.lock")
    lock = "".join(file.read_text("utf-8") for file in locks)
    pinned = {name.lower() for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)}
    needs = project["project"]["dependencies"] + [
        need for needs in project["project"]["optional-dependencies"].values() for need in needs
    ]
    names = {re.split(r"[<>=!~\[; ]", need)[0].lower() for need in needs} - {DISTRIBUTION}
    assert names - pinned == set()


def test_the_lock_file_leaves_pyspark_client_out() -> None:
    # It would put older files over those of pyspark; see docs/dependencies.md.
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert not re.search(r"^pyspark-client==", lock, re.MULTILINE)


def test_every_dependency_has_its_reason_in_the_documentation(project: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    needs = project["project"]["dependencies"] + [
        need for needs in project["project"]["optional-dependencies"].values() for need in needs
    ]
    names = {re.split(r"[<>=!~; ]", need)[0] for need in needs}
    assert "boto3" in names
    missing = {n for n in names if not n.startswith(DISTRIBUTION) and f"`{n}`" not in text}
    assert not missing


def test_provider_and_distribution_have_one_name(project: dict[str, Any]) -> None:
    # Airflow refuses a provider whose package-name is not its distribution's.
    assert project["project"]["name"] == get_provider_info()["package-name"] == DISTRIBUTION


def test_dg_finds_the_package_of_components(project: dict[str, Any]) -> None:
    registered = project["project"]["entry-points"]["dagster_dg_cli.registry_modules"]
    assert registered == {"dagster_zero_rename": "dagster_zero_rename"}


# --- the wheel ---------------------------------------------------------------------------------


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    info = {name for name in names if ".dist-info/" in name}
    expected = {"pyspark_zero_rename.py", "zero_rename/py.typed", "dagster_zero_rename/py.typed"}
    expected.add("zero_rename/example_dags/.airflowignore")
    java_compiler()
    expected.add(JAR.as_posix())
    expected |= {f"zero_rename/{path.name}" for path in ROOT.glob("*.py")}
    expected |= {
        f"{package_name(folder).replace('.', '/')}/{path.name}"
        for folder in package_folders()
        for path in (ROOT / folder).glob("*.py")
    }
    page = Path("provider/page/files")
    expected |= {f"zero_rename/{page}/{path.name}" for path in (ROOT / page).iterdir()}
    assert names - info == expected
    assert any(name.endswith("licenses/LICENSE") for name in info)


@dataclass(frozen=True)
class PlainAirflow:
    """An environment with Airflow, its providers and the wheel, and no checkout."""

    python: Path
    environment: dict[str, str]
    folder: Path

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=STUCK,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout


@pytest.fixture(scope="session")
def plain_airflow(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> PlainAirflow:
    folder = tmp_path_factory.mktemp("plain")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    [site] = venv.glob("lib/python*/site-packages")
    # This environment's packages, without what its .pth files add: the checkout is among that.
    here = next(p for p in map(Path, sys.path) if (p / "airflow" / "__init__.py").exists())
    others = folder / "others"
    others.mkdir()
    for path in here.iterdir():
        if (
            not re.match(
                r"(__editable__|airflow_provider_zero_rename|zero_rename|(dagster|pyspark)_zero_)",
                path.name,
            )
            and path.suffix != ".pth"
        ):
            (others / path.name).symlink_to(path)
    (site / "others.pth").write_text(f"{others}\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "PYTHON", "AWS_"))
    }
    environment |= {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
    }
    return PlainAirflow(python, environment, folder)


@pytest.mark.airflow
@pytest.mark.slow
def test_airflow_lists_the_provider(plain_airflow: PlainAirflow, project: dict[str, Any]) -> None:
    listed = plain_airflow.run("-m", "airflow", "providers", "list", "--output", "json")
    found = {entry["package_name"]: entry for entry in json.loads(listed[listed.index("[") :])}
    assert found[DISTRIBUTION]["version"] == project["project"]["version"]


_LOOK = """
import json, pathlib, sys
import zero_rename
from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
hook = manager.hooks["zero_rename"]
from airflow import plugins_manager
from airflow.dag_processing.dagbag import DagBag
folder = pathlib.Path(zero_rename.__file__).parent / "example_dags"
bag = DagBag(str(folder))
plugins = plugins_manager.get_plugin_info()
print("RESULT" + json.dumps({
    "package": zero_rename.__file__,
    "hook": hook.hook_name,
    "hook_class": hook.hook_class_name,
    "fields": sorted(k for k in manager.connection_form_widgets if "zero_rename" in k),
    "behaviour": manager.field_behaviours["zero_rename"],
    "errors": {str(k): str(v) for k, v in bag.import_errors.items()},
    "dags": sorted(bag.dag_ids),
    "plugins": sorted(plugin["name"] for plugin in plugins),
}))
"""


@pytest.fixture(scope="session")
def seen(plain_airflow: PlainAirflow) -> dict[str, Any]:
    """What a plain Airflow finds, asked once: each start of Airflow takes seconds."""
    return json.loads(plain_airflow.run("-c", _LOOK).split("RESULT")[1].splitlines()[0])


@pytest.mark.airflow
@pytest.mark.slow
def test_the_checkout_is_not_on_the_path(seen: dict[str, Any], plain_airflow: PlainAirflow) -> None:
    assert Path(seen["package"]).is_relative_to(plain_airflow.folder)


@pytest.mark.airflow
@pytest.mark.slow
def test_the_connection_form_has_our_type_and_fields(seen: dict[str, Any]) -> None:
    assert seen["hook_class"] == "zero_rename.provider.hooks.ZeroRenameHook"
    fields = {name.rsplit("__", 1)[-1] for name in seen["fields"]}
    assert {"table_root", "aws_conn_id", "committer", "on_conflict"} <= fields
    assert {"password", "login"} <= set(seen["behaviour"]["hidden_fields"])


@pytest.mark.airflow
@pytest.mark.slow
def test_the_example_dags_import(seen: dict[str, Any]) -> None:
    assert seen["errors"] == {}
    assert "flights_daily" in seen["dags"]


@pytest.mark.airflow
@pytest.mark.slow
def test_the_plugin_is_loaded(seen: dict[str, Any]) -> None:
    assert "zero_rename" in seen["plugins"]
