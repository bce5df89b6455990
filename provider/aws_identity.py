"""Keys of an AWS connection, for an application's driver."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..committer.errors import StoreRefusedError

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

_log = logging.getLogger(__name__)


def handed_keys(hook: S3Hook, conn_id: str) -> dict[str, str]:
    """Return the environment variables with a connection's keys.

    The secret ones are masked in task logs from now on.

    :return: empty if the keys on this machine are those of boto3's own chain.
    :raises StoreRefusedError: the connection decides the keys, and has none.
    """
    from ..committer.store.clients import Keys  # Lazy: it loads boto3.

    if not _decides_keys(hook):
        return {}
    if (known := hook.get_session().get_credentials()) is None:
        raise StoreRefusedError(
            f"The connection {conn_id!r} has no keys: its profile or session factory gives none. "
            "Nothing was submitted.",
            remedy="Give it keys, or take profile_name out, so that the application finds its own.",
        )
    keys = hook.get_credentials()
    if keys.token and (end := getattr(known, "_expiry_time", None)) is not None:
        _log.info(
            "The keys that the application gets of the connection %r expire at %s, and it cannot "
            "renew them. If it runs longer, give it a role of its own and pass_credentials=False, "
            "or a greater DurationSeconds in the connection's assume_role_kwargs.",
            conn_id,
            end.isoformat(timespec="seconds"),
        )
    return Keys(keys.access_key or "", keys.secret_key or "", keys.token).environment


def _decides_keys(hook: S3Hook) -> bool:
    """Return whether a connection, or the installation's session factory, decides the keys.

    Otherwise they are those of boto3's own chain.
    """
    from airflow.providers.amazon.aws.hooks import base_aws

    from ..committer.store.aws_sessions import chain_method  # Lazy: it loads boto3.

    config = hook.conn_config
    if config.aws_access_key_id or config.role_arn or config.profile_name:
        return True
    if base_aws.SessionFactory is base_aws.BaseSessionFactory:
        return False
    found = hook.get_session().get_credentials()
    return found is not None and found.method != chain_method()
