"""Client of boto3 behind a driver: it sends each request once, and signs by the store's clock."""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED
from botocore.auth import SIGV4_TIMESTAMP, S3SigV4Auth
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound
from botocore.loaders import Loader, create_loader
from botocore.utils import parse_timestamp

from ..errors import StoreRefusedError, ZeroRenameError
from .client_settings import ClientSettings, given_endpoint, is_aws
from .error_translation import code_of, describe
from .retries import Retries

#: Most requests under way at once, and connections kept by a client.
PARALLEL = 32
#: Seconds to wait for a connection. Within them two lost packets of a handshake are sent again
#: (after one second and after three). A connection that needs longer is tried again.
CONNECT_TIMEOUT = 4
#: Seconds without a byte of an answer. It is long: S3 answers small requests at once, but a store
#: may be silent while it completes an upload of thousands of parts. It is half of a request's
#: budget (:class:`.retries.RetryBudget`), so an unanswered request is tried again.
READ_TIMEOUT = 60
#: Names of owners that show the store, for stores without a Server header: S3Mock.
_OWNERS = frozenset({"s3-mock-file-store"})
#: Below this many bytes, waiting for ``100 Continue`` costs a round trip and saves nothing.
_EXPECT_FROM = 1024 * 1024
#: Beginning of the Authorization header of requests that are signed with keys.
_SIGV4 = "AWS4-HMAC-SHA256"
#: The header by which a request shows the session that it is signed for, of S3 Express.
_SESSION = "x-amz-s3session-token"
# Since 1.36 boto3 adds CRC32 trailers to uploads and checks checksums of answers by default.
# Ceph, older MinIO and others refuse or mangle such uploads. The sha256 of the payload, which
# SigV4 signs, also protects the bytes on the way, and our records have a sha256 of each file.
# A bucket that demands a checksum (Object Lock) gets Content-MD5 after its first refusal.
_OURS: dict[str, Any] = {
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
    "retries": {"total_max_attempts": 1, "mode": "standard"},
}
#: Setting by which the given endpoint counts, not the one that AWS_ENDPOINT_URL may name by now.
_THIS_ENDPOINT: dict[str, Any] = {"ignore_configured_endpoint_urls": True}
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")

_log = logging.getLogger("zero_rename.committer.store.clients")
#: Seconds that clocks may differ. S3 refuses requests that are dated 15 minutes off; a smaller
#: difference is no reason to doubt the host's own clock.
_TOLERATED = 300.0


class StoreClock:
    """The store's clock, by its difference from this host's clock.

    The difference is 0 until the store has refused a request for its date
    (``RequestTimeTooSkewed``). AWS's other SDKs correct their clock by the answer's Date header;
    botocore does not.

    :param ahead: seconds by which the store's clock is ahead.
    :param host: this host's clock, in Unix seconds; for tests.
    """

    def __init__(self, ahead: float = 0.0, host: Callable[[], float] | None = None) -> None:
        self.ahead = ahead
        self._host = host or (lambda: time.time())
        self._lock = threading.Lock()

    def heed(self, date: float, signed: float) -> bool:
        """Correct the difference by the date of a refusal.

        :param date: the answer's Date header, in Unix seconds; 0: it has none.
        :param signed: the value of :attr:`ahead` when the request was signed.
        :returns: whether the request's date was wrong, so it should be signed and sent again.
        """
        ahead = date - self._host()
        if not date or abs(ahead - signed) < _TOLERATED:
            return False
        with self._lock:
            known = abs(ahead - self.ahead) < _TOLERATED
            self.ahead = self.ahead if known else ahead
        if not known:
            self._tell(ahead)
        return True

    def _tell(self, ahead: float) -> None:
        _log.warning(
            "This host's clock is %.0f seconds %s the store's, which refused a request for it; "
            "requests are signed by the store's. Set this host's clock.",
            abs(ahead),
            "behind" if ahead > 0 else "ahead of",
        )

    def now(self) -> float:
        """Return the time by the store's clock, as well as it is known; Unix seconds."""
        return self._host() + self.ahead


class _SignerByTheStore(S3SigV4Auth):
    clock: StoreClock

    def _modify_request_before_signing(self, request: Any) -> None:
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        request.context["timestamp"] = now.strftime(SIGV4_TIMESTAMP)
        super()._modify_request_before_signing(request)  # pyrefly: ignore[missing-attribute]


