"""What botocore finds out anew for each session and client, found out once a process.

Its descriptions of services, which services there are, which of its handlers take keywords, and
what its events are called never change; together they are most of the time that a client takes.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from botocore import hooks
from botocore.compat import accepts_kwargs
from botocore.loaders import JSONFileLoader, Loader, create_loader


def read_once() -> None:
    """From now on."""
    read = cache(JSONFileLoader().load_file)
    listed = cache(create_loader().list_available_services)
    JSONFileLoader.load_file = lambda self, file_path: read(file_path)
    Loader.list_available_services = lambda self, type_name: listed(type_name)
    hooks.accepts_kwargs = _accepts_keywords
    aliaser: Any = hooks.EventAliaser
    called = cache(aliaser(None)._alias_event_name)
    aliaser._alias_event_name = lambda self, event_name: called(event_name)


def _accepts_keywords(handler: Any) -> bool:
    # By the code, so that no handler, and no client with it, is kept.
    code = getattr(handler, "__code__", None)
    return bool(accepts_kwargs(handler) if code is None else code.co_flags & inspect.CO_VARKEYWORDS)
