"""The directive ``command-line``: what ``--help`` says of every command, from the real parser."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command

from zero_rename.cli import app as commands

_PROGRAM = "zero-rename"


class CommandLine(SphinxDirective):
    """A section for each command: its purpose, usage, arguments and options."""

    def run(self) -> list[nodes.Node]:
        return [section(name, command) for name, command in every(_PROGRAM, get_command(commands))]


def every(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Commands by their whole name, those of groups too, as the program lists them."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from every(f"{name} {word}", inner)
    if not hasattr(command, "commands"):
        yield name, command


def section(name: str, command: Any) -> nodes.section:
    """What one command's ``--help`` says."""
    made = nodes.section(ids=[name.replace(" ", "-")], names=[name])
    made += nodes.title("", "", nodes.literal("", name))
    made += nodes.paragraph("", inspect.cleandoc(command.help or ""))
    context = command.make_context(name, [], resilient_parsing=True)
    made += nodes.literal_block("", command.get_usage(context), language="text")
    records = (parameter.get_help_record(context) for parameter in command.params)
    definitions = nodes.definition_list()
    for title, meaning in filter(None, records):
        item = nodes.definition_list_item("", nodes.term("", "", nodes.literal("", title)))
        item += nodes.definition("", nodes.paragraph("", meaning))
        definitions += item
    made += definitions
    return made
