"""Detection of credentials, and keeping them off command lines and out of logs.

What goes on spark-submit's command line is visible to every user of the machine
(``/proc/<pid>/cmdline``) and lands in the task's log: the apache-spark provider masks only
names that contain ``secret`` or ``password``, so ``fs.s3a.access.key``, ``session.token``,
``encryption.key`` and ``--token=`` appear there in clear.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...committer.errors import InvalidInputError

#: A name that ends so holds a credential. Endings, because names that merely contain such a
#: word are references: ``secretKeyRef``, ``token.binding``, ``oauthTokenFile``.
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
#: The password of a URL: of ``redis://:…@`` too, and one that has an ``@`` itself.
_URL_USER = re.compile(r"(?<=://)([^\s/@:]*+:)([^\s/]+)@")
# What comes before a value: possessive and anchored, so that a long line costs linear time. Values
# are looked for where the name is a credential's only: in ``user=a;password=b`` that of ``user``
# would hide the other.
_NAMED = re.compile(
    r"""(?<![\w.\-]) (?: ([\w.\-]++)\s*+=\s*+ | (?<!\S)(--?[\w.\-]++)[ \t]++(?!-) )""", re.VERBOSE
)
_MEMBER = re.compile(r""""([\w.\-]++)"\s*+:\s*+"([^"]*)\"""")
_VALUE = re.compile(r""""[^"\n]*"|'[^'\n]*'|\S+""")
#: Values that say whether or how, not what.
_HARMLESS = re.compile(r"(?i)true|false|none|null||arn:aws[\w-]*:kms:.*|alias/.*")
_MASK = "******"
#: What parts the values in a text.
_BETWEEN = re.compile(r"""[\s=,;"']+""")
#: Characters of a secret that is no word of a text by chance.
_LONG = 16

_REMEDY = (
    "Put the keys into an AWS connection and name it in the zero_rename connection's "
    "aws_conn_id (the task hands them over by environment), or write them to a properties file "
    "that only the worker's user can read and give its path as properties_file."
)


def looks_like_credential(name: str, value: Any) -> bool:
    """Whether a setting of this name and value holds a credential.

    References to secrets (files, Kubernetes secret keys, KMS key ARNs) and switches do not.
    """
    text = "" if value is None else str(value)
    if _harmless(text):
        return False
    return _NAME.search(str(name)) is not None or holds_credential(text)


def holds_credential(text: str) -> bool:
    """Whether ``text`` carries a credential: an access key id, a URL with a password, or a
    ``name=value`` of such a name, as in ``-Dfs.s3a.secret.key=…``, ``--token=…`` and JSON."""
    if _ACCESS_KEY_ID.search(text) or _URL_USER.search(text):
        return True
    members = ((name, value) for name, value in _MEMBER.findall(text) if _NAME.search(name))
    if any(not _harmless(value) for _, value in members):
        return True
    return any(True for _ in _values(text))


def _values(text: str) -> Iterator[tuple[int, int]]:
    """Where the values of credential-shaped names begin and end: of ``name=value``, separated by
    anything, and of ``--name value``."""
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
    """Refuse credentials in Spark settings or environment variables bound for a command line.

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
    """Whether a secret is a value in ``text``, whatever its name is; a long one, anywhere in it.

    :param secrets: those under four characters are no secrets, as :func:`mask` takes them.
    """
    values = {*_BETWEEN.split(text), *(half for half in text.partition("=")), text}
    return any(
        secret in values or (len(secret) >= _LONG and secret in text)
        for secret in secrets
        if len(secret) >= 4
    )


def refuse_values(words: Sequence[str], secrets: Collection[str]) -> None:
    """Refuse a command line that holds one of some secrets.

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
    """``text`` without the given secrets, and without values of credential-shaped names.

    :param secrets: values to hide wherever they appear; those under four characters are left,
        as they would blacken ordinary words.
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
