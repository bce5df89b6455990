"""Policy of a ``zero_rename`` connection, and numbers of the section ``[zero_rename]``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from ..committer.errors import InvalidInputError, StoreUnreachableError, without_secrets
from ..committer.format.job_spec import OnConflict, SuccessMarkers
from ..committer.store.encryption import Algorithm, Encryption
from ..committer.store.fast_root import FastRoot
from ..committer.store.s3_urls import SCHEME, check_bucket_part
from ..orchestration.submit.credentials import looks_like_credential
from ..orchestration.submit.submission import SHORTEST_KEY_ID
from ..orchestration.table_names import check_catalog, table_url
from ..s3a.hadoop.settings import check_committer
from . import CONNECTION_TYPE, get_provider_info
from .compat import silent_backend

_ROOT = re.compile(rf"{SCHEME}[^/\s]")
#: Policies of a job, by the names of their members in :class:`.Handoff`.
_POLICIES: Mapping[str, type[StrEnum]] = {
    "on_conflict": OnConflict,
    "success_markers": SuccessMarkers,
}


@dataclass(frozen=True)
class ConnectionSettings:
    """Settings of a ``zero_rename`` connection: policy, and the id of the AWS connection.

    :param conn_id: the connection's own id, for messages.
    :param table_root: ``s3://bucket/prefix``; tables are named relative to it. Or ``None``.
    :param aws_conn_id: the connection with credentials, region and endpoint.
    :param committer: the default committer.
    :param on_conflict: the default conflict policy; ``None`` if the connection gives none.
    :param success_markers: the places of ``_SUCCESS``; ``None`` if the connection gives none.
    :param data_root: the first place of the files of new Delta tables.
    :param encryption: by the store, of all objects of tables whose records name none; ``None``: the
        bucket's default.
    :param s3a_options: for Hadoop's committers, if the operator does not give them: members of
        :class:`~.s3a.hadoop.settings.S3ASettings`, such as ``encryption`` and ``storage_class``.
    :param catalog: the catalog in which loaded tables are registered, ``glue://database``.
    :param max_recompute: the longest acceptable time, in seconds, to make partitions again that are
        not durable. Maintenance reports partitions that would take longer. ``None``: it does not
        check.
    :param purge_older_than_hours: age of foreign uploads to purge, ``None`` for the
        configuration's default.
    :param exists: there is such a connection; the default one may be missing.
    """

    conn_id: str = "zero_rename_default"
    table_root: str | None = None
    aws_conn_id: str = "aws_default"
    committer: str = "zero_rename"
    on_conflict: OnConflict | None = None
    success_markers: SuccessMarkers | None = None
    data_root: FastRoot | None = None
    encryption: Encryption | None = None
    s3a_options: Mapping[str, Any] | None = None
    purge_older_than_hours: float | None = None
    catalog: str | None = None
    max_recompute: float | None = None
    exists: bool = True

    @staticmethod
    def from_connection(connection: Any) -> ConnectionSettings:
        """Read an Airflow connection.

        :raises InvalidInputError: another connection type, a field that holds or looks like a
            credential, an unknown field, or an invalid value.
        """
        name = connection.conn_id or "zero_rename_default"
        if connection.conn_type != CONNECTION_TYPE:
            raise InvalidInputError(
                f"The connection {name!r} has the type {connection.conn_type!r}, not "
                f"{CONNECTION_TYPE!r}; nothing was read or written.",
                remedy="Name a connection of type zero_rename; it refers to the AWS connection.",
            )
        if connection.login or connection.password:
            raise _holds_keys(name, "login or password")
        for field in ("host", "schema"):
            if getattr(connection, field, None):
                raise InvalidInputError(
                    f"The connection {name!r} has a {field}, which says nothing here; nothing was "
                    "read or written.",
                    remedy="Give the place of its tables as table_root in its extra.",
                )
        extra = connection.extra_dejson
        # If Airflow cannot read an extra, it logs that and has an empty one.
        empty = "".join((connection.extra or "{}").split()) == "{}"
        if not isinstance(extra, Mapping) or (not extra and not empty):
            raise InvalidInputError(
                f"The connection {name!r}'s extra is no JSON object, so its policy is not known; "
                "nothing was read or written.",
                remedy='Give it as {"table_root": "s3://bucket/prefix"}.',
            )
        return ConnectionSettings.from_extra(extra, name)

    @staticmethod
    def from_extra(extra: Mapping[str, Any], conn_id: str) -> ConnectionSettings:
        """Read a connection's extra; empty fields count as absent.

        :raises InvalidInputError: as :meth:`from_connection`.
        """
        known = {field.name for field in fields(ConnectionSettings)} - {"conn_id", "exists"}
        for key, value in extra.items():
            if looks_like_credential(key, value):
                raise _holds_keys(conn_id, key)
            if key not in known:
                raise InvalidInputError(
                    f"The connection {conn_id!r} has the unknown field {key!r}; nothing was read "
                    "or written.",
                    remedy=f"It may have: {', '.join(sorted(known))}.",
                )
        given = {key: value for key, value in extra.items() if value not in (None, "")}
        _check_places(given, conn_id)
        for key in _POLICIES.keys() & given.keys():
            choices = list(_POLICIES[key])
            if given[key] not in choices:
                raise InvalidInputError(
                    f"The connection {conn_id!r} has {key}={given[key]!r}.",
                    remedy=f"Choose one of {', '.join(choices)}.",
                )
            given[key] = _POLICIES[key](given[key])
        for key in ("purge_older_than_hours", "max_recompute"):
            if key in given:
                given[key] = _time(key, given[key], conn_id)
        if "data_root" in given:
            given["data_root"] = _data_root(given["data_root"], conn_id)
        if "encryption" in given:
            given["encryption"] = _encryption(given["encryption"], conn_id)
        if "s3a_options" in given:
            given["s3a_options"] = _options(given["s3a_options"], conn_id)
        for key, check in (("catalog", check_catalog), ("committer", check_committer)):
            if key in given:
                _check(key, check, given[key], conn_id)
        return ConnectionSettings(conn_id=conn_id, **given)

    @property
    def policies(self) -> dict[str, Any]:
        """Policies of a job that the connection gives; those of the operator win over them."""
        said = {name: getattr(self, name) for name in (*_POLICIES, "data_root", "encryption")}
        return {name: value for name, value in said.items() if value is not None}

    def table_url(self, table: str) -> str:
        """Return the URL of a table that is named relative to this connection, or by its URL.

        :raises InvalidInputError: a relative name without a table root, or no name at all.
        """
        return table_url(table, self.table_root, self.named)

    @property
    def named(self) -> str:
        """Name of the connection in messages about a missing setting."""
        missing = "" if self.exists else ", which does not exist,"
        return f"the connection {self.conn_id!r}{missing}"


def check_answered(conn_id: str) -> None:
    """Check that a connection that Airflow does not find is really missing.

    A load without it would use other keys and other policies.

    :raises StoreUnreachableError: a secrets backend did not answer.
    """
    if (silent := silent_backend(conn_id)) is not None:
        raise unanswered(conn_id, silent)


def unanswered(conn_id: str, backend: str) -> StoreUnreachableError:
    """Build the error for a connection that may or may not exist."""
    return StoreUnreachableError(
        f"Whether there is an Airflow connection {conn_id!r} is not known: {backend} did not "
        "answer. Nothing was read or written.",
        remedy="Try again when it answers.",
    )


def config_number(option: str) -> float:
    """Read a number of the section ``[zero_rename]``; the provider information has the defaults.

    :raises InvalidInputError: the configured value is not a number, or negative.
    """
    from airflow.providers.common.compat.sdk import conf

    options = get_provider_info()["config"][CONNECTION_TYPE]["options"]
    value = conf.get(CONNECTION_TYPE, option, fallback=options[option]["default"])
    try:
        number = float(value or "")
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise InvalidInputError(
            f"[{CONNECTION_TYPE}] {option} = {value!r} is not a number of at least 0.",
            remedy="Mend it in airflow.cfg or in the environment.",
        )
    return number


def _check(key: str, check: Callable[[Any], object], value: Any, conn_id: str) -> None:
    try:
        check(value)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"In the connection {conn_id!r}: {error.message}", remedy=error.remedy
        ) from error


def _check_places(given: Mapping[str, Any], conn_id: str) -> None:
    for key in ("table_root", "aws_conn_id", "data_root", "encryption"):
        if not isinstance(given.get(key, ""), str):
            raise InvalidInputError(
                f"The connection {conn_id!r} has {key}={given[key]!r}, which is no text.",
                remedy="Mend it in the connection's extra.",
            )
    check_bucket_part(given.get("table_root", ""))
    root = given.get("table_root")
    if root is not None and (not _ROOT.match(root) or root != root.strip()):
        # A blank at the end would be part of a folder's name, and so mean another folder.
        raise InvalidInputError(
            f"The connection {conn_id!r} has table_root={without_secrets(root)!r}, which is no "
            "place on S3.",
            remedy="Give it as s3://bucket or s3://bucket/prefix, without blanks around it.",
        )


def _data_root(value: str, conn_id: str) -> FastRoot:
    try:
        return FastRoot.parse(value)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"The connection {conn_id!r} has data_root={without_secrets(value)!r}, which is no "
            "data root.",
            remedy=error.remedy,
        ) from error


def _encryption(value: str, conn_id: str) -> Encryption:
    try:
        return Encryption.parse(value)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"The connection {conn_id!r} has encryption={value!r}, which no store carries out; "
            "nothing was read or written.",
            remedy=f"Give {', '.join(Algorithm)}; with KMS perhaps a blank and the key's id, ARN "
            "or alias. Keys of SSE-C are secrets, and not taken.",
        ) from error


def _options(value: Any, conn_id: str) -> dict[str, Any]:
    """Read the field ``s3a_options``: a JSON object, which the connection form keeps as a text."""
    try:
        options = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise InvalidInputError(
            f"The connection {conn_id!r} has s3a_options={value!r}.",
            remedy='Give a JSON object, such as {"encryption": "SSE-S3"}.',
        )
    for name, content in options.items():
        if looks_like_credential(name, content):
            raise _holds_keys(conn_id, f"s3a_options.{name}")
    return options


def _time(key: str, value: Any, conn_id: str) -> float:
    try:
        time = 0.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        time = 0.0
    if not 0 < time < math.inf:
        unit = "hours" if key.endswith("_hours") else "seconds"
        raise InvalidInputError(
            f"The connection {conn_id!r} has {key}={value!r}.",
            remedy=f"Give a number of {unit} above 0.",
        )
    return time


def secrets_of(connection: Any) -> Iterator[str]:
    """Yield the secrets of any Airflow connection: its password, and values in its extra.

    A value counts if its name is that of a credential. A short id of a key does not count: it is a
    word that a user chose, such as ``minio``.
    """
    members = {"password": connection.password, "extra": connection.extra_dejson}
    if connection.conn_type == "aws":
        members["access_key_id"] = connection.login
    for name, value in _texts(members):
        is_word = name.endswith("key_id") and len(value) < SHORTEST_KEY_ID
        if looks_like_credential(name, value) and not is_word:
            yield value


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text with the name of its member."""
    if isinstance(value, Mapping):
        for key, held in value.items():
            yield from _texts(held, str(key))
    elif isinstance(value, list):
        for held in value:
            yield from _texts(held, name)
    elif isinstance(value, str):
        yield name, value


def _holds_keys(conn_id: str, field: str) -> InvalidInputError:
    return InvalidInputError(
        f"The connection {conn_id!r} holds a credential in {field!r}; a zero_rename connection "
        "holds policy only, and its fields are not masked.",
        remedy="Put the keys into an AWS connection and name that in aws_conn_id.",
    )
