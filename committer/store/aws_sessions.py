"""Sessions of boto3 that another library makes, as Airflow does of a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boto3.session import Session
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from ..errors import StoreRefusedError, StoreUnreachableError, ZeroRenameError, without_secrets
from .error_translation import describe, is_unsure

#: Errors of boto3 and Airflow at a value of a kind that they do not expect.
_KINDS = (AttributeError, KeyError, TypeError)


@contextmanager
def making_session(conn_id: str) -> Iterator[None]:
    """Say by a sentence why a connection gives no session, where its role or profile is made out.

    :raises StoreRefusedError: keys, profile, role or token file cannot be right.
    :raises StoreUnreachableError: the service that gives out roles does not answer.
    """
    try:
        yield
    except ZeroRenameError:
        raise  # It says so already, and some are ValueErrors.
    except _KINDS as error:
        # Airflow takes an extra's members as the kinds that they should be.
        raise StoreRefusedError(
            f"The extra of the connection {conn_id!r} holds a value of another kind than its place "
            f"takes ({type(error).__name__}: {without_secrets(str(error))[:300]}). Nothing was "
            "read, written or submitted.",
            remedy="In its extra, region_name, endpoint_url, role_arn and profile_name are texts; "
            "config_kwargs, session_kwargs, assume_role_kwargs and service_config are JSON "
            "objects. In a connection by URL all values are texts, unless its parameter __extra__ "
            "holds the whole extra as JSON.",
        ) from error
    except (BotoCoreError, ClientError, OSError, ValueError, NotImplementedError) as error:
        silent = isinstance(error, ConnectionError | HTTPClientError)
        if silent or (isinstance(error, ClientError) and is_unsure(error)):
            raise StoreUnreachableError(
                f"The role of the connection {conn_id!r} cannot be assumed now: the service that "
                f"gives it out does not answer ({describe(error)}). Nothing was read, written or "
                "submitted.",
                remedy="Try again when it answers; see the endpoint of sts in the connection's "
                "service_config.",
            ) from error
        why = describe(error)
        if not isinstance(error, ClientError):
            why += f": {without_secrets(' '.join(str(error).split()))[:300]}"
        raise StoreRefusedError(
            f"The connection {conn_id!r} gives no AWS session ({why}). Nothing was read, written "
            "or submitted.",
            remedy="Mend its keys, region_name, endpoint_url, profile_name or role_arn, or what "
            "assume_role_kwargs says; the identity that it begins with must be allowed to assume "
            "the role.",
        ) from error


def chain_method() -> str | None:
    """Return the method by which boto3's own chain finds keys here; ``None``: it finds none."""
    found = Session().get_credentials()
    return None if found is None else found.method
