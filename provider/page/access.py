"""Access to the page: Airflow's users and their rights."""

from __future__ import annotations

import json
import os
from functools import cached_property

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import (
    AccessView,
    ConnectionDetails,
    DagAccessEntity,
    DagDetails,
    TeamDetails,
)
from airflow.configuration import conf
from airflow.models import Connection, DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from .. import CONNECTION_TYPE

_VARIABLE = "AIRFLOW_CONN_"
#: The right to read tables only, for users who may not read connections. An administrator gives it
#: as GET (in FAB's auth manager ``can_read``) on the custom view of this name.
TABLES = "Zero Rename tables"


class NotAllowedError(Exception):
    """The user may not see the page, or not the tables of a connection."""


class Visitor:
    """A user of the page, with their rights in Airflow.

    :param user: the user in Airflow's auth manager.
    """

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._dags: dict[str, bool] = {}

    def check_page(self) -> None:
        """Check that the user may see the page.

        :raises NotAllowedError: they may neither see pages of plugins nor read tables.
        """
        allowed = get_auth_manager().is_authorized_view
        if not (allowed(access_view=AccessView.PLUGINS, user=self._user) or self._may_read_tables):
            raise NotAllowedError("You may not see pages of plugins.")

    @cached_property
    def _may_read_tables(self) -> bool:
        return get_auth_manager().is_authorized_custom_view(
            method="GET", resource_name=TABLES, user=self._user
        )

    def check_tables(self, conn_id: str) -> None:
        """Check that the user may see the tables of a connection.

        :raises NotAllowedError: they may not.
        """
        if not self.may_see_tables(conn_id):
            raise NotAllowedError(
                f"You may not see the tables of the connection {conn_id!r}: for that you need the "
                f"right to read connections, or the one to read {TABLES!r}."
            )

    def may_see_tables(self, conn_id: str) -> bool:
        """Return whether the user may see a connection's tables.

        They may if they may read the connection. They also may if they have the right
        :data:`TABLES`, and are in the connection's team if it has one.
        """
        if self.may_read(conn_id):
            return True
        if not self._may_read_tables:
            return False
        team = _team_of(conn_id)
        return team is None or get_auth_manager().is_authorized_team(
            method="GET", details=TeamDetails(name=team), user=self._user
        )

    def may_read(self, conn_id: str) -> bool:
        """Return whether the user may read a connection itself."""
        return get_auth_manager().is_authorized_connection(
            method="GET",
            details=ConnectionDetails(conn_id=conn_id, team_name=_team_of(conn_id)),
            user=self._user,
        )

    def connections(self) -> list[str]:
        """Return the ids of ``zero_rename`` connections whose tables the user may see.

        They are those in the database and in the API server's environment. Secrets backends cannot
        list theirs.
        """
        with create_session() as session:
            wanted = select(Connection.conn_id).where(Connection.conn_type == CONNECTION_TYPE)
            known = set(session.scalars(wanted))
        for name, text in os.environ.items():
            conn_id = name.removeprefix(_VARIABLE).lower()
            # Airflow asks for the name in upper case only.
            if name == f"{_VARIABLE}{conn_id.upper()}" and _is_ours(text):
                known.add(conn_id)
        return [conn_id for conn_id in sorted(known) if self.may_see_tables(conn_id)]

    def may_see_dag(self, dag_id: str) -> bool:
        """Return whether the user may see a DAG's task instances; asked once for each DAG."""
        if dag_id not in self._dags:
            team = DagModel.get_team_name(dag_id) if _has_teams() else None
            self._dags[dag_id] = get_auth_manager().is_authorized_dag(
                method="GET",
                access_entity=DagAccessEntity.TASK_INSTANCE,
                details=DagDetails(id=dag_id, team_name=team),
                user=self._user,
            )
        return self._dags[dag_id]


def _has_teams() -> bool:
    return conf.getboolean("core", "multi_team", fallback=False)


def _team_of(conn_id: str) -> str | None:
    return Connection.get_team_name(conn_id) if _has_teams() else None


def _is_ours(text: str) -> bool:
    """Return whether a connection's text, JSON or a URI, has the type ``zero_rename``."""
    if not text.lstrip().startswith("{"):
        return text.partition("://")[0].replace("-", "_") == CONNECTION_TYPE
    try:
        return json.loads(text).get("conn_type", "").replace("-", "_") == CONNECTION_TYPE
    except (ValueError, AttributeError):
        return False  # Airflow reports the invalid text when the connection is used.
