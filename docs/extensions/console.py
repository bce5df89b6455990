"""Blocks of ``console``: with prompts a session, as Pygments has it; without, commands alone, which
it would take for output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers.shell import BashLexer, BashSessionLexer


class ConsoleLexer(Lexer):
    """The lexer ``console``."""

    name = "Console"
    aliases = ("console",)

    def get_tokens_unprocessed(self, text: str) -> Iterator[Any]:
        kind = BashSessionLexer if text.startswith("$ ") else BashLexer
        yield from kind(**self.options).get_tokens_unprocessed(text)
