"""Settings of an S3 client for another process that uses the same store: one environment variable.

boto3 takes an endpoint, a region, keys and a CA file from variables of its own. It has no variable
for the way in which a bucket is addressed, nor for certificates that are not checked; and an
``AWS_ENDPOINT_URL_S3`` in the other process would win over ``AWS_ENDPOINT_URL``.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore
import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.utils import ensure_boolean

from ..errors import InvalidInputError, StoreRefusedError

_log = logging.getLogger("zero_rename.committer.store.client_settings")
#: Name of the variable.
S3_CLIENT = "ZERO_RENAME_S3_CLIENT"
#: Members of botocore's ``Config`` that decide how a store of AWS is reached.
_VARIANTS = ("use_dualstack_endpoint", "use_fips_endpoint")
_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")
_REGIONAL = re.compile(r"s3[a-z0-9.-]*\.(amazonaws\.com(\.cn)?|api\.aws)")
_MEMBERS = {"endpoint": str, "verify": (bool, str), "config": dict}


@dataclass(frozen=True)
class ClientSettings:
    """Address of a store, and the way in which its buckets are addressed; no keys, region, secrets.

    :param endpoint: URL of the store; ``None``: AWS's own endpoint of the region.
    :param verify: ``False``: certificates are not checked; a path: the CA file; ``None``: the
        host's own settings.
    :param config: members of botocore's ``Config``.
    """

    endpoint: str | None = None
    verify: bool | str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(
        client: Any,
        *,
        verify: bool | str | None = None,
        config: Mapping[str, Any] | None = None,
        profile: str | None = None,
    ) -> ClientSettings:
        """Read the settings of a client.

        :param client: an S3 client of boto3.
        :param verify: the ``verify`` that it was made with; ``None``: its profile's.
        :param config: the members of ``Config`` that it was made with, as JSON. Proxies with a user
            or password are left out: they are secrets, and belong to this host.
        :param profile: the profile that it was made by, if one was named.
        """
        session = botocore.session.Session(profile=profile)
        kept = {name: value for name, value in (config or {}).items() if value is not None}
        if _has_user(kept.get("proxies")):
            del kept["proxies"]
        if client.meta.config.s3:
            kept["s3"] = dict(client.meta.config.s3)
        for name in _VARIANTS:
            wanted = getattr(client.meta.config, name, None)
            wanted = session.get_config_variable(name) if wanted is None else wanted
            if wanted is not None and ensure_boolean(wanted):
                kept[name] = True
        if verify is None and profile is not None:
            verify = session.get_scoped_config().get("ca_bundle")
        return ClientSettings(given_endpoint(client), verify, kept)

    @staticmethod
    def from_environment() -> ClientSettings | None:
        """Read the variable; ``None``: it is not set.

        A CA file that this host does not have is left out: certificates are then checked by the
        host's own.

        :raises InvalidInputError: the variable is not valid.
        :raises StoreRefusedError: the variable and ``AWS_CA_BUNDLE`` name a CA file that does not
            exist.
        """
        text = os.environ.get(S3_CLIENT)
        if not text:
            return None
        made = ClientSettings.decode(text)
        if not isinstance(made.verify, str) or Path(made.verify).exists():
            return made
        if os.environ.get("AWS_CA_BUNDLE") == made.verify:
            raise StoreRefusedError(
                f"The CA file {made.verify} of the connection to the store is not on this host; "
                "nothing was sent.",
                remedy="Put the file at the same path on the hosts of driver and executors, or "
                "take verify out of the connection and set AWS_CA_BUNDLE on each host.",
            )
        _log.warning(
            "The CA file %s of the connection to the store is not on this host: certificates are "
            "checked by the host's own.",
            made.verify,
        )
        return replace(made, verify=None)

    def encode(self) -> str:
        """Return the variable's text."""
        given = {"endpoint": self.endpoint, "verify": self.verify, "config": dict(self.config)}
        kept = {name: value for name, value in given.items() if value not in (None, {})}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))

    def botocore_config(self) -> Config:
        """Return the members of ``config`` as a ``Config`` of botocore.

        :raises InvalidInputError: a member that this host's botocore does not know.
        """
        config = dict(self.config)
        if config.get("signature_version") == "unsigned":
            config["signature_version"] = UNSIGNED
        try:
            return Config(**config)
        except TypeError as error:
            raise InvalidInputError(
                f"botocore {botocore.__version__} does not take the settings of the client that "
                f"{S3_CLIENT} holds: {error}; nothing was sent.",
                remedy="Install the botocore that the submitter has, or take the setting out of "
                "its AWS connection or resource.",
            ) from error

    @staticmethod
    def decode(text: str) -> ClientSettings:
        """Parse a text by :meth:`encode`.

        :raises InvalidInputError: the text is not of that form.
        """
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(
            name in _MEMBERS and isinstance(value, _MEMBERS[name]) for name, value in found.items()
        ):
            raise InvalidInputError(
                f"The variable {S3_CLIENT} is not a JSON object of endpoint, verify and config; "
                "nothing was sent.",
                remedy="Leave it to the submitter of the application, or unset it.",
            )
        return ClientSettings(**found)


def _has_user(proxies: Any) -> bool:
    urls = proxies.values() if isinstance(proxies, Mapping) else ()
    return any(urlsplit(str(url)).username for url in urls)


def given_endpoint(client: Any) -> str | None:
    """Return the URL of a client's endpoint, if it was given; ``None``: a regional one of AWS.

    Regional endpoints must be left to botocore's rules, which put the bucket into the host's name.
    A VPC endpoint counts as given.

    :param client: an S3 client of boto3.
    """
    host = urlsplit(client.meta.endpoint_url).hostname or ""
    return None if _REGIONAL.fullmatch(host) else client.meta.endpoint_url


def is_aws(url: str) -> bool:
    """Return whether a URL leads to AWS; this includes VPC endpoints."""
    return f".{urlsplit(url).hostname or ''}".endswith(_AWS)
