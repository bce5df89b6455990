"""Table of options: how a class of them is read from what Spark hands on, and documented.

Spark lower-cases option names on their way to a Python data source, so ``partitionBy``,
``partition_by`` and ``partitionby`` are one option. Unknown options are refused, not ignored: a
misspelt ``replacePartitions`` would lose what it was meant to protect.

Options show up in query plans and in Spark's UI. None of them is a secret, and what looks like
one is refused without repeating it.

Parsers of values raise ``ValueError`` with what the text should have been.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from types import MappingProxyType
from typing import Any

from ..committer.errors import InvalidInputError, without_secrets
from ..committer.format.handoff import Handoff
from ..committer.format.read_base import NOTHING_READ, ReadBase
from ..committer.format.text_values import TextList, seconds, whole

_TRUE = {"true": True, "false": False}
_SECRET = re.compile(r"key|secret|token|passw|credential|signature", re.IGNORECASE)


def flag(text: str) -> bool:
    """``true`` or ``false``."""
    if text.strip().lower() not in _TRUE:
        raise ValueError("is true or false")
    return _TRUE[text.strip().lower()]


def count(text: str) -> int:
    """A whole number above zero."""
    if (number := whole(text)) <= 0:
        raise ValueError("is a whole number above zero")
    return number


def span(text: str) -> float:
    """A duration that takes any time: ``3600``, ``90min``, ``12h``, ``2d``."""
    if (found := seconds(text)) == 0:
        raise ValueError("is a number of seconds above zero, or such as 90min, 12h or 2d")
    return found


def text(value: str) -> str:
    """A text that is not empty."""
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def named(items: TextList, text: str) -> tuple[str, ...]:
    """One text or more. None would read nothing, or protect nothing, in silence."""
    found = items.decode(text)
    if not found:
        raise ValueError("names none")
    return found


def pairs(value: str) -> dict[str, str]:
    """``a=b,c=d``, or a JSON object of texts."""
    if value.lstrip().startswith("{"):
        try:
            items = json.loads(value)
        except ValueError as error:
            raise ValueError("begins like a JSON object and is none") from error
        if not all(isinstance(item, str) for item in items.values()):
            raise ValueError("is a JSON object of something else than texts")
        return items
    found: dict[str, str] = {}
    for item in value.split(","):
        name, equals, content = item.partition("=")
        if not equals or not name.strip():
            raise ValueError("is written a=b,c=d")
        found[name.strip()] = content.strip()
    return found


def read_base(text: str) -> ReadBase:
    """``now``, or a text by :meth:`~.committer.format.read_base.ReadBase.encode`."""
    if text.strip().lower() == "now":
        return NOTHING_READ
    try:
        return ReadBase.decode(text)
    except ValueError as error:
        raise ValueError(f"{error} and not now") from error


def option(
    parse: Callable[[str], Any],
    doc: str,
    default: Any = None,
    handed: str | None = None,
    only_if: str = "",
    also: Mapping[str, Callable[[str], Any]] = MappingProxyType({}),
) -> Any:
    """An option.

    :param parse: from its text; raises ``ValueError`` with what it should have been.
    :param handed: the member of :class:`Handoff` that counts where the option is absent.
    :param only_if: when it does, for the documentation.
    :param also: other names, such as Spark's own, and how their texts are parsed.
    """
    metadata = {"parse": parse, "doc": doc, "handed": handed, "only_if": only_if, "also": also}
    return field(default=default, metadata=metadata)


def read_given(kind: type[Any], given: Mapping[str, str], other: type[Any]) -> dict[str, Any]:
    """What was given of the options of a class, by their members' names.

    :param other: the class whose options may be taken for this one's. ``USE`` says what for.
    :raises InvalidInputError: an unknown option, a value that cannot be right, a secret.
    """
    known = {plain(name): f for f in fields(kind) for name in _names(f)}
    found: dict[str, Any] = {}
    for name, value in given.items():
        option = known.get(plain(name))
        if option is None:
            raise _unknown(kind, name, other)
        if option.name in found:
            raise InvalidInputError(
                f"{' and '.join(_names(option))} are one option, and it is given twice; nothing "
                "was read or written.",
                remedy="Leave one of them out.",
            )
        found[option.name] = _parse(option, name, value)
    return found


def _names(option: Field[Any]) -> list[str]:
    """An option's names as they are documented."""
    return [camel(option.name), *option.metadata["also"]]


def known_names(kind: type[Any]) -> set[str]:
    """Return the names of the options of a class, each as :func:`plain` has it."""
    return {plain(name) for it in fields(kind) for name in _names(it)}


def plain(name: str) -> str:
    return re.sub(r"[_\-\s]", "", name).lower()


def camel(name: str) -> str:
    """``partition_by`` as options are documented: ``partitionBy``."""
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _parse(option: Field[Any], given: str, value: str) -> Any:
    name = next(name for name in _names(option) if plain(name) == plain(given))
    parse = option.metadata["also"].get(name, option.metadata["parse"])
    what = f"The option {name}"
    if option.name == "path" and "@" in value.split("://", 1)[-1].split("/", 1)[0]:
        raise _secret("The table root has something before an @, like a user and password")
    try:
        parsed = parse(value)
    except ValueError as error:
        raise InvalidInputError(
            f"{what} {error}, not {without_secrets(value)!r}; nothing was read or written.",
            remedy=option.metadata["doc"].replace("`", ""),
        ) from error
    if isinstance(parsed, dict) and any(_SECRET.search(name) for name in parsed):
        raise _secret(f"{what} has an entry that looks like a credential")
    return parsed


def _unknown(kind: type[Any], name: str, other: type[Any]) -> InvalidInputError:
    names = {plain(name): name for f in fields(kind) for name in _names(f)}
    # Options of ours have "key" in their names, too: idempotencyKeys is a slip of the pen.
    is_secret = _SECRET.search(name) is not None
    near = difflib.get_close_matches(plain(name), names, n=1, cutoff=0.8 if is_secret else 0.6)
    if is_secret and not near:
        return _secret(f"The option {name!r} looks like a credential")
    if near:
        remedy = f"Is {names[near[0]]} meant?"
    elif "endpoint" in name.lower() or "region" in name.lower():
        remedy = "Set AWS_ENDPOINT_URL and AWS_REGION for the driver and the executors."
    else:
        remedy = f"There are {', '.join(names.values())}."
    if plain(name) in (plain(known) for f in fields(other) for known in _names(f)):
        remedy = f"It is an option for {other.USE} only."
    return InvalidInputError(
        f"{name!r} is no option of zero_rename; nothing was read or written.", remedy=remedy
    )


def _secret(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{what}; options show up in query plans, logs and Spark's UI. Nothing was read or "
        "written.",
        remedy="Credentials come from boto3's own chain on driver and executors: environment "
        "variables (AWS_ACCESS_KEY_ID …), AWS_PROFILE, or the role of the instance or container.",
    )


def markdown(kind: type[Any]) -> str:
    """The options of a class as a Markdown table, for the README."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in fields(kind):
        doc, handed = option.metadata["doc"], option.metadata["handed"]
        if handed:
            doc += f" From `{Handoff.variable(handed)}` where absent{option.metadata['only_if']}."
        names = ", ".join(f"`{name}`" for name in _names(option))
        lines.append(f"| {names} | {_default(option.default)} | {doc} |")
    return "\n".join(lines)


def _default(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 1024**2 and value % 1024**2 == 0:
        return f"`{value // 1024**2}m`"
    if isinstance(value, float):
        return f"`{value:.0f}`"
    return f"`{value}`"
