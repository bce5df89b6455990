"""What the checks see of a session, where there is a JVM and where there is none."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from support.session_stand_in import CIRCUMSTANCES, configured, session
from zero_rename.committer import SettingsRefusedError
from zero_rename.spark.s3a.session import SessionView, check_session


def test_what_submission_configured_passes() -> None:
    view = SessionView(session(*configured()))
    assert view.hadoop("fs.s3a.committer.name") == "magic"
    assert view.missing_classes() == ()
    check_session(view, CIRCUMSTANCES, {}, "bucket")


class OldConf:
    """A session's settings before PySpark 4, as on AWS Glue 5 and EMR 7."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def get(self, key: str, default: str | None = None) -> str | None:
        return self._settings.get(key, default)


@pytest.mark.parametrize("is_connect", [False, True])
def test_settings_of_a_session_before_spark_4_are_checked(is_connect: bool) -> None:
    conf, hadoop = configured(fs__s3a__committer__name="directory")
    seen = session(conf, None if is_connect else hadoop)
    rows = [{"key": key, "value": value} for key, value in seen.conf.getAll.items()]
    rows.append({"key": "spark.app.name", "value": "*********(redacted)"})
    seen.conf = OldConf(seen.conf.getAll)
    seen.sql = lambda text: SimpleNamespace(collect=lambda: rows if text == "SET" else [])
    view = SessionView(seen)
    assert view.settings({})["spark.master"].value == "local[2]"
    assert "spark.app.name" not in view.settings({})
    if not is_connect:
        with pytest.raises(SettingsRefusedError, match="committer-name"):
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


@pytest.mark.parametrize(
    "missing",
    [
        ("org.apache.spark.internal.io.cloud.PathOutputCommitProtocol",),
        ("org.apache.hadoop.fs.s3a.S3AFileSystem",),
        ("software.amazon.awssdk.services.s3.S3Client", "com.amazonaws.services.s3.AmazonS3"),
    ],
)
def test_classes_that_are_not_there(missing: tuple[str, ...]) -> None:
    """The JVM is asked; what its jars are called does not matter."""
    view = SessionView(session(*configured(), missing=missing))
    with pytest.raises(SettingsRefusedError, match="classes-missing") as refused:
        check_session(view, CIRCUMSTANCES, {}, "bucket")
    assert all(name in str(refused.value) for name in missing)


def test_one_of_the_two_sdks_is_enough() -> None:
    new = "software.amazon.awssdk.services.s3.S3Client"
    view = SessionView(session(*configured(), missing=(new,)))
    assert view.missing_classes() == ()


def test_a_check_that_is_accepted_in_the_sessions_settings() -> None:
    conf, hadoop = configured(fs__s3a__committer__magic__enabled="false")
    with pytest.raises(SettingsRefusedError, match="magic-disabled"):
        check_session(SessionView(session(conf, hadoop)), CIRCUMSTANCES, {}, "bucket")
    accepted = {**conf, "spark.zero_rename.s3a.accept": "magic-disabled"}
    check_session(SessionView(session(accepted, hadoop)), CIRCUMSTANCES, {}, "bucket")


def test_spark_connect_says_what_it_cannot_see(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    view = SessionView(session(configured()[0]))
    assert view.missing_classes() == ()
    assert "cannot be seen from here" in caplog.text
    check_session(view, CIRCUMSTANCES, {}, "bucket")
