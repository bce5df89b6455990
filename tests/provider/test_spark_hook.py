"""The hook that starts spark-submit: what it hands over, and what it shows."""

from __future__ import annotations

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from support.airflow import connection_variable
from zero_rename.committer import InvalidInputError
from zero_rename.orchestration.submit.submission import Submission
from zero_rename.provider.spark_hook import MaskingSparkSubmitHook

KEYS = {"AWS_ACCESS_KEY_ID": "key-id", "AWS_SECRET_ACCESS_KEY": "key-secret"}


@pytest.fixture
def conf() -> dict[str, str]:
    return {"spark.a": "1"}


@pytest.fixture
def hook(conf: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> MaskingSparkSubmitHook:
    monkeypatch.setenv(*connection_variable("spark_default", conn_type="spark", host="local"))
    made = SparkSubmitHook(conf=conf, env_vars={"X": "1"}, application_args=["--x"])
    submission = Submission(KEYS, "z.zip", "/p", secrets=("key-secret",))
    return MaskingSparkSubmitHook.adopt(made, submission, conf)


def test_what_the_base_operator_writes_to_it_stays_there(
    hook: MaskingSparkSubmitHook, conf: dict[str, str]
) -> None:
    """It writes ``waitAppCompletion`` for clusters, into what was a template field."""
    hook._conf["spark.yarn.submit.waitAppCompletion"] = "false"
    assert conf == {"spark.a": "1"}


def test_its_words_and_variables(hook: MaskingSparkSubmitHook) -> None:
    words = hook._build_spark_common_args()
    assert words[words.index("--py-files") + 1] == "z.zip"
    assert words[words.index("--properties-file") + 1] == "/p"
    assert hook._env == {"X": "1", **KEYS}
    assert "key-secret" not in " ".join(words)


def test_words_that_hold_a_secret_are_refused(hook: MaskingSparkSubmitHook) -> None:
    assert hook._build_spark_submit_command("j.py")[-2:] == ["j.py", "--x"]
    hook._application_args = ["--x", "key-secret"]
    with pytest.raises(InvalidInputError, match=r"^--x has, as its value, a key") as caught:
        hook._build_spark_submit_command("j.py")
    assert "key-secret" not in str(caught.value)


def test_what_it_shows(hook: MaskingSparkSubmitHook) -> None:
    assert hook._mask_cmd(["run", "key-secret"]) == "run ******"
    hook._process_spark_submit_log(iter(["a key-secret\n"]))
    assert hook._submit_log_tail.endswith("a ******")
