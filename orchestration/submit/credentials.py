"""Detection of credentials, to keep them off command lines and out of logs.

Every user of the machine can read spark-submit's command line (``/proc/<pid>/cmdline``), and it is
written to the task's log. The apache-spark provider masks only names that contain ``secret`` or
``password``: the values of ``fs.s3a.access.key``, ``session.token``, ``encryption.key`` and
``--token=`` appear in the log unmasked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...committer.errors import InvalidInputError

#: Endings of names that hold a credential. Only endings: a name with such a word elsewhere is a
#: reference, such as ``secretKeyRef``, ``token.binding``, ``oauthTokenFile``.
_NAME = re.compile(
    r"""(?xi)
    (?: access[._\-]?key(?:[._\-]?id)?
      | secret(?:[._\-]?access)?(?:[._\-]?key)?
      | (?:api|private|encryption|client)[._\-]?key
      | account[._\-]?key (?:[._\-].*)?
      | (?<!idempotency_)token | passw(?:or)?d | pwd | passphrase | credentials?
    ) $"""
)
_ACCESS_KEY_ID = re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])")
#: The password of a URL, also in ``redis://:…@``, and also if the password itself has an ``@``.
_URL_USER = re.compile(r"(?<=://)([^\s/@:]*+:)([^\s/]+)@")
# The name before a value. It is possessive and anchored, so that a long line costs linear time.
# Only values after a credential's name are searched: in ``user=a;password=b`` the value of ``user``
# would include the other one.
_NAMED = re.compile(
    r"""(?<![\w.\-]) (?: ([\w.\-]++)\s*+=\s*+ | (?<!\S)(--?[\w.\-]++)[ \t]++(?!-) )""", re.VERBOSE
)
_MEMBER = re.compile(r""""([\w.\-]++)"\s*+:\s*+"([^"]*)\"""")
_VALUE = re.compile(r""""[^"\n]*"|'[^'\n]*'|\S+""")
#: Values that are switches or references, not credentials.
_HARMLESS = re.compile(r"(?i)true|false|none|null||arn:aws[\w-]*:kms:.*|alias/.*")
_MASK = "******"
#: Separators between the values in a text.
_BETWEEN = re.compile(r"""[\s=,;"']+""")
#: Length from which a secret cannot be part of a text by chance.
_LONG = 16

_REMEDY = (
    "Put the keys into an AWS connection and name it in the zero_rename connection's "
    "aws_conn_id (the task hands them over by environment), or write them to a properties file "
    "that only the worker's user can read and give its path as properties_file."
)


def looks_like_credential(name: str, value: Any) -> bool:
    """Return whether a setting with this name and value holds a credential.

    References to secrets (files, Kubernetes secret keys, KMS key ARNs) and switches do not.
    """
    text = "" if value is None else str(value)
    if _harmless(text):
        return False
    return _NAME.search(str(name)) is not None or holds_credential(text)


def holds_credential(text: str) -> bool:
    """Return whether ``text`` contains a credential.

    That is an access key id, a URL with a password, or a value with a credential's name, as in
    ``-Dfs.s3a.secret.key=…``, ``--token=…`` and JSON.
    """
    if _ACCESS_KEY_ID.search(text) or _URL_USER.search(text):
        return True
    members = ((name, value) for name, value in _MEMBER.findall(text) if _NAME.search(name))
    if any(not _harmless(value) for _, value in members):
        return True
    return any(True for _ in _values(text))


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each value with a credential's name.

    The forms are ``name=value``, with any separator between several, and ``--name value``.
    """
    end = 0
    for found in _NAMED.finditer(text):
        if found.start() < end or not _NAME.search(found[1] or found[2]):
            continue
        value = _VALUE.match(text, found.end())
        if value is not None and not _harmless(value.group()):
            end = value.end()
            yield value.span()


def _harmless(value: str) -> bool:
    return _HARMLESS.fullmatch(value.strip().strip("'\"")) is not None


def refuse_in_settings(settings: Mapping[str, Any] | None, where: str) -> None:
    """Refuse credentials in Spark settings or environment variables of a command line.

    :param where: the operator's argument, for the message.
    :raises InvalidInputError: names the setting, never its value.
    """
    for name, value in (settings or {}).items():
        if looks_like_credential(name, value):
            raise _refused(f"{where}[{name!r}] is a credential, and {where} goes")


def refuse_in_arguments(arguments: Iterable[Any] | None, where: str) -> None:
    """Refuse credentials among the words of a command line.

    :raises InvalidInputError: names the option or the position, never the value.
    """
    words = [str(word) for word in arguments or ()]
    for position, word in enumerate(words):
        following = words[position + 1] if position + 1 < len(words) else ""
        option = word.partition("=")[0] if word.startswith("-") else ""
        bare = bool(option) and "=" not in word and _NAME.search(option.lstrip("-")) is not None
        if holds_credential(word) or (bare and following and not following.startswith("-")):
            named = repr(option) if option else f"number {position}"
            raise _refused(f"{where} {named} is a credential, and goes")


def holds_one_of(text: str, secrets: Collection[str]) -> bool:
    """Return whether a secret is a value in ``text``, with any name; a long one, anywhere in it.

    :param secrets: texts under four characters do not count, as in :func:`mask`.
    """
    values = {*_BETWEEN.split(text), *(half for half in text.partition("=")), text}
    return any(
        secret in values or (len(secret) >= _LONG and secret in text)
        for secret in secrets
        if len(secret) >= 4
    )


def refuse_values(words: Sequence[str], secrets: Collection[str]) -> None:
    """Refuse a command line that contains one of some secrets.

    :raises InvalidInputError: names the option, the setting or the position, never the value.
    """
    for position, word in enumerate(words):
        if holds_one_of(word, secrets):
            name, equals, _ = word.partition("=")
            if not equals:
                name = words[position - 1] if position else ""
            known = name.startswith(("-", "spark.")) and not holds_one_of(name, secrets)
            named = name if known else f"Word {position}"
            why = "has, as its value, a key of a connection that this load uses, and is"
            raise _refused(f"{named} {why}")


def _refused(what: str) -> InvalidInputError:
    return InvalidInputError(
        f"{what} on spark-submit's command line, which every user of the machine can read and "
        "which is logged. Nothing was submitted.",
        remedy=_REMEDY,
    )


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` with asterisks for the given secrets and for values with a credential's name.

    :param secrets: values to hide anywhere in the text; those under four characters stay, since
        they could be part of ordinary words.
    """
    for secret in sorted((s for s in secrets if len(s) >= 4), key=len, reverse=True):
        text = text.replace(secret, _MASK)
    text = _URL_USER.sub(rf"\1{_MASK}@", _ACCESS_KEY_ID.sub(_MASK, text))
    text = _MEMBER.sub(_hide_member, text)
    pieces, end = [], 0
    for start, after in _values(text):
        pieces += [text[end:start], _MASK]
        end = after
    return "".join((*pieces, text[end:]))


def _hide_member(match: re.Match[str]) -> str:
    if not _NAME.search(match[1]) or _harmless(match[2]):
        return match.group()
    return match.group()[: match.start(2) - match.start()] + _MASK + '"'
