"""One TLS context for all clients with the usual authorities: reading their certificates takes 40 ms a client."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import certifi
import httpcore2
import pytest


@contextmanager
def read_certificates_once() -> Iterator[None]:
    """Let the clients of httpx and httpx2 share a context each, unless they name authorities of their own."""
    create, create_usual = ssl.create_default_context, httpcore2.default_ssl_context

    @cache
    def of_httpx() -> ssl.SSLContext:
        return create(cafile=certifi.where())

    @cache
    def of_httpx2() -> ssl.SSLContext:
        return create_usual(_trust_env=False)

    def create_or_share(*arguments: Any, **options: Any) -> ssl.SSLContext:
        if not arguments and options == {"cafile": certifi.where()}:
            return of_httpx()
        return create(*arguments, **options)

    def create_usual_or_share(*, _trust_env: bool = True) -> ssl.SSLContext:
        if _trust_env and {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
            return create_usual()
        return of_httpx2()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", create_or_share)
        patch.setattr(httpcore2, "default_ssl_context", create_usual_or_share)
        yield
