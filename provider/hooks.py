"""Hook of the ``zero_rename`` connection: tables, and credentials for spark-submit."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from ..committer.errors import InvalidInputError, ZeroRenameError
from ..orchestration.table_names import all_below, urls_below
from . import CONNECTION_TYPE
from .aws_identity import handed_keys
from .compat import AIRFLOW_V_3_0_PLUS, form_behaviour, form_widgets
from .connection import ConnectionSettings, check_answered, config_number, secrets_of, unanswered

if TYPE_CHECKING:
    from airflow.providers.amazon.aws.hooks.s3 import S3Hook

    from ..committer import Table
    from ..committer.store.client_settings import ClientSettings
    from ..maintenance.destinations import Destination
    from ..tables import DeltaTable

DEFAULT_CONN_ID = "zero_rename_default"
DEFAULT_AWS_CONN_ID = "aws_default"


class ZeroRenameHook(BaseHook):
    """Hook that opens tables, with the policy and the credentials of a connection.

    The policy is that of a ``zero_rename`` connection, and the credentials are those of the AWS
    connection that it names. The default connections need not exist: without
    ``zero_rename_default`` tables are named by their whole URL, and without ``aws_default``
    credentials come from boto3's own chain. Any other connection that is named must exist.

    :param zero_rename_conn_id: a connection of type ``zero_rename``.
    """

    conn_name_attr = "zero_rename_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = CONNECTION_TYPE
    hook_name = "Zero Rename"
    if not AIRFLOW_V_3_0_PLUS:  # Airflow 3 reads them in the provider information.

        @classmethod
        def get_connection_form_widgets(cls) -> dict[str, Any]:
            return form_widgets()

        @classmethod
        def get_ui_field_behaviour(cls) -> dict[str, Any]:
            return form_behaviour()

    def __init__(self, zero_rename_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.zero_rename_conn_id = zero_rename_conn_id

    @cached_property
    def settings(self) -> ConnectionSettings:
        """The connection's policy.

        :raises InvalidInputError: there is no such connection, or it is invalid.
        """
        connection = _find(self.zero_rename_conn_id, DEFAULT_CONN_ID)
        if connection is None:
            return ConnectionSettings(conn_id=self.zero_rename_conn_id, exists=False)
        return ConnectionSettings.from_connection(connection)

    @cached_property
    def s3(self) -> S3Hook:
        """The Amazon provider's S3 hook for the AWS connection.

        :raises InvalidInputError: the AWS connection is named and does not exist, or is of another
            type.
        """
        from airflow.providers.amazon.aws.hooks.s3 import S3Hook

        # If the connection is missing, S3Hook itself falls back to boto3's chain, and would write
        # with the identity of the worker.
        aws_conn_id = self.settings.aws_conn_id
        is_there = has_aws_connection(aws_conn_id)
        made = S3Hook(aws_conn_id=aws_conn_id if is_there else None)
        if is_there:
            with self._making_session():
                check_found_again(made)
        return made

    def get_conn(self) -> Any:
        """Return a boto3 S3 client with the AWS connection's credentials, region and endpoint.

        :raises StoreRefusedError: no session can be made with the connection.
        :raises StoreUnreachableError: the service for roles (STS) does not answer.
        """
        with self._making_session():
            return self.s3.get_conn()

    def _making_session(self) -> AbstractContextManager[None]:
        from ..committer.store.aws_sessions import making_session  # Lazy: it loads boto3.

        return making_session(self.settings.aws_conn_id)

    def get_glue(self) -> Any:
        """Return a boto3 Glue client with the same credentials."""
        from airflow.providers.amazon.aws.hooks.base_aws import AwsBaseHook

        with self._making_session():
            return AwsBaseHook(aws_conn_id=self.s3.aws_conn_id, client_type="glue").get_conn()

    def register(self, table: Table | DeltaTable, catalog: str | None) -> dict[str, Any] | None:
        """Register a table's present state in a catalog after a commit.

        A failure is a warning with a remedy, and never fails the task: the next load, retry,
        recovery or maintenance, or ``zero-rename catalog sync``, brings the catalog up to date.

        :param catalog: as for :meth:`catalog_of`.
        :return: the changes in the catalog; ``None``: nothing was sent.
        """
        from ..catalog import sync_after_commit

        chosen = self.catalog_of(catalog)
        if not chosen:
            return None
        report = sync_after_commit(table, chosen, connect=self.get_glue)
        return None if report is None else asdict(report)

    def sync(self, table: Table | DeltaTable, catalog: str) -> dict[str, Any]:
        """Register a table's present state in a catalog. Unlike :meth:`register`, raise errors.

        :param catalog: ``glue://database/table``, or without the table's name.
        :return: the changes in the catalog; empty if no job has made the table yet.
        :raises InvalidInputError: another table has that name there.
        :raises UnsupportedTypeError: a column has a type that the catalog does not have.
        :raises CatalogUnsyncedError: the catalog failed. A repetition completes the work.
        """
        from ..catalog import sync_settled

        report = sync_settled(table, catalog, connect=self.get_glue)
        return {} if report is None else asdict(report)

    def catalog_of(self, given: str | None) -> str:
        """Return the catalog in which tables are registered; empty: in none.

        :param given: ``glue://database/table``, or without the table's name; ``None``: the
            connection's; empty: none.
        """
        return (self.settings.catalog if given is None else given) or ""

    def table_url(self, table: str) -> str:
        """Return the URL of a table, ``s3://bucket/prefix``.

        :param table: that URL, or a name below the connection's table root.
        """
        return self.settings.table_url(table)

    def get_table(self, table: str) -> Table:
        """Open a table of directories; nothing is read or written yet.

        :param table: ``s3://bucket/prefix``, or a name below the connection's table root.
        :raises InvalidInputError: not such a name.
        """
        from ..committer import Table
        from ..committer.format.layout import TableRoot

        root = TableRoot.parse(self.table_url(table))
        found = Table(root.url, client=self.get_conn())
        found.driver.encrypt_by_default(self.settings.encryption)
        return found

    def get_delta_table(self, table: str) -> DeltaTable:
        """Open a Delta table; nothing is read or written yet.

        :param table: as for :meth:`get_table`.
        :raises InvalidInputError: not such a name.
        """
        from ..tables import DeltaTable

        found = DeltaTable(self.table_url(table), client=self.get_conn())
        found.driver.encrypt_by_default(self.settings.encryption)
        return found

    def get_table_as_it_is(self, table: str) -> Table | DeltaTable:
        """Open the table at a root, whatever its layout. This takes three requests.

        :param table: as for :meth:`get_table`.
        """
        from ..tables.table_at import opened_as_it_is

        return opened_as_it_is(self.get_table(table))

    def table_urls(self) -> list[str]:
        """Find the URLs of all tables below the connection's table root.

        :raises InvalidInputError: the connection has no table root.
        """
        return urls_below(self.settings.table_root, self.get_conn(), self.settings.named)

    def destinations(self) -> list[Destination]:
        """Find what maintenance works on below the connection's table root.

        These are tables and destinations of Hadoop's committers, and last the rest below the root.

        :raises InvalidInputError: the connection has no table root.
        """
        return all_below(self.settings.table_root, self.get_conn(), self.settings.named)

    @property
    def purge_age(self) -> float:
        """Age in seconds from which foreign uploads are purged.

        It is the connection's, or else ``[zero_rename] purge_older_than_hours``.
        """
        hours = self.settings.purge_older_than_hours
        return 3600.0 * (config_number("purge_older_than_hours") if hours is None else hours)

    def credentials_env(self) -> dict[str, str]:
        """Return environment variables with which boto3 on another machine works like this client.

        They have keys only if the AWS connection itself (its keys, profile or role) or Airflow's
        session factory decides them. Otherwise the job uses the keys of its own machines: keys of
        this worker's instance role would expire during a longer job.

        :return: ``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``, ``AWS_SESSION_TOKEN`` and
            ``AWS_CA_BUNDLE``, those that apply, and those of :meth:`endpoint_env`. The secret
            ones are masked in task logs from now on.
        :raises StoreRefusedError: no session can be made, or it has no keys.
        :raises StoreUnreachableError: the service for roles (STS) does not answer.
        """
        with self._making_session():
            found = handed_keys(self.s3, self.settings.aws_conn_id)
        if isinstance(self.store.verify, str):
            found["AWS_CA_BUNDLE"] = self.store.verify
        return found | self.endpoint_env()

    def secrets(self, *conn_ids: str | None) -> tuple[str, ...]:
        """Return the keys, passwords and tokens of the AWS connection and of other connections.

        These values must not be on a command line or in a request. A missing connection has none.
        """
        named = filter(None, (self.settings.aws_conn_id, *conn_ids))
        found = (_find(conn_id, conn_id) for conn_id in dict.fromkeys(named))
        return tuple(secret for it in found if it is not None for secret in secrets_of(it))

    @cached_property
    def store(self) -> ClientSettings:
        """Settings with which another process reaches the same store as this hook's client."""
        from ..committer.store.client_settings import ClientSettings  # Lazy: it loads boto3.

        client = self.get_conn()
        with self._making_session():
            config = self.s3.conn_config
            return ClientSettings.of(
                client,
                verify=self.s3.verify,
                config=config.extra_config.get("config_kwargs"),
                profile=config.profile_name,
            )

    def endpoint_env(self) -> dict[str, str]:
        """Return the variables of :meth:`credentials_env` about the store, without any secret.

        The package's own client uses :data:`~.committer.store.client_settings.S3_CLIENT` alone. The
        others are for other programs of the application; they cannot carry all settings, since AWS
        does not have a variable for each.

        :return: that variable; and ``AWS_ENDPOINT_URL_S3``, ``AWS_REGION`` and
            ``AWS_DEFAULT_REGION``, those that apply. If the connection names one endpoint for all
            services, ``AWS_ENDPOINT_URL``, too, and ``AWS_ENDPOINT_URL_STS``: the endpoint at which
            roles are assumed is another one.
        """
        from ..committer.store.client_settings import S3_CLIENT

        store = self.store
        with self._making_session():
            config, session = self.s3.conn_config, self.s3.get_session()
        region = session.region_name
        found = {
            "AWS_ENDPOINT_URL_S3": store.endpoint,
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
        }
        if config.endpoint_url:
            found["AWS_ENDPOINT_URL"] = config.endpoint_url
            with self._making_session():
                where = config.get_service_endpoint_url("sts", sts_connection_assume=True)
                sts = session.client("sts", endpoint_url=where)
            found["AWS_ENDPOINT_URL_STS"] = sts.meta.endpoint_url
        found[S3_CLIENT] = store.encode()
        return {name: value for name, value in found.items() if value}

    def s3a_store(self) -> dict[str, Any]:
        """Return endpoint, region and addressing style of the AWS connection, for Hadoop.

        They are members of :class:`~.s3a.hadoop.settings.S3ASettings`.
        """
        at_store = self.store.endpoint
        with self._making_session():
            endpoint = self.s3.conn_config.get_service_endpoint_url("s3") or at_store
            region = self.s3.get_session().region_name
        found: dict[str, Any] = {"endpoint": endpoint or None, "region": region}
        style = self.store.config.get("s3", {}).get("addressing_style")
        if style in ("path", "virtual"):
            found["path_style"] = style == "path"
        return {name: value for name, value in found.items() if value is not None}

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the store answers, and a message, for the button in Airflow's form.

        It lists once below the table root. Without a root, it asks the store whether it knows the
        keys.
        """
        from ..committer.store.clients import check_keys
        from ..committer.store.listing import first_object

        try:
            root = self.settings.table_root
            with self._making_session():
                if not root and self.s3.get_session().get_credentials() is None:
                    return False, "No AWS credentials were found. Set aws_conn_id or table_root."
                client = self.get_conn()
                if not root:
                    check_keys(client)
            if not root:
                return True, "The store knows the keys. Set table_root to test the bucket too."
            # The root may be a whole bucket, which cannot be opened as a table.
            table = self.get_table(f"{root.rstrip('/')}/t")
            table.run(first_object(table.root.prefix.removesuffix("t"), lambda item: True))
            return True, f"{table.root.url.removesuffix('/t')} can be listed."
        except (ZeroRenameError, AirflowNotFoundException) as error:
            return False, str(error)


def has_aws_connection(conn_id: str) -> bool:
    """Return whether there is an AWS connection; only the default one may be missing.

    The amazon provider itself only warns of any missing connection, and then asks AWS with the
    worker's own identity.

    :raises InvalidInputError: it is named and does not exist, or is of another type.
    :raises StoreUnreachableError: it is not known whether it is missing.
    """
    known = _find(conn_id, DEFAULT_AWS_CONN_ID)
    if known is not None and known.conn_type != "aws":
        raise InvalidInputError(
            f"The connection {conn_id!r} has the type {known.conn_type!r}, not 'aws'; "
            "nothing was read or written.",
            remedy="Name a connection of type aws (Amazon Web Services) in aws_conn_id.",
        )
    return known is not None


def check_found_again(hook: Any) -> None:
    """Check that a hook of the amazon provider has found its connection, which exists.

    The hook looks it up itself, and goes on without it if that fails.

    :raises StoreUnreachableError: the hook has not found it.
    """
    if not isinstance(hook.conn_config.conn_id, str):
        raise unanswered(hook.aws_conn_id, "the secrets backend")


def _find(conn_id: str, optional: str) -> Any:
    """Return an Airflow connection; ``None`` if it is missing.

    :param optional: the id of the only connection that may be missing.
    :raises InvalidInputError: another connection is missing.
    :raises StoreUnreachableError: it is not known whether it is missing.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        check_answered(conn_id)
        if conn_id == optional:
            return None
        raise InvalidInputError(
            f"There is no Airflow connection {conn_id!r}; nothing was read or written.",
            remedy=_how_to_add(conn_id, optional == DEFAULT_AWS_CONN_ID),
        ) from error


def _how_to_add(conn_id: str, is_aws: bool) -> str:
    """Return the remedy for a missing connection."""
    if is_aws:
        return (
            f"Add it: airflow connections add {conn_id} --conn-type aws; or name another one as "
            "aws_conn_id in the extra of the zero_rename connection."
        )
    extra = '{"table_root": "s3://bucket/tables", "aws_conn_id": "aws_default"}'
    return (
        f"Add it: airflow connections add {conn_id} --conn-type zero_rename --conn-extra "
        f"'{extra}'; or name another one as zero_rename_conn_id."
    )


__all__ = ["DEFAULT_AWS_CONN_ID", "DEFAULT_CONN_ID", "ZeroRenameHook"]