@dataclass(frozen=True)
class S3Clients:
    """An S3 client with its retries, its clock, and the name of the store behind it.

    botocore's own retries are off. In *standard* mode they end for the whole client when its 500
    tokens are spent; a retry takes 5 of them after throttling and 14 after any other failure
    (``botocore.retries.standard.RetryQuotaChecker``). A store that restarts spends them with 36
    requests. In *adaptive* mode each throttled answer cuts the rate by 0.3, down to one request in
    two seconds (``botocore.retries.throttling``, ``bucket``). And after a retry of a conditional
    write or a Complete, the answer would be about the retry: a write that succeeded would look
    refused (aws-sdk-java-v2#6580). See :mod:`.boto_calls` for this package's retries.

    :param client: the client of botocore that sends.
    :param parallel: the number of connections that the client keeps. The driver's pool has as many
        threads, so no thread waits for a connection or drops one.
    """

    client: Any
    parallel: int = PARALLEL
    retries: Retries = field(default_factory=lambda: Retries(PARALLEL), repr=False, compare=False)
    clock: StoreClock = field(default_factory=StoreClock, repr=False, compare=False)
    _heard: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        events = self.client.meta.events
        events.register("after-call.s3", self._hear)
        # After the client's own signer, whose signature it replaces.
        events.register_last("request-created.s3", self._sign)

    def _hear(self, http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
        name = http_response.headers.get("server") or _named_by_owner(parsed)
        if name:
            self._heard["server"] = name

    def _sign(self, request: Any, **_: Any) -> None:
        """Sign a request again by the store's clock, if that differs from the host's.

        A request that is not signed, or signed by another scheme or with the keys of a session of
        S3 Express, is not changed.
        """
        if self.clock.ahead and has_plain_signature(request):
            self.sign(request)

    def sign(self, request: Any) -> None:
        """Sign a botocore request by the store's clock."""
        keys = self.client._get_credentials().get_frozen_credentials()
        signing = request.context.get("signing", {})
        region = signing.get("region") or self.client.meta.region_name
        signer = _SignerByTheStore(keys, signing.get("signing_name", "s3"), region)
        signer.clock = self.clock
        signer.add_auth(request)

    @property
    def server_name(self) -> str:
        """Name of the store: the ``Server`` header of the last answer that had one.

        A store without that header is recognised by a listing of uploads if their owner is one of
        :data:`_OWNERS`; otherwise the name is ``""``.
        """
        return self._heard.get("server", "")

    @property
    def endpoint(self) -> str:
        """URL of the endpoint without user or password, for messages."""
        parts = urlsplit(self.client.meta.endpoint_url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"

    @staticmethod
    def from_environment(parallel: int = PARALLEL) -> S3Clients:
        """Make a client by boto3's standard chain.

        The chain is the environment (``AWS_ENDPOINT_URL`` too), profile, container, instance role.
        The settings in :data:`.client_settings.S3_CLIENT` win over all of these.

        :raises StoreRefusedError: an invalid profile, region or endpoint.
        :raises InvalidInputError: that variable is not valid.
        """
        with making_clients():
            given = ClientSettings.from_environment()
            config = Config(
                connect_timeout=CONNECT_TIMEOUT,
                read_timeout=READ_TIMEOUT,
                tcp_keepalive=True,
                user_agent_extra="zero-rename",
            )
            ours = Config(max_pool_connections=parallel, **_OURS)
            return S3Clients(_adapt(_client_by(given, config, ours)), parallel)

    @staticmethod
    def derived_from(
        client: Any, parallel: int = PARALLEL, endpoint_url: str | None = None
    ) -> S3Clients:
        """Make a client that reaches the same store as the caller's client.

        The caller's client is not changed.

        Taken over are the credentials object (so refreshable credentials keep refreshing), region,
        endpoint, TLS verification, proxies, addressing, timeouts and every other setting of its
        ``Config``, except the pool's size, the checksum settings and the retries. Event handlers
        that are registered on the client are not taken over; a program that needs them builds an
        :class:`S3Clients` by hand.

        :param endpoint_url: the endpoint of another store than the client's.
        """
        session = _session()
        # The public ways to hand over credentials take frozen strings, which would expire.
        session._credentials = client._get_credentials()  # pyrefly: ignore[missing-attribute]
        http = getattr(getattr(client, "_endpoint", None), "http_session", None)
        own = client.meta.config
        pool = max(parallel, own.max_pool_connections)
        own_url = given_endpoint(client)
        made = session.create_client(
            "s3",
            region_name=client.meta.region_name,
            endpoint_url=endpoint_url or own_url,
            verify=getattr(http, "_verify", None),
            config=own.merge(Config(max_pool_connections=pool, **_THIS_ENDPOINT, **_OURS)),
        )
        return S3Clients(_adapt(made), parallel)

    def anew(self) -> S3Clients:
        """Make the same clients with connections of their own, for a forked process.

        If two processes share a connection, each may read the other's answers.
        """
        made = S3Clients.derived_from(self.client, self.parallel)
        made._heard.update(self._heard)
        made.clock.ahead = self.clock.ahead
        return made


def _session() -> botocore.session.Session:
    """Make a new session that shares the description of S3 with other sessions.

    That description never changes, and reading it takes most of the time of making a client.
    """
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    parsers = session.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=_time)
    return session


def _client_by(given: ClientSettings | None, config: Config, ours: Config) -> Any:
    """Make a client by the standard chain, with the settings that another process has given.

    :param given: the settings of the other process; ``None``: none.
    :param config: settings that count if that process gives no other.
    :param ours: settings that always count.
    """
    if given is None:
        return _session().create_client("s3", config=config.merge(ours))
    config = config.merge(given.botocore_config()).merge(ours)
    where = {"endpoint_url": given.endpoint, "verify": given.verify}
    session = _session()
    made = session.create_client("s3", config=config, **where)
    own = given_endpoint(made)
    if given.endpoint is not None or (own is not None and is_aws(own)):
        return made  # For AWS, this host's environment may name a VPC endpoint.
    if not _may_name_endpoint(session):
        return made  # A second client would cost 10 ms of a worker's start.
    return _session().create_client("s3", config=config.merge(Config(**_THIS_ENDPOINT)), **where)


def _may_name_endpoint(session: botocore.session.Session) -> bool:
    """Return whether the environment or the profile may name an endpoint."""
    profile = session.get_scoped_config()
    by_profile = "endpoint_url" in profile or "services" in profile
    return by_profile or any(os.environ.get(name) for name in _ENDPOINT_VARIABLES)


def _time(text: Any) -> datetime:
    """Parse a time in an answer.

    Times in listings (some have two for each entry) are all in one form. botocore's parser, which
    accepts any form, takes twenty times as long for it.
    """
    if isinstance(text, str) and text.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    return parse_timestamp(text)


@cache
def _loader(data_path: str | None) -> Loader:
    return create_loader(data_path)


@contextmanager
def making_clients() -> Iterator[None]:
    """Convert errors inside this context, in which clients are made, to this package's.

    :raises StoreRefusedError: an invalid profile, credentials, region or endpoint.
    """
    try:
        yield
    except ZeroRenameError:
        raise  # It is this package's already; some of these are ValueErrors.
    except (BotoCoreError, ClientError, ValueError) as error:
        raise StoreRefusedError(
            f"No S3 client can be made from the environment ({_why(error)}); nothing was sent.",
            remedy="See AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL and ~/.aws/config.",
        ) from error


def _why(error: Exception) -> str:
    """Return the reason why no client can be made, without secrets: an endpoint may have a user."""
    why = describe(error)
    if isinstance(error, ProfileNotFound):
        why += f": there is no profile {error.kwargs['profile']!r}"
    elif str(error).startswith("Invalid endpoint"):
        why += ": the endpoint does not begin with http:// or https://, or is no URL"
    return why


def has_plain_signature(request: Any) -> bool:
    """Return whether a botocore request is signed with the client's own keys, by Signature Version
    4: not with those of a session of S3 Express, nor by another scheme."""
    headers = request.headers
    return headers.get("Authorization", "").startswith(_SIGV4) and _SESSION not in headers


def check_keys(client: Any) -> None:
    """Check that the store knows a boto3 client's keys; they need no rights there.

    :raises StoreRefusedError: the store does not know them, or does not answer.
    """
    try:
        client.list_buckets()
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and code_of(error) == "AccessDenied":
            return
        place = urlsplit(client.meta.endpoint_url).hostname
        raise StoreRefusedError(
            f"The store at {place} does not take these keys ({describe(error)}); nothing was "
            "read or written.",
            remedy="Check the keys, and that they belong to this endpoint.",
        ) from error


@dataclass(frozen=True)
class Keys:
    """A pair of keys, never shown in a text of this package; ``token`` is that of a session."""

    access: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def signing(self) -> dict[str, Any]:
        """Arguments of boto3's clients with these keys."""
        return {
            "aws_access_key_id": self.access,
            "aws_secret_access_key": self.secret,
            "aws_session_token": self.token,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables by which boto3 finds these keys.

        Variables without a value are set empty: the host's own values belong to other keys, and
        boto3 would use them with these.
        """
        return {
            "AWS_ACCESS_KEY_ID": self.access,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token or "",
            # An older name of the session token, which boto3 reads first.
            "AWS_SECURITY_TOKEN": "",
            # After that time boto3 would refuse to use the keys.
            "AWS_CREDENTIAL_EXPIRATION": "",
            "AWS_ACCOUNT_ID": "",
        }


#: Given instead of keys: requests are not signed.
ANONYMOUS = Keys("", "")


def client_at(
    endpoint: str | None, region: str | None, *, path_style: bool = False, keys: Keys | None = None
) -> Any:
    """Make a boto3 client by the standard chain, with what is given here instead.

    :param endpoint: URL of the store. The settings in :data:`.client_settings.S3_CLIENT` count only
        for the endpoint that they name.
    :param path_style: put the bucket into the path, not into the host's name.
    :raises StoreRefusedError: an invalid profile, region or endpoint.
    :raises InvalidInputError: that variable is not valid.
    """
    import boto3  # Imported on use: most processes need only botocore, which loads twice as fast.

    given: dict[str, Any] = {"s3": {"addressing_style": "path"}} if path_style else {}
    if keys == ANONYMOUS:
        given["signature_version"] = UNSIGNED
        keys = None
    signing = {} if keys is None else keys.signing
    with making_clients():
        told = ClientSettings.from_environment()
        if told is None or endpoint not in (None, told.endpoint):
            told = ClientSettings()
        config = told.botocore_config().merge(Config(**given))
        # A new session: boto3's default one keeps the first keys that it has found.
        return boto3.Session(botocore_session=_session()).client(
            "s3",
            endpoint_url=endpoint or told.endpoint,
            region_name=region,
            verify=told.verify,
            config=config,
            **signing,
        )


def profile_client(profile: str) -> Any:
    """Make a client by a profile of ``~/.aws/config`` alone: its keys, region and ``endpoint_url``.

    The environment does not count.

    :raises StoreRefusedError: the profile does not exist, or no client can be made from it.
    """
    with making_clients():
        session = _session()
        session.set_config_variable("profile", profile)
        endpoint = session.get_scoped_config().get("endpoint_url")
        config = Config(**_THIS_ENDPOINT)
        return session.create_client("s3", endpoint_url=endpoint, config=config)


def _named_by_owner(parsed: dict[str, Any]) -> str | None:
    """Return the store's name from a listing of uploads: S3Mock is their owner.

    ``None``: the listing does not show it.
    """
    owners = (entry.get("Owner", {}).get("DisplayName") for entry in parsed.get("Uploads", ()))
    return next((name for name in owners if name in _OWNERS), None)


def _adapt(client: Any) -> Any:
    events = client.meta.events
    # For all of S3: handlers of a single operation would run before the one that adds the header.
    events.register_last("before-call.s3", _drop_expect, "zero-rename-expect")
    events.register_last("before-call.s3.DeleteObjects", _add_md5, "zero-rename-md5")
    return client


def _drop_expect(params: dict[str, Any], **_: Any) -> None:
    """Remove the ``Expect`` header from requests with a small body.

    boto3 asks for ``100 Continue`` before any body, which costs a round trip.
    """
    body = params.get("body")
    view = getattr(body, "getbuffer", None)
    if view is not None and len(view()) < _EXPECT_FROM:
        params["headers"].pop("Expect", None)


def _add_md5(params: dict[str, Any], **_: Any) -> None:
    """Add ``Content-MD5``, which older stores demand; boto3 now sends a CRC32 instead."""
    body = params.get("body")
    if isinstance(body, str):
        body = body.encode()
    if isinstance(body, bytes):
        params["headers"]["Content-MD5"] = content_md5(body)


def content_md5(body: bytes | memoryview) -> str:
    """Return the header ``Content-MD5`` of a body."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
