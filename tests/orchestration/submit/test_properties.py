from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.submit.properties import (
    cluster_settings,
    default_properties,
    private_folder,
    redaction,
    remove_orphans,
    write_properties,
)
from zero_rename.s3a.hadoop.effective_settings import read_properties


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = write_properties(tmp_path, {"a": "b"}, None)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text() == "a=b\n"


def test_what_spark_would_have_read_is_kept(tmp_path: Path) -> None:
    base = tmp_path / "spark-defaults.conf"
    base.write_text("spark.a 1\nspark.b 2")
    file = write_properties(tmp_path, {"spark.b": "3"}, base)
    assert file.read_text() == "spark.a 1\nspark.b 2\n\nspark.b=3\n"


def test_defaults_that_are_not_utf8_are_copied_as_they_are(tmp_path: Path) -> None:
    base = tmp_path / "spark-defaults.conf"
    base.write_bytes("spark.app.name Zürich\n".encode("latin-1"))
    file = write_properties(tmp_path, {"spark.b": "3"}, base)
    assert file.read_bytes().startswith(base.read_bytes())
    assert file.read_bytes().endswith(b"\nspark.b=3\n")


def test_defaults_that_end_in_a_backslash_take_no_setting_into_their_last_line(
    tmp_path: Path,
) -> None:
    base = tmp_path / "spark-defaults.conf"
    base.write_text("spark.a 1\\")
    assert read_properties(write_properties(tmp_path, {"spark.b": "3"}, base))["spark.b"] == "3"


def test_values_are_escaped_as_java_reads_them(tmp_path: Path) -> None:
    odd = {"k:e y": "a\\b\nc\td", "s": " leading = and : and #"}
    text = write_properties(tmp_path, odd, None).read_text()
    assert text == "k\\:e\\ y=a\\\\b\\nc\\td\ns=\\ leading = and : and #\n"


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_where_sparks_defaults_are(tmp_path: Path, variable: str) -> None:
    folder = tmp_path if variable == "SPARK_CONF_DIR" else tmp_path / "conf"
    folder.mkdir(exist_ok=True)
    assert default_properties({variable: str(tmp_path)}) is None
    (folder / "spark-defaults.conf").write_text("")
    assert default_properties({variable: str(tmp_path)}) == folder / "spark-defaults.conf"
    assert default_properties({}) is None


def test_variables_by_kind_of_cluster() -> None:
    assert cluster_settings("local", {}, {}) == {}
    yarn = cluster_settings("yarn", {"A": "1"}, {"B": "2"})
    assert yarn["spark.yarn.appMasterEnv.A"] == "1"
    assert yarn["spark.executorEnv.B"] == "2"
    kubernetes = cluster_settings("k8s://https://host", {"A": "1"}, {})
    assert kubernetes["spark.kubernetes.driverEnv.A"] == "1"


@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "spark.my.password", "spark.vault.pin"])
def test_redaction_hides_what_the_users_own_pattern_hides_and_ours(name: str) -> None:
    assert re.search(redaction("(?i)vault").replace("(?i)", ""), name.lower())
    assert redaction(None) in redaction("x")


def test_they_are_read_as_java_does(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_text(
        "# a comment\n! another\n\n"
        "spark.a 1\nspark.b=2\nspark.c: 3\n  spark.d   4 and more  \n"
        "spark.e one\\\n   two\nspark.a 5\nspark.f\n"
    )
    assert read_properties(file) == {
        "spark.a": "5",
        "spark.b": "2",
        "spark.c": "3",
        "spark.d": "4 and more",
        "spark.e": "onetwo",
        "spark.f": "",
    }


def test_characters_that_java_escapes_are_read_as_java_does(tmp_path: Path) -> None:
    file = tmp_path / "spark-defaults.conf"
    file.write_bytes(b"spark.a=caf\\u00e9\r\nspark.\\u0062=\\ud83d\\uDE00\nspark.c=\\\\u0041\n")
    assert read_properties(file) == {
        "spark.a": "caf\u00e9",
        "spark.b": "\U0001f600",
        "spark.c": "\\u0041",
    }


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    odd = {"k:e y": "a\\b\nc\td", "s": "leading = and : and #"}
    assert read_properties(write_properties(tmp_path, odd, None)) == odd


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="none is not there; nothing was"):
        read_properties(tmp_path / "none")


def test_variables_survive_the_script_that_yarn_starts_a_container_by(tmp_path: Path) -> None:
    """A NodeManager writes ``export NAME="value"``, the value as it is."""
    said = {"A": '["day=1", "cost=$5"]', "B": "`date` \\ $(date) é\nb"}
    made = cluster_settings("yarn", said, {"C": '"$HOME"'})
    kept = read_properties(write_properties(tmp_path, made, None))
    prefixes = ("spark.yarn.appMasterEnv.", "spark.executorEnv.")
    variables = {
        name.removeprefix(prefix): value
        for name, value in kept.items()
        for prefix in prefixes
        if name.startswith(prefix)
    }
    script = tmp_path / "launch_container.sh"
    show = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"
    lines = [f'export {name}="{value}"' for name, value in variables.items()]
    script.write_text("\n".join(["#!/bin/bash", *lines, show]), "utf-8")
    ran = subprocess.run(["bash", str(script)], capture_output=True, check=True)
    shown = json.loads(ran.stdout)
    assert {name: shown[name] for name in "ABC"} == said | {"C": '"$HOME"'}


def test_kubernetes_takes_variables_as_they_are() -> None:
    made = cluster_settings("k8s://https://host", {"A": '"$x"'}, {"B": '"$x"'})
    assert made["spark.kubernetes.driverEnv.A"] == made["spark.executorEnv.B"] == '"$x"'


def test_folder_that_another_process_removes_before_its_lock_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two submissions begin at once: the second finds the first one's folder without a lock."""
    lock, first = fcntl.flock, True

    def locked(file: Any, operation: int) -> None:
        nonlocal first
        if first and not operation & fcntl.LOCK_NB:
            first = False
            assert len(remove_orphans(tmp_path)) == 1
        lock(file, operation)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", locked)
    with private_folder() as folder:
        assert folder.is_dir()
        assert remove_orphans(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
