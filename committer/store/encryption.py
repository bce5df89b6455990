"""Encryption of objects by the store: algorithm and key, in this package's terms and in S3's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import InvalidInputError


class Algorithm(StrEnum):
    """Algorithm by which a store encrypts an object.

    SSE-C is not supported, since its keys are secrets.
    """

    SSE_S3 = "SSE-S3"
    SSE_KMS = "SSE-KMS"
    DSSE_KMS = "DSSE-KMS"

    @property
    def uses_kms(self) -> bool:
        """True if its keys are those of AWS KMS."""
        return self is not Algorithm.SSE_S3


_HEADERS = {
    Algorithm.SSE_S3: "AES256",
    Algorithm.SSE_KMS: "aws:kms",
    Algorithm.DSSE_KMS: "aws:kms:dsse",
}
_ALGORITHMS = {header: algorithm for algorithm, header in _HEADERS.items()}
_KMS_KEY = re.compile(r"arn:aws[\w-]*:kms:\S+|alias/\S+|[0-9a-zA-Z-]{1,64}")


@dataclass(frozen=True)
class Encryption:
    """The encryption of an object by the store.

    :param key: the KMS key, by its id, ARN or alias; ``None``: the account's own.
    """

    algorithm: Algorithm
    key: str | None = None

    def __str__(self) -> str:
        """Return the text that :meth:`parse` reads."""
        return f"{self.algorithm} {self.key}" if self.key else str(self.algorithm)

    @property
    def arguments(self) -> dict[str, str]:
        """Arguments of boto3 that request this encryption."""
        key = {} if self.key is None else {"SSEKMSKeyId": self.key}
        return {"ServerSideEncryption": _HEADERS[self.algorithm], **key}

    @staticmethod
    def named(algorithm: str | None, key: str | None = None) -> Encryption | None:
        """Read an encryption that a user names; ``None``: not named.

        :raises InvalidInputError: an unknown algorithm, or a key that is not one of AWS KMS.
        """
        if algorithm not in (None, *Algorithm):
            raise InvalidInputError(
                f"encryption={algorithm!r} is unknown.",
                remedy=f"Choose one of {', '.join(Algorithm)}.",
            )
        known = None if algorithm is None else Algorithm(algorithm)
        by_kms = known is not None and known.uses_kms
        if key is not None and not (by_kms and _KMS_KEY.fullmatch(key)):
            raise InvalidInputError(
                "encryption_key is no id, ARN or alias of a KMS key, or encryption is neither "
                "SSE-KMS nor DSSE-KMS.",
                remedy="Give encryption='SSE-KMS' and the key's ARN. Keys of SSE-C are not taken.",
            )
        return None if known is None else Encryption(known, key)

    @staticmethod
    def parse(text: str) -> Encryption:
        """Parse the text of an environment variable: an algorithm, or algorithm, blank and KMS key.

        :raises InvalidInputError: the text has another form.
        """
        algorithm, _, key = text.strip().partition(" ")
        found = Encryption.named(algorithm, key.strip() or None)
        assert found is not None
        return found

    @staticmethod
    def of_answer(answer: Mapping[str, Any]) -> Encryption | None:
        """Read the encryption of an object from boto3's answer about it.

        ``None``: it names no encryption that this package can request.
        """
        return _read(answer.get("ServerSideEncryption"), answer.get("SSEKMSKeyId"))

    @staticmethod
    def of_default(rule: Mapping[str, Any]) -> Encryption | None:
        """Read a bucket's default encryption from boto3's ``ApplyServerSideEncryptionByDefault``.

        ``None``: it names no encryption that this package can request.
        """
        return _read(rule.get("SSEAlgorithm"), rule.get("KMSMasterKeyID"))


def _read(header: Any, key: Any) -> Encryption | None:
    algorithm = _ALGORITHMS.get(str(header))
    if algorithm is None:
        return None
    return Encryption(algorithm, key if algorithm.uses_kms else None)
