"""Extensions of Sphinx that the site is built with, and programs that write pages."""

from typing import Any


def setup(app: Any) -> dict[str, bool]:
    """Let Sphinx have them."""
    # Not before: who writes pages needs no Sphinx.
    from . import arguments, command_line, completeness, console, diagrams

    app.add_directive("arguments", arguments.Arguments)
    app.add_directive("command-line", command_line.CommandLine)
    app.add_directive("mermaid", diagrams.MermaidDiagram)
    app.add_lexer("console", console.ConsoleLexer)
    app.connect("env-check-consistency", completeness.check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
