"""The trigger of a deferred sensor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from ..committer.errors import InvalidInputError, StoreUnreachableError, ZeroRenameError
from .hooks import ZeroRenameHook
from .waiting import FAILED, WAITING, Answer, Question

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
        said = ""
        while True:
            answer = await asyncio.to_thread(self._ask, question)
            if answer.state != WAITING:
                yield TriggerEvent(
                    {
                        "state": answer.state,
                        "explanation": answer.explanation,
                        "report": answer.report,
                    }
                )
                return
            if answer.explanation != said:
                said = answer.explanation
                _log.info("Waiting: %s", said)
            await asyncio.sleep(self.poke_interval)

    def _ask(self, question: Question) -> Answer:
        try:
            # A hook a look: credentials of a role may have been renewed meanwhile.
            return question.ask(ZeroRenameHook(self.zero_rename_conn_id))
        except StoreUnreachableError as error:
            return Answer(WAITING, str(error))
        except (ZeroRenameError, InvalidInputError) as error:
            return Answer(FAILED, str(error))


__all__ = ["SuccessManifestTrigger"]
