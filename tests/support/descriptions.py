"""What botocore finds out anew for each session and client, found out once a process.

Its descriptions of services, which services there are, a client's methods, the rules of a
service's endpoints, which of its handlers take keywords, and what its events are called never
change; together they are most of the time that a client takes.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

from botocore import hooks, regions
from botocore.client import ClientCreator
from botocore.compat import accepts_kwargs
from botocore.loaders import JSONFileLoader, Loader, create_loader


def read_once() -> None:
    """From now on."""
    read = cache(JSONFileLoader().load_file)
    listed = cache(create_loader().list_available_services)
    JSONFileLoader.load_file = lambda self, file_path: read(file_path)
    Loader.list_available_services = lambda self, type_name: listed(type_name)
    hooks.accepts_kwargs = _accepts_keywords  # pyrefly: ignore[bad-assignment]
    aliaser: Any = hooks.EventAliaser
    called = cache(aliaser(None)._alias_event_name)
    aliaser._alias_event_name = lambda self, event_name: called(event_name)
    _share_methods()
    _share_endpoint_rules()


def _share_methods() -> None:
    """A service's methods are made once, and copied, since each client's handlers add to them."""
    creator: Any = ClientCreator
    make, made = creator._create_methods, {}

    def methods(self: Any, service_model: Any) -> dict[str, Any]:
        service = service_model.service_name, service_model.api_version
        if service not in made:
            made[service] = make(self, service_model)
        return dict(made[service])

    creator._create_methods = methods


def _share_endpoint_rules() -> None:
    """A service's rules are read once; descriptions that were read once are the same objects."""
    module: Any = regions
    make, made = module.EndpointProvider, {}

    def provider(*described: Any, **more: Any) -> Any:
        """How many descriptions there are differs by botocore's version."""
        read_from = tuple(map(id, (*described, *more.values())))
        if read_from not in made:
            # With what they were read from, whose identities nothing else takes then.
            made[read_from] = (described, more, make(*described, **more))
        return made[read_from][-1]

    module.EndpointProvider = provider


def _accepts_keywords(handler: Any) -> bool:
    # By the code, so that no handler, and no client with it, is kept.
    code = getattr(handler, "__code__", None)
    return bool(accepts_kwargs(handler) if code is None else code.co_flags & inspect.CO_VARKEYWORDS)
