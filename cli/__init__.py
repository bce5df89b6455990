"""The command line, ``zero-rename``: what is open on a table, and how to settle it."""

from .main import app, main

__all__ = ["app", "main"]
