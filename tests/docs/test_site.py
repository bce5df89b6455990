"""The extensions that the site is built with: each lets the build fail for what it is to find."""

from __future__ import annotations

import pytest
from typer.main import get_command

from docs.extensions import arguments, command_line, completeness, diagrams
from zero_rename.cli import app


def example(first: int, *, second: str = "b") -> None:
    """An example.

    :param first: a number
        of two lines.
    """


def test_an_argument_without_a_meaning_is_found() -> None:
    assert arguments.documented(example) == {"first": "a number of two lines."}
    assert dict(arguments.signatures(example)) == {"first": "", "second": "``'b'``"}


def test_an_operators_arguments_are_those_of_its_bases_too() -> None:
    from zero_rename.operators.glue import ZeroRenameGlueOperator

    found = dict(arguments.signatures(ZeroRenameGlueOperator))
    assert {"table", "package_location", "on_conflict"} <= found.keys()
    assert found.keys() <= arguments.documented(ZeroRenameGlueOperator).keys()


def test_every_command_is_listed() -> None:
    names = [name for name, _ in command_line.every("zero-rename", get_command(app))]
    assert {"zero-rename recover", "zero-rename uploads abort"} <= set(names)
    assert "zero-rename uploads" not in names


def test_a_command_says_what_help_says() -> None:
    commands = dict(command_line.every("zero-rename", get_command(app)))
    text = command_line.section("zero-rename recover", commands["zero-rename recover"]).astext()
    assert "Usage: zero-rename recover" in text
    assert "Act. Without it, only say what would be done." in text


def test_what_is_exported_is_asked_for() -> None:
    found = dict(completeness.exported())
    assert found["zero_rename.Table"] == "zero_rename.committer.table.Table"
    assert {
        "zero_rename.spark.save",
        "zero_rename.operators.glue.ZeroRenameGlueOperator",
        "zero_rename.provider.assets.commit_trigger.TableCommitTrigger",
    } <= found.keys()


def test_a_diagram_that_cannot_be_drawn_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="Parse error"):
        diagrams.drawn("flowchart TD\n  a --> --> [b")
