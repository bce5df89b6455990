"""The boto3 client behind a driver: it sends each request once, and signs by the store's clock."""

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

#: Requests under way at once, and connections kept per client.
PARALLEL = 32
#: Seconds to wait for a connection: two lost packets of a handshake are sent again within them
#: (after one second and after three). What needs longer is tried anew.
CONNECT_TIMEOUT = 4
#: Seconds without a byte of an answer. Long: S3 answers small requests at once, but a store may
#: say nothing while it puts an upload of thousands of parts together. Half of the budget of a
#: request (:class:`.retries.RetryBudget`), so that one left unanswered is tried again.
READ_TIMEOUT = 60
#: Stores that send no Server header, by the owner they name: S3Mock.
_OWNERS = frozenset({"s3-mock-file-store"})
#: Below this many bytes, waiting for ``100 Continue`` costs a round trip and saves nothing.
_EXPECT_FROM = 1024 * 1024
#: How the Authorization header of requests begins that are signed by keys.
SIGV4 = "AWS4-HMAC-SHA256"
# Since 1.36 boto3 adds CRC32 trailers to uploads and checks checksums of answers by default.
# Ceph, older MinIO and others refuse or mangle such uploads; the sha256 of the payload, which
# SigV4 signs, protects the bytes on the way as well, and our records carry a sha256 of the file.
# A bucket that demands a checksum (Object Lock) gets Content-MD5, once it has said so.
_OURS: dict[str, Any] = {
    "request_checksum_calculation": "when_required",
    "response_checksum_validation": "when_required",
    "retries": {"total_max_attempts": 1, "mode": "standard"},
}
#: The endpoint that is given counts, not the one that AWS_ENDPOINT_URL may name by now.
_THIS_ENDPOINT: dict[str, Any] = {"ignore_configured_endpoint_urls": True}
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")

_log = logging.getLogger("zero_rename.committer.store.clients")
#: Seconds. S3 refuses what is dated 15 minutes off; a lesser difference is no reason to doubt the
#: host's own clock.
_TOLERATED = 300.0


class StoreClock:
    """How far the store's clock is ahead of this host's: 0 until the store has refused a request
    for its date (``RequestTimeTooSkewed``). AWS's other SDKs correct by the answer's Date header;
    botocore does not.

    :param ahead: seconds.
    :param host: this host's clock, seconds since the epoch; for tests.
    """

    def __init__(self, ahead: float = 0.0, host: Callable[[], float] | None = None) -> None:
        self.ahead = ahead
        self._host = host or (lambda: time.time())
        self._lock = threading.Lock()

    def heed(self, date: float, signed: float) -> bool:
        """Go by the date of a refusal from now on.

        :param date: the answer's Date header, seconds since the epoch; 0 for none.
        :param signed: what :attr:`ahead` was as the request was signed.
        :returns: whether its date was off, so that it may be signed anew.
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
        """The time by the store's clock, as far as it is known; seconds since the epoch."""
        return self._host() + self.ahead


class _SignerByTheStore(S3SigV4Auth):
    clock: StoreClock

    def _modify_request_before_signing(self, request: Any) -> None:
        now = datetime.fromtimestamp(self.clock.now(), UTC)
        request.context["timestamp"] = now.strftime(SIGV4_TIMESTAMP)
        super()._modify_request_before_signing(request)  # pyright: ignore


