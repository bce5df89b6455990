"""The command ``log-store``, and the settings that it prints."""

from __future__ import annotations

import shlex
from pathlib import Path
from zipfile import ZipFile

import pytest

from support.command_line import as_json, invoke
from support.log_store import java_compiler
from zero_rename.tables import log_store_jar, log_store_settings


@pytest.fixture(autouse=True)
def _jdk() -> None:
    java_compiler()


def test_settings_name_the_jar_and_a_class_that_it_holds_for_each_scheme() -> None:
    settings = log_store_settings()
    jar = Path(settings.pop("spark.jars"))
    assert set(settings) == {"spark.delta.logStore.s3a.impl", "spark.delta.logStore.s3.impl"}
    [name] = set(settings.values())
    assert f"{name.replace('.', '/')}.class" in ZipFile(jar).namelist()


def test_command_prints_the_settings_as_options_of_spark_submit() -> None:
    result = invoke("log-store")
    assert result.exit_code == 0
    words = shlex.split(result.stdout)
    options = list(zip(words[::2], words[1::2], strict=True))
    settings = log_store_settings()
    assert options.pop(0) == ("--jars", settings.pop("spark.jars"))
    assert options == [("--conf", f"{name}={value}") for name, value in settings.items()]
    assert "hadoop-aws 3.4.2 or later" in result.stderr


def test_command_with_json_prints_jar_and_settings() -> None:
    assert as_json("log-store") == {"jar": str(log_store_jar()), "settings": log_store_settings()}
