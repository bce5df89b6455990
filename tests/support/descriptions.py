"""botocore's descriptions of services, read once a process.

Their contents never change, and reading them is most of the time that a client takes; each of
the loaders that sessions make would read them anew.
"""

from __future__ import annotations

from functools import cache

from botocore.loaders import JSONFileLoader

_descriptions = cache(JSONFileLoader().load_file)


def read_once() -> None:
    """From now on."""
    JSONFileLoader.load_file = lambda self, file_path: _descriptions(file_path)
