"""Every check fires where users meet it: in the operator's submission, in ``save()``, or in
``zero-rename s3a-check``; by settings that somebody has published, where there are some."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from support.memory_store import MemoryDriver, MemoryStore
from support.session_stand_in import CIRCUMSTANCES, configured, session
from zero_rename.cli import app
from zero_rename.committer import Mode, SettingsRefusedError, Table
from zero_rename.committer.format.layout import TableRoot
from zero_rename.orchestration.s3a.configuration import LoadRequest, SparkCall, check_submission
from zero_rename.orchestration.submit.submission import Cluster
from zero_rename.s3a.checks import CHECKS
from zero_rename.s3a.hadoop.settings import Committer, S3ASettings
from zero_rename.spark.s3a.session import SessionView, check_session

ROOT = TableRoot("bucket", "wh/flights")
HADOOP = "spark.hadoop."
S3A = f"{HADOOP}fs.s3a."
PROTOCOL = "spark.sql.sources.commitProtocolClass"
CLOUD = "org.apache.spark.internal.io.cloud."
SQL_PROTOCOL = "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
FACTORY_CLASS = f"{HADOOP}mapreduce.outputcommitter.factory.class"
OVERWRITE = "spark.sql.sources.partitionOverwriteMode"
ALGORITHM = f"{HADOOP}mapreduce.fileoutputcommitter.algorithm.version"
OWN = "df.write.mode('overwrite').partitionBy('day').parquet(table)\n"


@dataclass(frozen=True)
class Submitted:
    """A task's submission. ``conf`` is the DAG's, ``defaults`` a ``spark-defaults.conf``."""

    word: str = "magic"
    conf: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    mode: Mode | None = None
    partitions: tuple[str, ...] = ()
    master: str = "local[2]"
    deploy_mode: str = "client"
    options: Mapping[str, Any] = field(default_factory=dict)


#: One submission for each check that the operator can meet.
SUBMITTED: dict[str, Submitted] = {
    # EMR's documentation of its own committer.
    "committer-name": Submitted(conf={f"{S3A}committer.name": "magicv2"}),
    # Half of what Hadoop's page "Committing work to S3" lists.
    "commit-protocol-missing": Submitted(defaults={}, conf={PROTOCOL: SQL_PROTOCOL}),
    "factory-overridden": Submitted(
        conf={FACTORY_CLASS: "org.apache.hadoop.mapreduce.lib.output.NamedCommitterFactory"}
    ),
    "magic-disabled": Submitted(conf={f"{S3A}committer.magic.enabled": "false"}),
    # Hadoop's page on third-party stores, for stores without multipart uploads.
    "tripwire-off": Submitted(conf={ALGORITHM: "2"}),
    "overwrite-removes-table": Submitted(
        source=OWN, mode=Mode.REPLACE, partitions=("day=1", "day=2")
    ),
    "overwrite-removes-first": Submitted(mode=Mode.REPLACE, partitions=("day=1",)),
    # Netflix's own committers call it so.
    "uuid-shared": Submitted(defaults={f"{S3A}committer.uuid": "7e0c"}),
    "driver-restarts": Submitted(conf={"spark.yarn.maxAppAttempts": "2"}),
    # Hadoop's default, and the pages that repeat it.
    "abort-uploads-on": Submitted(conf={f"{S3A}committer.abort.pending.uploads": "true"}),
    # Hadoop's page on third-party stores recommends the purge where there are no rules.
    "multipart-purge": Submitted(conf={f"{S3A}multipart.purge": "true"}),
    "directory-purge": Submitted(conf={f"{S3A}directory.operations.purge.uploads": "true"}),
    "marker-off": Submitted(
        conf={f"{HADOOP}mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    ),
    "in-memory-tracking": Submitted(
        conf={f"{S3A}committer.magic.track.commits.in.memory.enabled": "true"}
    ),
    "staging-not-shared": Submitted(
        "directory", {f"{HADOOP}fs.defaultFS": "file:///"}, master="spark://host:7077"
    ),
    "staging-unknown": Submitted("directory", master="yarn"),
    "staging-on-s3": Submitted("directory", {f"{HADOOP}fs.defaultFS": "s3a://bucket"}),
}
#: Those that only the running job, or the command, can meet: how is in the tests below.
ELSEWHERE = {"classes-missing", "dynamic-partition-overwrite", "magic-before-3.4"}


def findings(given: Submitted, folder: Path, caplog: pytest.LogCaptureFixture) -> str:
    """What the operator logs, and refuses."""
    application, defaults = folder / "job.py", folder / "spark-defaults.conf"
    application.write_text(given.source)
    defaults.write_text("".join(f"{k} {v}\n" for k, v in given.defaults.items()))
    store = MemoryStore()
    word = Committer(given.word)
    call = SparkCall(
        str(application),
        Cluster(given.master, given.deploy_mode),
        given.conf,
        {"HADOOP_CONF_DIR": str(folder)},
        properties_file=str(defaults),
    )
    load = LoadRequest(word, ROOT, given.mode, given.partitions)
    caplog.set_level(logging.WARNING)
    table = Table(ROOT.url)
    table.driver = MemoryDriver(store)  # pyrefly: ignore[bad-assignment]
    try:
        conf = S3ASettings(word, **given.options).spark_conf()
        check_submission(load, call, conf, table)
    except SettingsRefusedError as refused:
        return f"{caplog.text}\n{refused}"
    return caplog.text


def test_every_check_has_its_door() -> None:
    assert {*SUBMITTED, *ELSEWHERE} == {check.id for check in CHECKS}
    assert not ELSEWHERE & set(SUBMITTED)


@pytest.mark.parametrize("check", SUBMITTED)
def test_a_submission_meets_it(
    check: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert f"[{check}]" in findings(SUBMITTED[check], tmp_path, caplog)


@pytest.mark.parametrize("check", SUBMITTED)
def test_a_submission_that_accepts_it_does_not(
    check: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = SUBMITTED[check]
    accepting = {**given.conf, "spark.zero_rename.s3a.accept": check}
    fields: dict[str, Any] = {**vars(given), "conf": accepting}
    said = findings(Submitted(**fields), tmp_path, caplog)
    assert f"[{check}]" not in said


#: Published configurations that are right for the word: none of them is refused.
RIGHT = {
    "Hadoop, Committing work to S3": Submitted(
        conf={
            f"{HADOOP}mapreduce.outputcommitter.factory.scheme.s3a": "org.apache.hadoop.fs.s3a"
            ".commit.S3ACommitterFactory",
            f"{S3A}committer.name": "magic",
            f"{S3A}committer.magic.enabled": "true",
            PROTOCOL: f"{CLOUD}PathOutputCommitProtocol",
            "spark.sql.parquet.output.committer.class": f"{CLOUD}BindingParquetOutputCommitter",
        }
    ),
    "a Parquet class that the protocol passes over": Submitted(
        conf={
            "spark.sql.parquet.output.committer.class": "org.apache.hadoop.mapreduce.lib.output."
            "BindingPathOutputCommitter"
        }
    ),
    "the factory for every scheme": Submitted(
        conf={FACTORY_CLASS: "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"}
    ),
    "a volume that all machines of a cluster mount": Submitted(
        "directory",
        {
            f"{HADOOP}fs.defaultFS": "file:///",
            f"{S3A}committer.staging.tmp.path": "file:///mnt/shared/staging",
        },
        master="k8s://https://host",
    ),
    "one user in a container": Submitted(conf={f"{S3A}buffer.dir": "/tmp/s3a"}),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_not_refused(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = findings(RIGHT[name], tmp_path, caplog)
    assert "nothing was submitted" not in said
    assert {check.id for check in CHECKS if f"[{check.id}]" in said} <= {"staging-unknown"}


class TestPodsOfKubernetes:
    """In cluster mode, where the driver is one as well."""

    def findings(self, folder: Path, caplog: pytest.LogCaptureFixture, **conf: str) -> str:
        where = {"master": "k8s://https://host", "deploy_mode": "cluster"}
        return findings(Submitted("directory", conf, **where), folder, caplog)

    def test_staging_on_their_own_disks_is_refused(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        said = self.findings(tmp_path, caplog)
        assert "[staging-not-shared]" in said
        assert "Nothing was submitted" in said

    def test_staging_on_a_named_folder_or_file_system_is_not(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A template of pods may mount it."""
        folder = {f"{S3A}committer.staging.tmp.path": "file:///mnt/staging"}
        for given in (folder, {f"{HADOOP}fs.defaultFS": "hdfs://name"}):
            assert "staging-not-shared" not in self.findings(tmp_path, caplog, **given)


