"""What a submission gets, by kind of cluster, and the words that start it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.submit.properties import (
    REDACTION,
    private_folder,
    redaction,
    remove_orphans,
)
from zero_rename.orchestration.submit.submission import (
    Cluster,
    Submission,
    prepare,
    secret_values,
    spark_submit,
)
from zero_rename.s3a.hadoop.effective_settings import read_properties
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings

YARN = Cluster("yarn", "client", "spark3-submit")
KEYS = {"AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": "key-secret"}


@pytest.fixture(autouse=True)
def a_spark_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)


def prepared(cluster: Cluster, folder: Path, **given: Any) -> Submission:
    arguments: dict[str, Any] = {
        "conf": {},
        "env_vars": {},
        "variables": {"ZERO_RENAME_IDEMPOTENCY_KEY": "k"},
        "credentials": KEYS,
        "py_files": None,
        "properties_file": None,
        "ship_package": True,
    }
    return prepare(cluster, folder, **arguments | given)


def test_local(tmp_path: Path) -> None:
    made = prepared(Cluster("local[2]", None), tmp_path)
    assert made == Submission(
        {"PYSPARK_PYTHON": sys.executable, "ZERO_RENAME_IDEMPOTENCY_KEY": "k", **KEYS}, None, None
    )


def test_jars_that_make_overwrites_append_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    packages = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.1,org.apache.hadoop:hadoop-aws:3.5.0"
    file = tmp_path / "its.conf"
    file.write_text(f"spark.jars.packages {packages}\n")
    prepared(Cluster("local[2]", None), tmp_path, properties_file=str(file))
    assert "keeps the old rows beside the new ones" in caplog.text
    caplog.clear()
    magic = S3ASettings(Committer.MAGIC).spark_conf()
    conf = {"spark.jars.packages": packages}
    prepared(Cluster("yarn", "cluster"), tmp_path, conf=conf, settings=magic)
    assert caplog.text == ""


def test_local_with_another_python(tmp_path: Path) -> None:
    """Which may lack the package: it is shipped."""
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)
    made = prepared(Cluster("local", None), tmp_path, env_vars={"PYSPARK_PYTHON": str(other)})
    assert made.py_files == str(tmp_path / "zero_rename.zip")
    assert "PYSPARK_PYTHON" not in made.process_env


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_client_mode(tmp_path: Path, master: str) -> None:
    made = prepared(Cluster(master, "client"), tmp_path, py_files="a.py")
    assert made.process_env["ZERO_RENAME_IDEMPOTENCY_KEY"] == "k"
    assert made.py_files == f"{tmp_path / 'zero_rename.zip'},a.py"
    assert made.properties_file is not None
    text = Path(made.properties_file).read_text()
    assert "spark.executorEnv.AWS_SECRET_ACCESS_KEY=key-secret" in text
    assert "ZERO_RENAME_IDEMPOTENCY_KEY" not in text


@pytest.mark.parametrize(
    ("master", "prefix"),
    [("yarn", "spark.yarn.appMasterEnv."), ("k8s://https://host", "spark.kubernetes.driverEnv.")],
)
def test_cluster_mode(tmp_path: Path, master: str, prefix: str) -> None:
    made = prepared(Cluster(master, "cluster"), tmp_path)
    assert made.process_env == {}
    assert made.properties_file is not None
    text = Path(made.properties_file).read_text()
    assert f"{prefix}ZERO_RENAME_IDEMPOTENCY_KEY=k" in text
    assert f"{prefix}AWS_SECRET_ACCESS_KEY=key-secret" in text
    assert "spark.executorEnv.AWS_SECRET_ACCESS_KEY=key-secret" in text


def test_a_properties_file_of_the_users_is_kept(tmp_path: Path) -> None:
    own = tmp_path / "own.conf"
    own.write_text("spark.x 1\n")
    local = prepared(Cluster("local", None), tmp_path, properties_file=str(own))
    assert local.properties_file == str(own)
    made = prepared(Cluster("yarn", "client"), tmp_path, properties_file=str(own))
    assert made.properties_file is not None
    assert made.properties_file != str(own)
    assert Path(made.properties_file).read_text().startswith("spark.x 1\n")


def test_sparks_defaults_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.y 2\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    made = prepared(Cluster("yarn", "client"), tmp_path)
    assert made.properties_file is not None
    assert Path(made.properties_file).read_text().startswith("spark.y 2\n")


@pytest.mark.parametrize("credentials", [{}, KEYS])
def test_python_files_of_settings_are_kept_beside_the_package(
    tmp_path: Path, credentials: dict[str, str]
) -> None:
    """Spark drops the setting where there is the option."""
    package, own = tmp_path / "zero_rename.zip", tmp_path / "own.conf"
    own.write_text("spark.submit.pyFiles file.zip\n")
    given: dict[str, Any] = {"credentials": credentials, "properties_file": str(own)}
    for more, theirs in (
        ({}, "file.zip"),
        ({"conf": {"spark.submit.pyFiles": "conf.zip"}}, "conf.zip"),
        ({"conf": {"spark.submit.pyFiles": "conf.zip"}, "py_files": "a.zip"}, "a.zip"),
    ):
        folder = tmp_path / theirs[:1]
        folder.mkdir()
        made = prepared(Cluster("yarn", "client"), folder, **given, **more)
        assert made.py_files == f"{folder / package.name},{theirs}"


def test_without_credentials_there_is_no_file(tmp_path: Path) -> None:
    made = prepared(Cluster("yarn", "client"), tmp_path, credentials={}, ship_package=False)
    assert (made.py_files, made.properties_file) == (None, None)


def test_a_standalone_cluster_runs_no_python_driver(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="deploy_mode='client'"):
        prepared(Cluster("spark://host:7077", "cluster"), tmp_path)


def test_which_variables_are_secret() -> None:
    assert secret_values({**KEYS, "AWS_SESSION_TOKEN": "", "AWS_REGION": "x"}) == ("key-secret",)
    whole = {**KEYS, "AWS_SESSION_TOKEN": "t", "AWS_ACCESS_KEY_ID": "an-id-of-a-key-is-long"}
    assert secret_values(whole) == ("key-secret", "t", "an-id-of-a-key-is-long")


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_what_may_be_on_no_command_line(tmp_path: Path, mode: str) -> None:
    made = prepared(Cluster("yarn", mode), tmp_path, secrets=["of-a-connection"])
    assert made.secrets == ("key-secret", "of-a-connection")
    assert "of-a-connection" not in repr(made)


def test_all_there_is_to_say() -> None:
    made = Submission({"KEY": "secret"}, "z.zip,a.py", "/p", {"spark.a": "ours"})
    words = spark_submit(
        YARN,
        made,
        "job.py",
        ["--day", "1"],
        name="load",
        conf={"spark.a": "theirs", "spark.b": 2},
        packages=["g:a:1", "g:b:2"],
    )
    assert words == [
        *("spark3-submit", "--master", "yarn", "--deploy-mode", "client"),
        *("--conf", "spark.a=ours", "--conf", "spark.b=2"),
        *("--packages", "g:a:1,g:b:2", "--py-files", "z.zip,a.py"),
        *("--properties-file", "/p", "--name", "load"),
        *("job.py", "--day", "1"),
    ]


def test_as_little_as_there_may_be() -> None:
    words = spark_submit(Cluster("local", None), Submission({}, None, None), "job.py")
    assert words == ["spark-submit", "--master", "local", "job.py"]


def test_credentials_are_refused_by_their_names_and_by_their_values() -> None:
    made = Submission({}, None, None)
    with pytest.raises(InvalidInputError, match=r"conf\['spark.hadoop.fs.s3a.secret.key'\]"):
        spark_submit(YARN, made, "job.py", conf={"spark.hadoop.fs.s3a.secret.key": "abcdefgh"})
    with pytest.raises(InvalidInputError, match="application_args '--token'"):
        spark_submit(YARN, made, "job.py", ["--token", "abcdefgh"])
    of_the_store = Submission({}, None, None, secrets=("abcdefgh",))
    with pytest.raises(InvalidInputError, match=r"^spark.x has, as its value, a key"):
        spark_submit(YARN, of_the_store, "job.py", conf={"spark.x": "abcdefgh"})
    with pytest.raises(InvalidInputError, match=r"^--colour has, as its value, a key"):
        spark_submit(YARN, of_the_store, "job.py", ["--colour", "abcdefgh"])


class TestRedaction:
    """The user's pattern for Spark's UI and event log, and ours: one never replaces the other."""

    def pattern(self, made: Submission) -> str:
        assert made.properties_file is not None
        return read_properties(Path(made.properties_file))[REDACTION]

    def test_without_one_of_the_users(self, tmp_path: Path) -> None:
        made = prepared(Cluster("yarn", "client"), tmp_path)
        assert self.pattern(made) == redaction(None)
        assert made.conf == {}

    def test_one_in_a_file_of_the_users(self, tmp_path: Path) -> None:
        own = tmp_path / "own.conf"
        own.write_text(f"{REDACTION} (?i)vault\n")
        made = prepared(Cluster("yarn", "client"), tmp_path, properties_file=str(own))
        assert self.pattern(made) == redaction("(?i)vault")

    def test_one_among_the_operators_settings_which_win(self, tmp_path: Path) -> None:
        conf = {REDACTION: "(?i)vault"}
        made = prepared(Cluster("yarn", "client"), tmp_path, conf=conf)
        assert made.conf == {REDACTION: redaction("(?i)vault")}

    def test_a_local_job_carries_nothing_and_keeps_theirs(self, tmp_path: Path) -> None:
        made = prepared(Cluster("local", None), tmp_path, conf={REDACTION: "x"})
        assert (made.conf, made.properties_file) == ({}, None)


class TestPrivateFolder:
    def test_it_is_gone_at_the_end(self, temporary: Path) -> None:
        with private_folder() as folder:
            assert folder.stat().st_mode & 0o777 == 0o700
        assert list(temporary.iterdir()) == []

    def test_what_a_killed_worker_left_is_removed_at_the_next_start(self, temporary: Path) -> None:
        program = (
            "import os, signal\n"
            "from zero_rename.orchestration.submit.properties import private_folder\n"
            "with private_folder() as folder:\n"
            "    (folder / 'spark.properties').write_text('key-secret')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        environ = os.environ | {"TMPDIR": str(temporary)}
        ended = subprocess.run([sys.executable, "-c", program], env=environ, check=False)
        assert ended.returncode == -signal.SIGKILL
        (left,) = temporary.glob("*/spark.properties")
        with private_folder() as folder:
            assert not left.exists()
            assert list(temporary.iterdir()) == [folder]

    def test_one_that_is_in_use_stays(self, temporary: Path) -> None:
        with private_folder() as first, private_folder() as second:
            assert set(temporary.iterdir()) == {first, second}

    def test_what_has_another_name_or_no_lock_stays(self, temporary: Path) -> None:
        (temporary / "zero-rename-x").mkdir()
        (temporary / "other").mkdir()
        assert remove_orphans(temporary) == []
        assert len(list(temporary.iterdir())) == 2

    @pytest.fixture
    def temporary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        folder = tmp_path / "tmp"
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        return folder
