"""The proxy lets through what a store would carry out, and nothing else."""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from torture.proxy import Proxy, Trap, When


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


def test_an_action_that_fails_is_not_passed_over(s3_server: Any, s3_bucket: Any) -> None:
    def act() -> None:
        raise ValueError("the upload is gone")

    proxy = Proxy(s3_server.endpoint)
    proxy.watch(Trap(lambda *_: True, When.BEFORE, act))

    def ask() -> None:
        with proxy, socket.create_connection(address, timeout=120) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: s3\r\n\r\n")
            assert client.recv(1000) == b""

    address = (urlsplit(proxy.endpoint).hostname, urlsplit(proxy.endpoint).port)
    with pytest.raises(ExceptionGroup) as caught:
        ask()
    assert [str(error) for error in caught.value.exceptions] == ["the upload is gone"]