class TestInTheJob:
    def test_classes(self) -> None:
        missing = ("org.apache.hadoop.fs.s3a.S3AFileSystem",)
        view = SessionView(session(*configured(), missing=missing))
        with pytest.raises(SettingsRefusedError, match="classes-missing"):
            check_session(view, CIRCUMSTANCES, {}, "bucket")

    def test_hadoop(self) -> None:
        """The one that PySpark 3.5 brings."""
        view = SessionView(session(*configured(), version="3.3.4"))
        with pytest.raises(SettingsRefusedError, match=r"magic-before-3\.4.*Hadoop 3\.3\.4"):
            check_session(view, CIRCUMSTANCES, {}, "bucket")


def test_submission_to_a_spark_with_an_older_hadoop_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its jars are seen before anything is submitted."""
    home = tmp_path / "spark"
    for name in ("bin/spark-submit", "jars/hadoop-client-api-3.3.4.jar"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch(mode=0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    assert "[magic-before-3.4]" in findings(Submitted(), tmp_path, caplog)
    assert "magic-before" not in findings(Submitted("directory"), tmp_path, caplog)


class TestTheCommand:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        """As in Hadoop's page, and then changed."""
        conf = dict(RIGHT["Hadoop, Committing work to S3"].conf)
        conf |= {f"{S3A}committer.magic.enabled": "false"}
        made = tmp_path / "spark-defaults.conf"
        made.write_text("# ours\n" + "".join(f"{key}   {value}\n" for key, value in conf.items()))
        return made

    def run(self, *arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["s3a-check", *arguments])
        assert result.exit_code == code, result.output
        return result.stdout + result.stderr

    def test_a_file_of_defaults(self, file: Path) -> None:
        said = self.run("--conf-file", str(file), code=1)
        assert "magic-disabled" in said
        on = f"{S3A}committer.magic.enabled=true"
        assert "magic-disabled" not in self.run("--conf-file", str(file), "--conf", on)

    def test_a_check_is_accepted(self, file: Path) -> None:
        said = self.run("--conf-file", str(file), "--accept", "magic-disabled", "--json")
        assert "magic-disabled" not in said.replace("accept", "")
        self.run("--conf-file", str(file), "--accept", "magic-off", code=2)

    def test_what_is_written_and_by_which_committer(self, file: Path) -> None:
        marker = f"{HADOOP}mapreduce.fileoutputcommitter.marksuccessfuljobs=false"
        dynamic = f"{OVERWRITE}=dynamic"
        said = self.run(
            *("--conf-file", str(file), "--destination", "s3a://bucket/t"),
            *("--conf", marker, "--conf", dynamic),
            code=1,
        )
        assert "marker-off" in said
        assert "dynamic-partition-overwrite" in said
        assert "committer-name" in self.run(
            "--conf-file", str(file), "--committer", "directory", code=1
        )

    def test_uuid_of_the_command_line_is_refused_as_one_of_conf(self) -> None:
        assert "uuid-shared" in self.run("--conf", f"{S3A}committer.uuid=7e0c", code=1)

    def test_a_clusters_own_file(self, tmp_path: Path) -> None:
        name = "<name>fs.s3a.committer.name</name><value>magicv2</value>"
        (tmp_path / "core-site.xml").write_text(
            f"<configuration><property>{name}</property></configuration>"
        )
        assert "committer-name" in self.run("--hadoop-conf", str(tmp_path), code=1)

    def test_folder_without_a_file_of_hadoops_is_refused(self, file: Path) -> None:
        """A mistyped folder would otherwise look like one whose settings are all right."""
        words = ("--conf-file", str(file), "--hadoop-conf", str(file.parent))
        said = self.run(*words, "--conf", f"{S3A}committer.magic.enabled=true", code=2)
        assert "core-site.xml" in said

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("--conf", "x"),
            ("--conf", "a=b", "--committer", "staging"),
            ("--conf-file", "/nowhere"),
            ("--conf", "a=b", "--hadoop-conf", "/nowhere"),
        ],
    )
    def test_arguments_that_cannot_be(self, arguments: tuple[str, ...]) -> None:
        self.run(*arguments, code=2)
