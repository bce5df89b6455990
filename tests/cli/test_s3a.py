"""The commands about S3A that ask no store."""

from __future__ import annotations

import json
import subprocess
import sys

from support.command_line import invoke
from zero_rename.s3a.checks import CHECKS
from zero_rename.s3a.hadoop.settings import COMMITTERS, Committer, S3ASettings


def test_checks_lists_every_check() -> None:
    result = invoke("checks")
    assert result.exit_code == 0, result.output
    for check in CHECKS:
        assert check.id in result.stdout


def test_checks_as_json_has_all_of_each() -> None:
    document = json.loads(invoke("checks", "--json").stdout)
    assert [entry["id"] for entry in document] == [check.id for check in CHECKS]
    fields = {"id", "severity", "title", "remedy", "committers"}
    assert all(set(entry) == fields for entry in document)
    assert {entry["severity"] for entry in document} == {"error", "warning"}


def test_checks_of_one_committer() -> None:
    document = json.loads(invoke("checks", "--committer", "directory", "--json").stdout)
    ids = {entry["id"] for entry in document}
    assert "staging-not-shared" in ids
    assert "magic-disabled" not in ids


def test_some_checks() -> None:
    document = json.loads(invoke("checks", "multipart-purge", "marker-off", "--json").stdout)
    assert [entry["id"] for entry in document] == ["multipart-purge", "marker-off"]
    assert document[0]["remedy"].startswith("Set spark.hadoop.fs.s3a.multipart.purge=false")


def test_committers_are_listed() -> None:
    document = json.loads(invoke("committers", "--json").stdout)
    assert [entry["committer"] for entry in document] == list(COMMITTERS)
    for committer in COMMITTERS:
        assert committer in invoke("committers").stdout


def test_settings_of_a_committer() -> None:
    wanted = S3ASettings(Committer.MAGIC).spark_conf()
    assert json.loads(invoke("committers", "--conf", "magic", "--json").stdout) == wanted
    lines = invoke("committers", "--conf", "magic").stdout.splitlines()
    assert dict(line.split(" ", 1) for line in lines) == wanted


def test_unknown_names_are_refused() -> None:
    for arguments in (
        ("checks", "nothing"),
        ("checks", "--committer", "x"),
        ("committers", "--conf", "x"),
    ):
        result = invoke(*arguments)
        assert result.exit_code == 2, arguments
        assert "InvalidInputError" in result.stderr


def test_the_command_line_starts_without_the_checks() -> None:
    """They are loaded by their own commands only."""
    code = "import sys, zero_rename.cli; print([m for m in sys.modules if 's3a.check' in m])"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
