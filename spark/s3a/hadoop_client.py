"""A boto3 client for the store that S3A writes a bucket to, by Hadoop's own settings.

Records, listings and verification have to meet the objects that the committer writes. So what
Hadoop's configuration says of the store counts before what boto3 finds in the environment, for one
bucket before all of them, read as ``DefaultS3ClientFactory`` and ``CredentialProviderListFactory``
(hadoop-aws 3.5.0) read it. Keys go from there into the client, and nowhere else.
"""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import urlsplit

from ...committer.store.clients import ANONYMOUS, Keys, client_at
from .session import SessionView

#: ``fs.s3a.aws.credentials.provider`` of ``core-default.xml``, the part that matters here.
_DEFAULT_PROVIDERS = (
    "TemporaryAWSCredentialsProvider,SimpleAWSCredentialsProvider,"
    "EnvironmentVariableCredentialsProvider"
)
_AWS = re.compile(r"s3(?:[.-](?P<region>[a-z]{2}(?:-[a-z]+)+-[0-9]))?\.amazonaws\.com(?:\.cn)?")
_ACCESS_VARIABLE = "AWS_ACCESS_KEY_ID"
#: Values of ``fs.s3a.endpoint.region`` that leave the region to the SDK (HADOOP-19363).
_OF_THE_SDK = ("", "sdk")


def client_of(settings: SessionView, bucket: str) -> Any:
    """A client for a bucket; ``None``, for boto3's own chain, where Hadoop says nothing of it.

    :raises StoreRefusedError: the settings cannot be right.
    """
    region = settings.for_bucket(bucket, "fs.s3a.endpoint.region")
    region = None if region is None or region.strip().lower() in _OF_THE_SDK else region.strip()
    endpoint = _endpoint(settings, bucket)
    path_style = _is_true(settings.for_bucket(bucket, "fs.s3a.path.style.access"), default=False)
    keys = _keys(settings, bucket)
    if endpoint is None and keys is None and region is None and not path_style:
        return None
    if endpoint is not None and region is None:
        aws = _AWS.fullmatch(urlsplit(endpoint).hostname or "")
        region = aws["region"] if aws else None
    return client_at(endpoint, region, path_style=path_style, keys=keys)


def _endpoint(settings: SessionView, bucket: str) -> str | None:
    """The endpoint's URL. Without a scheme it is one of TLS unless that is switched off."""
    said = (settings.for_bucket(bucket, "fs.s3a.endpoint") or "").strip()
    if not said or "://" in said:
        return said or None
    secure = settings.for_bucket(bucket, "fs.s3a.connection.ssl.enabled")
    return f"{'https' if _is_true(secure, default=True) else 'http'}://{said}"


def _keys(settings: SessionView, bucket: str) -> Keys | None:
    """The keys that S3A signs with, by the first of its providers that has some; ``None`` where
    that is one that boto3 has as well."""
    listed = settings.for_bucket(bucket, "fs.s3a.aws.credentials.provider") or _DEFAULT_PROVIDERS
    access = settings.secret(bucket, "fs.s3a.access.key")
    secret = settings.secret(bucket, "fs.s3a.secret.key")
    token = settings.secret(bucket, "fs.s3a.session.token")
    for provider in re.split(r"[\s,]+", listed.strip()):
        name = provider.rpartition(".")[2]
        if name == "AnonymousAWSCredentialsProvider":
            return ANONYMOUS
        if name == "TemporaryAWSCredentialsProvider":
            if access and secret and token:
                return Keys(access, secret, token)
        elif name == "SimpleAWSCredentialsProvider":
            if access and secret:
                return Keys(access, secret)
        elif name != "EnvironmentVariableCredentialsProvider" or os.environ.get(_ACCESS_VARIABLE):
            return None
    return None


def _is_true(value: str | None, default: bool) -> bool:
    """As ``Configuration.getBoolean`` reads it."""
    word = (value or "").strip().lower()
    return word == "true" if word in ("true", "false") else default
