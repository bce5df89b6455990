"""What the checks see of a session, where there is a JVM and where there is none."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from zero_rename.committer import SettingsRefusedError
from zero_rename.s3a.hadoop.settings import S3ASettings
from zero_rename.spark.s3a.session import SessionView, check_session

CIRCUMSTANCES = {
    "committer": "magic",
    "destination": "s3a://bucket/t",
    "mode": "append",
    "save_mode": "append",
}


class Conf:
    """A session's settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.getAll = settings

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.getAll.get(key, default)


class Hadoop:
    """Hadoop's configuration, as py4j shows it."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings

    def get(self, key: str) -> str | None:
        return self.settings.get(key)

    def getPassword(self, key: str) -> list[str] | None:
        found = self.settings.get(key)
        return None if found is None else list(found)

    def getPropsWithPrefix(self, prefix: str) -> dict[str, str]:
        return {
            key.removeprefix(prefix): value
            for key, value in self.settings.items()
            if key.startswith(prefix)
        }


def session(
    sql: dict[str, str], hadoop: dict[str, str] | None = None, missing: tuple[str, ...] = ()
) -> Any:
    """A session; one of Spark Connect where Hadoop's configuration is ``None``."""
    given: dict[str, Any] = {"conf": Conf({"spark.master": "local[2]", **sql}), "version": "4.3.0"}
    if hadoop is None:
        return SimpleNamespace(**given)
    loads = SimpleNamespace(classIsLoadable=lambda name: name not in missing)
    package = SimpleNamespace(spark=SimpleNamespace(util=SimpleNamespace(Utils=loads)))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=package))
    configuration = Hadoop(hadoop)
    context = SimpleNamespace(
        _jsc=SimpleNamespace(hadoopConfiguration=lambda: configuration),
        _jvm=jvm,
        getConf=lambda: SimpleNamespace(getAll=lambda: list(sql.items())),
    )
    return SimpleNamespace(**given, _jsparkSession=object(), sparkContext=context)


def configured(**changes: str) -> tuple[dict[str, str], dict[str, str]]:
    """Spark's and Hadoop's settings of magic, with changes by Hadoop's names."""
    conf = S3ASettings("magic").spark_conf()  # type: ignore[arg-type]
    hadoop = {k.removeprefix("spark.hadoop."): v for k, v in conf.items() if "hadoop." in k[:13]}
    return conf, hadoop | {key.replace("__", "."): value for key, value in changes.items()}


def test_what_submission_configured_passes() -> None:
    view = SessionView(session(*configured()))
    assert view.hadoop("fs.s3a.committer.name") == "magic"
    assert view.missing_jars == ()
    check_session(view, CIRCUMSTANCES, {}, "bucket")


def test_what_was_changed_in_the_context_since_is_seen() -> None:
    """Hadoop's configuration counts, not the ``spark.hadoop.…`` it was once made from."""
    view = SessionView(session(*configured(fs__s3a__committer__name="directory")))
    with pytest.raises(SettingsRefusedError, match="committer-name"):
        check_session(view, CIRCUMSTANCES, {}, "bucket")


def test_the_writes_own_options_win() -> None:
    view = SessionView(session(*configured(fs__s3a__committer__name="directory")))
    check_session(view, CIRCUMSTANCES, {"fs.s3a.committer.name": "magic"}, "bucket")


def test_settings_of_the_bucket_count_and_its_keys_are_left_out() -> None:
    secret = {
        "fs.s3a.bucket.bucket.endpoint": "http://127.0.0.1:1",
        "fs.s3a.bucket.bucket.secret.key": "s3cr3t",
    }
    conf, hadoop = configured()
    settings = SessionView(session(conf, hadoop | secret)).settings({}, "bucket")
    assert settings["fs.s3a.endpoint"].value == "http://127.0.0.1:1"
    assert "s3cr3t" not in str(settings)


def test_jars_that_are_not_there() -> None:
    protocol = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
    s3a = "org.apache.hadoop.fs.s3a.S3AFileSystem"
    view = SessionView(session(*configured(), missing=(protocol, s3a)))
    assert view.missing_jars == ("hadoop-aws", "spark-hadoop-cloud")


def test_spark_connect_says_what_it_cannot_see(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    view = SessionView(session(configured()[0]))
    assert view.missing_jars == ()
    assert "cannot be seen from here" in caplog.text
    check_session(view, CIRCUMSTANCES, {}, "bucket")
