"""Sessions of boto3 that another library makes, such as Airflow from a connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from boto3.session import Session
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError

from ..errors import StoreRefusedError, StoreUnreachableError, ZeroRenameError, without_secrets
from .error_translation import describe, is_unsure

#: Errors of boto3 and Airflow for a value of an unexpected type.
_KINDS = (AttributeError, KeyError, TypeError)


@contextmanager
def making_session(conn_id: str) -> Iterator[None]:
    """Convert errors inside this context, in which a connection's session is made.

    The new errors say why the connection gives no session.

    :raises StoreRefusedError: invalid keys, profile, role or token file.
    :raises StoreUnreachableError: the service that gives out roles does not answer.
    """
    try:
        yield
    except ZeroRenameError:
        raise  # It has such a message already; some of these are ValueErrors.
    except _KINDS as error:
        # Airflow uses an extra's members without a check of their types.
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
    """Return the method by which boto3's own chain finds keys here; ``None``: no keys found."""
    found = Session().get_credentials()
    return None if found is None else found.method
