"""Which page has sent a request, by what browsers say of it."""

import pytest
from starlette.datastructures import Headers

from kosmos_rag.apps.http.toolkit.csrf import is_loopback_host, is_same_origin

HOST = {"host": "localhost:8000"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://localhost:8000"}, False),
        ({"origin": "http://localhost:8000"}, True),
        ({"origin": "http://localhost:3000"}, False),
        ({"origin": "https://evil.test"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://["}, False),
    ],
)
def test_page__is_of_the_service_or_not(headers: dict[str, str], expected: bool | None) -> None:
    assert is_same_origin(Headers(HOST | headers)) is expected


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost:8000", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("[::1]:8000", True),
        ("evil.test", False),
        ("localhost.evil.test:8000", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_name__is_of_the_loopback_address_or_not(host: str, loopback: bool) -> None:
    assert is_loopback_host(Headers({"host": host})) is loopback
