"""Contention: the numbers of the log that a job loses to other jobs.

Each number that it loses costs two answers of the store: the PUT that is refused, then the entry
that is there. Two rules make the best of them. 32 writers at once, of 8 jobs each, every answer
30 ms late, in virtual time (``tests/log/test_contention.py``):

===========================================  ============  ==============  ===================
rule                                         jobs/second   requests a job  most lost by one
===========================================  ============  ==============  ===================
none                                         16            62              72
reads the entries right after it, too        25            60              77
waits after each of the first few, besides   26            58              46
===========================================  ============  ==============  ===================

Half of the requests of a job are the entries that came while it ran: each has to be judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..committer.store.requests import Clock, Step, Wait

#: Entries that are read ahead at the most.
_AHEAD = 8
#: Numbers that a job loses before it waits no longer for those that have lost more of them.
_PATIENT = 6
#: Seconds that a job waits at the most after a number.
_LONGEST_WAIT = 1.0


@dataclass(frozen=True)
class Contention:
    """The numbers that a job has lost so far.

    :param lost: how many.
    :param ahead: entries that are read beside the one at the next number that it loses.
    """

    lost: int = 0
    ahead: int = 0

    @property
    def is_patient(self) -> bool:
        """Tell whether the job waits after the next number that it loses."""
        return 0 < self.lost < _PATIENT

    def give_way(self, sent_at: float) -> Step[None]:
        """Wait after a lost number, the longer the more were lost before, but only for a few: jobs
        that have lost many are not to be beaten by those that have just come.

        :param sent_at: when the entry was sent, by this process's clock.
        """
        took = (yield from Clock()) - sent_at
        if took > 0:
            yield from Wait(min(took * self.lost, _LONGEST_WAIT), spread=1.0)

    def after(self, came: int) -> Contention:
        """The contention after another lost number: the next time one entry more is read than came
        this time, or twice as many and one where none of them was missing.

        :param came: entries that were found beside the one at that number.
        """
        ahead = 2 * self.ahead + 1 if came == self.ahead else came + 1
        return Contention(self.lost + 1, min(_AHEAD, ahead))


#: No number lost.
CALM = Contention()
