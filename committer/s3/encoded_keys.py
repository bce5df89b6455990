"""Keys of a listing of uploads that was asked for with ``encoding-type=url``."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, unquote_plus

#: What a key can be once all that needs encoding is encoded.
_ENCODED = re.compile(r"(?:[A-Za-z0-9._~/*-]|%[0-9A-Fa-f]{2})*")


def decoded_keys(answer: dict[str, Any], prefix: str) -> tuple[list[str], str]:
    """The uploads' keys and the key that the next page begins after, as they are in the bucket.

    A store says in its answer whether it encoded them; Ceph encodes without saying so, others
    neither do nor say so. A key with a character that would have been encoded then tells that none
    is, and so does one that would no longer begin with the prefix that was asked for.

    :param answer: boto3's.
    """
    keys = [entry["Key"] for entry in answer.get("Uploads", ())]
    following = answer.get("NextKeyMarker") or ""
    if answer.get("EncodingType") == "url":
        return [unquote_plus(key) for key in keys], unquote_plus(following)
    if all(_ENCODED.fullmatch(key) and unquote(key).startswith(prefix) for key in keys):
        return [unquote(key) for key in keys], unquote(following)
    return keys, following
