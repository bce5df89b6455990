"""Tables of options: how they are defined, read from Spark's options, and documented.

Spark lower-cases option names before a Python data source gets them, so ``partitionBy``,
``partition_by`` and ``partitionby`` are one option. Unknown options are refused, not ignored: with
a misspelt ``replacePartitions`` the partitions would not be protected.

Options are shown in query plans and in Spark's UI. So none of them is a secret, and an option that
looks like a secret is refused, without its value in the error.

Parsers of values raise ``ValueError`` with the form that the text should have had.
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
#: The same for a user's own names, those of tags and metadata: ``primary_key`` is no secret there.
_SECRET_ENTRY = re.compile(
    r"secret|token|passw|credential|signature"
    r"|(?:access|api|auth|encryption|private|sas|shared|signing|ssh|storage(?:[^a-z0-9]*account)?)"
    r"[^a-z0-9]*key",
    re.IGNORECASE,
)


def flag(text: str) -> bool:
    """Parse ``true`` or ``false``."""
    if text.strip().lower() not in _TRUE:
        raise ValueError("is true or false")
    return _TRUE[text.strip().lower()]


def count(text: str) -> int:
    """Parse a whole number above zero."""
    if (number := whole(text)) <= 0:
        raise ValueError("is a whole number above zero")
    return number


def span(text: str) -> float:
    """Parse a duration above zero: ``3600`` (seconds), ``90min``, ``12h``, ``2d``."""
    if (found := seconds(text)) == 0:
        raise ValueError("is a number of seconds above zero, or such as 90min, 12h or 2d")
    return found


def text(value: str) -> str:
    """Parse a text that is not empty."""
    if not value.strip():
        raise ValueError("is empty")
    return value.strip()


def named(items: TextList, text: str) -> tuple[str, ...]:
    """Parse a list of one text or more.

    An empty list is refused: it would silently read nothing, or protect nothing.
    """
    found = items.decode(text)
    if not found:
        raise ValueError("names none")
    return found


def pairs(value: str) -> dict[str, str]:
    """Parse ``a=b,c=d``, or a JSON object of texts."""
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
    """Parse ``now``, or a text by :meth:`~.committer.format.read_base.ReadBase.encode`."""
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
    """Define an option, as a field of a dataclass.

    :param parse: converts its text; raises ``ValueError`` with the form it should have had.
    :param handed: the field of :class:`Handoff` that counts if the option is absent.
    :param only_if: a condition for this, for the documentation.
    :param also: other names, such as Spark's own, each with the parser of its texts.
    """
    metadata = {"parse": parse, "doc": doc, "handed": handed, "only_if": only_if, "also": also}
    return field(default=default, metadata=metadata)


def texts_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Return options of a call as texts: numbers and truth values as Spark's writers spell them.

    :raises InvalidInputError: a name that is not a text, or another value.
    """
    found: dict[str, str] = {}
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str | bool | int | float):
            kind = type(value if isinstance(name, str) else name).__name__
            raise InvalidInputError(
                f"options has an item {name!r} of type {kind}; nothing was read or written.",
                remedy="Give names and values of options as texts, such as 'true' or '128m'.",
            )
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def read_given(kind: type[Any], given: Mapping[str, str], other: type[Any]) -> dict[str, Any]:
    """Parse the given options of a class, and return their values by the names of its fields.

    :param other: a class with whose options a user may confuse these; its ``USE`` is for the error.
    :raises InvalidInputError: an unknown option, an invalid value, or a secret.
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
    """Return an option's names as they are documented."""
    return [camel(option.name), *option.metadata["also"]]


def known_names(kind: type[Any]) -> set[str]:
    """Return the names of the options of a class, each in the form of :func:`plain`."""
    return {plain(name) for it in fields(kind) for name in _names(it)}


def plain(name: str) -> str:
    return re.sub(r"[_\-\s]", "", name).lower()


def camel(name: str) -> str:
    """Convert ``partition_by`` to the documented form of options, ``partitionBy``."""
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
    if isinstance(parsed, dict) and any(_SECRET_ENTRY.search(name) for name in parsed):
        raise _secret(f"{what} has an entry that looks like a credential")
    return parsed


def _unknown(kind: type[Any], name: str, other: type[Any]) -> InvalidInputError:
    names = {plain(name): name for f in fields(kind) for name in _names(f)}
    # Some of our options have "key" in their names, too: idempotencyKeys is a typing error.
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
    """Write the options of a class as a Markdown table, for the documentation."""
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for option in fields(kind):
        doc, handed = option.metadata["doc"], option.metadata["handed"]
        if handed:
            doc += f" From `{Handoff.variable(handed)}` if absent{option.metadata['only_if']}."
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
