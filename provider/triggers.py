"""The trigger of a deferred sensor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..committer.errors import StoreUnreachableError, ZeroRenameError
from .hooks import ZeroRenameHook
from .job_query import FAILED, WAITING, Answer, Question

if TYPE_CHECKING:
    from ..committer import Table

_log = logging.getLogger(__name__)


class SuccessManifestTrigger(BaseTrigger):
    """Asks a sensor's question until it is answered.

    Each look runs in a thread, connections and boto3 included: the event loop is never blocked.
    The trigger ends once, with the answer: there is no second deferral that could begin the
    sensor's timeout anew. A store that cannot be reached for a moment is asked again.

    :param question: :meth:`.waiting.Question.as_dict`.
    :param zero_rename_conn_id: connection of type ``zero_rename``.
    :param poke_interval: seconds between looks.
    """

    def __init__(
        self, question: dict[str, Any], zero_rename_conn_id: str, poke_interval: float
    ) -> None:
        super().__init__()
        self.question = question
        self.zero_rename_conn_id = zero_rename_conn_id
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "question": self.question,
                "zero_rename_conn_id": self.zero_rename_conn_id,
                "poke_interval": self.poke_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yields one event: ``state`` (``ready`` or ``failed``), ``explanation``, ``report``."""
        question = Question(**self.question)
        table, said = None, ""
        while True:
            table, answer = await asyncio.to_thread(self._look, question, table)
            if answer.state != WAITING:
                yield TriggerEvent(asdict(answer))
                return
            if answer.explanation != said:
                said = answer.explanation
                _log.info("Waiting: %s", said)
            await asyncio.sleep(self.poke_interval)

    def _look(self, question: Question, table: Table | None) -> tuple[Table | None, Answer]:
        """Look once, in a thread; the table is made there too and kept for the next look."""
        try:
            if table is None:
                table = ZeroRenameHook(self.zero_rename_conn_id).get_table(question.table)
            return table, question.ask(table)
        except StoreUnreachableError as error:
            return table, Answer(WAITING, str(error))
        except ZeroRenameError as error:
            return table, Answer(FAILED, str(error))
