"""The proxy lets through what a store would carry out, and nothing else."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

from torture.proxy import Proxy


def test_a_request_cut_off_in_its_body_never_reaches_the_store(
    proxy: Proxy, s3_bucket: Any
) -> None:
    """A writer that is killed while it sends: the store would miss the rest of the body."""
    s3_bucket.put("head", b"whole")
    address = urlsplit(proxy.endpoint)
    with socket.create_connection((address.hostname, address.port), timeout=120) as client:
        head = f"PUT /{s3_bucket.name}/head HTTP/1.1\r\nHost: s3\r\nContent-Length: 10\r\n\r\n"
        client.sendall(head.encode() + b"half")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1000) == b""
    assert s3_bucket.read("head") == b"whole"
    assert proxy.seen == []
