"""An output stream whose close leaves a whole object, at a key that nobody looks for yet.

Who wants the bytes to be seen says so elsewhere: a table that is read by heads. One request writes
a file below the size of a part; a larger one is an upload, completed here. No two attempts share a
key, so that a request which arrives late writes what is there already, or what nobody reads.
"""

from __future__ import annotations

from ..errors import StreamError, ZeroRenameError
from .backoff import Backoff
from .requests import CompleteUpload, Delete, Done, Found, Head, PutFile, Refused, Step
from .upload_stream import DelayedOutputStream

#: As patient as a request that the driver repeats.
_COMPLETE = Backoff(tries=16, first=0.5, cap=8.0)


class WholeOutputStream(DelayedOutputStream):
    """As :class:`DelayedOutputStream`, but ``close`` writes the object, and ``abort`` removes it.

    Requests: one where all fits into a part; else one that creates the upload, one per part, and
    one that completes it. ``upload`` then names no upload, and the object's ETag.
    """

    def _finish(self) -> None:
        if self._upload_id is None:
            body, self._buffer = self._buffer, bytearray()
            self._sent = True
            answer = self._driver.perform(PutFile(self.key, memoryview(body), self._settings))
            if isinstance(answer, Refused):
                raise StreamError(f"The store refused the file ({answer.code}).")
            self._etags = [answer.etag]
        else:
            super()._finish()
            self._sent = True
            self._etags = [self._driver.run(self._complete(self._upload_id))]
        self._upload_id = ""

    def _complete(self, upload_id: str) -> Step[str]:
        """Complete the upload, or see that it is: its ETag.

        :raises StreamError: the store says that it is not, or does not say.
        """
        cause = ""
        for attempt in _COMPLETE.attempts():
            yield from _COMPLETE.pause(attempt)
            answer = yield from CompleteUpload(self.key, upload_id, tuple(self._etags))
            if isinstance(answer, Done):
                return answer.etag
            found = yield from Head(self.key)
            if isinstance(found, Found) and found.size == self.tell():
                return found.etag  # Nobody else has this key.
            cause = answer.code if isinstance(answer, Refused) else answer.cause
            if isinstance(answer, Refused) and attempt:
                break
        raise StreamError(f"The store did not complete the file's upload ({cause}).")

    def _discard(self) -> Exception | None:
        """Remove the object, where it may be there, and abort an upload that is not completed."""
        if not self._sent:
            return super()._discard()
        try:
            answer = self._driver.perform(Delete(self.key))
        except ZeroRenameError as error:
            return error
        left = None if self._upload_id == "" else super()._discard()
        if isinstance(answer, Done):
            return left
        return StreamError(f"The object {self.key} may be left, unseen.", key=self.key)