@dataclass(frozen=True)
class S3Clients:
    """An S3 client, and what is known of the store behind it.

    botocore's own retries are off. Those of its *standard* mode end for all of a client when its
    500 tokens are spent, of which a retry takes 5 after throttling and 14 after anything else
    (``botocore.retries.standard.RetryQuotaChecker``): 36 requests of a store that restarts. Those
    of *adaptive* mode cut the rate by 0.3 at each throttled answer, to one request in two seconds
    (``botocore.retries.throttling``, ``bucket``). And after a retry of a conditional write or a
    Complete the answer would speak of the retry, so that a write that succeeded would look
    refused (aws-sdk-java-v2#6580). See :mod:`.boto_calls` for ours.

    :param client: what sends.
    :param parallel: connections the client keeps; the driver's pool has as many threads, so
        that no thread waits for a connection or throws one away.
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
        """Sign a request anew by the store's clock, where that differs. One that is not signed,
        or by another scheme, stays as it is."""
        if self.clock.ahead and request.headers.get("Authorization", "").startswith(SIGV4):
            self.sign(request)

    def sign(self, request: Any) -> None:
        """Sign a request of botocore's by the store's clock."""
        keys = self.client._get_credentials().get_frozen_credentials()
        signing = request.context.get("signing", {})
        region = signing.get("region") or self.client.meta.region_name
        signer = _SignerByTheStore(keys, signing.get("signing_name", "s3"), region)
        signer.clock = self.clock
        signer.add_auth(request)

    @property
    def server_name(self) -> str:
        """The ``Server`` header of the last answer that had one. A store without that header is
        known once it listed uploads, if it owns them by a name of :data:`_OWNERS`; else ``""``."""
        return self._heard.get("server", "")

    @property
    def endpoint(self) -> str:
        """The endpoint's URL without user or password, for messages."""
        parts = urlsplit(self.client.meta.endpoint_url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"

    @staticmethod
    def from_environment(parallel: int = PARALLEL) -> S3Clients:
        """A client by boto3's standard chain: environment (``AWS_ENDPOINT_URL`` too), profile,
        container, instance role.

        What :data:`.client_settings.S3_CLIENT` says wins over all of that.

        :raises StoreRefusedError: the profile, region or endpoint cannot be right.
        :raises InvalidInputError: that variable holds something else.
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
        """A client that reaches what the caller's own client reaches; that one is left as it is.

        Taken over: the credentials object (so that refreshable ones keep refreshing), region,
        endpoint, TLS verification, proxies, addressing, timeouts and every other setting of its
        ``Config``; of that only the pool's size, the checksum settings and the retries are
        replaced. Not taken over: event handlers registered on the client. Whoever needs those
        builds an :class:`S3Clients` by hand.

        :param endpoint_url: of another store than the client's.
        """
        session = _session()
        # The public ways to hand over credentials take frozen strings, which would expire.
        session._credentials = client._get_credentials()  # pyright: ignore
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
        """The same with connections of its own, for a process that was forked.

        On a connection that two processes share, each may read the answer to the other.
        """
        made = S3Clients.derived_from(self.client, self.parallel)
        made._heard.update(self._heard)
        made.clock.ahead = self.clock.ahead
        return made


def _session() -> botocore.session.Session:
    """A session of its own but for the description of S3, which never changes: reading that is
    most of the time that making a client takes."""
    session = botocore.session.get_session()
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    parsers = session.get_component("response_parser_factory")
    parsers.set_parser_defaults(timestamp_parser=_time)
    return session


def _client_by(given: ClientSettings | None, config: Config, ours: Config) -> Any:
    """A client by the standard chain, but for what another process has said of its store.

    :param config: what counts where that process says nothing.
    :param ours: what counts in any case.
    """
    if given is None:
        return _session().create_client("s3", config=config.merge(ours))
    config = config.merge(given.botocore_config()).merge(ours)
    where = {"endpoint_url": given.endpoint, "verify": given.verify}
    session = _session()
    made = session.create_client("s3", config=config, **where)
    own = given_endpoint(made)
    if given.endpoint is not None or (own is not None and is_aws(own)):
        return made  # By a VPC endpoint, perhaps, which this host's environment names.
    if not _may_name_endpoint(session):
        return made  # A second client costs a worker's start 10 ms.
    return _session().create_client("s3", config=config.merge(Config(**_THIS_ENDPOINT)), **where)


def _may_name_endpoint(session: botocore.session.Session) -> bool:
    """Tell whether the environment or the profile may name an endpoint."""
    profile = session.get_scoped_config()
    by_profile = "endpoint_url" in profile or "services" in profile
    return by_profile or any(os.environ.get(name) for name in _ENDPOINT_VARIABLES)


def _time(text: Any) -> datetime:
    """A time in an answer. Those of listings, two a line of some, are in one form, which botocore's
    parser of any form takes twenty times as long for."""
    if isinstance(text, str) and text.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    return parse_timestamp(text)


@cache
def _loader(data_path: str | None) -> Loader:
    return create_loader(data_path)


@contextmanager
def making_clients() -> Iterator[None]:
    """Errors inside, where clients are made, are ours.

    :raises StoreRefusedError: the profile, credentials, region or endpoint cannot be right.
    """
    try:
        yield
    except ZeroRenameError:
        raise  # Ours already, and some are ValueErrors.
    except (BotoCoreError, ClientError, ValueError) as error:
        raise StoreRefusedError(
            f"No S3 client can be made from the environment ({_why(error)}); nothing was sent.",
            remedy="See AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL and ~/.aws/config.",
        ) from error


def _why(error: Exception) -> str:
    """Say why there is no client, without what may hold a secret: an endpoint may have a user."""
    why = describe(error)
    if isinstance(error, ProfileNotFound):
        why += f": there is no profile {error.kwargs['profile']!r}"
    elif str(error).startswith("Invalid endpoint"):
        why += ": the endpoint does not begin with http:// or https://, or is no URL"
    return why


def check_keys(client: Any) -> None:
    """See that the store knows a boto3 client's keys, whatever they may do there.

    :raises StoreRefusedError: it does not, or it does not answer.
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
    """A pair of keys, which no text of this package shows. ``token``: of a session."""

    access: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def signing(self) -> dict[str, Any]:
        """As arguments of boto3's clients."""
        return {
            "aws_access_key_id": self.access,
            "aws_secret_access_key": self.secret,
            "aws_session_token": self.token,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which boto3 finds these keys. Those without a value are empty: what the
        host has there belongs to other keys, and boto3 would use it with these."""
        return {
            "AWS_ACCESS_KEY_ID": self.access,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_SESSION_TOKEN": self.token or "",
            # An older name of the same, which boto3 looks at first.
            "AWS_SECURITY_TOKEN": "",
            # Past that time boto3 would refuse to use the keys.
            "AWS_CREDENTIAL_EXPIRATION": "",
            "AWS_ACCOUNT_ID": "",
        }


#: Instead of keys: requests are not signed.
ANONYMOUS = Keys("", "")


def client_at(
    endpoint: str | None, region: str | None, *, path_style: bool = False, keys: Keys | None = None
) -> Any:
    """A boto3 client by the standard chain, but for what is given.

    :param endpoint: URL of the store. What :data:`.client_settings.S3_CLIENT` says of its own
        endpoint counts for that one alone.
    :param path_style: put the bucket into the path, not into the host's name.
    :raises StoreRefusedError: the profile, region or endpoint cannot be right.
    :raises InvalidInputError: that variable holds something else.
    """
    import boto3  # On use: most processes need no more than botocore, which loads in half the time.

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
        # A session of its own: boto3's default one keeps the keys that it has found first.
        return boto3.Session(botocore_session=_session()).client(
            "s3",
            endpoint_url=endpoint or told.endpoint,
            region_name=region,
            verify=told.verify,
            config=config,
            **signing,
        )


def profile_client(profile: str) -> Any:
    """A boto3 client by a profile of ``~/.aws/config`` alone: its keys, region and
    ``endpoint_url``, whatever the environment says.

    :raises StoreRefusedError: there is no such profile, or no client can be made of it.
    """
    with making_clients():
        session = _session()
        session.set_config_variable("profile", profile)
        endpoint = session.get_scoped_config().get("endpoint_url")
        config = Config(**_THIS_ENDPOINT)
        return session.create_client("s3", endpoint_url=endpoint, config=config)


def _named_by_owner(parsed: dict[str, Any]) -> str | None:
    """The store's name, where a listing of uploads tells: S3Mock owns whatever is in it."""
    owners = (entry.get("Owner", {}).get("DisplayName") for entry in parsed.get("Uploads", ()))
    return next((name for name in owners if name in _OWNERS), None)


def _adapt(client: Any) -> Any:
    events = client.meta.events
    # For all of S3, since handlers of a single operation run before the one that adds the header.
    events.register_last("before-call.s3", _drop_expect, "zero-rename-expect")
    events.register_last("before-call.s3.DeleteObjects", _add_md5, "zero-rename-md5")
    return client


def _drop_expect(params: dict[str, Any], **_: Any) -> None:
    """boto3 asks for ``100 Continue`` before any body, however small: a round trip each."""
    body = params.get("body")
    view = getattr(body, "getbuffer", None)
    if view is not None and len(view()) < _EXPECT_FROM:
        params["headers"].pop("Expect", None)


def _add_md5(params: dict[str, Any], **_: Any) -> None:
    """boto3 now sends a CRC32 where ``Content-MD5`` used to be; older stores want the latter."""
    body = params.get("body")
    if isinstance(body, str):
        body = body.encode()
    if isinstance(body, bytes):
        params["headers"]["Content-MD5"] = content_md5(body)


def content_md5(body: bytes | memoryview) -> str:
    """Return the header ``Content-MD5`` of a body."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
