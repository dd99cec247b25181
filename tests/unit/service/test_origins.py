"""Which page has sent a request, by what browsers say of it."""

import pytest
from starlette.datastructures import Headers

from kosmos_rag.service.origins import is_of_own_page

HOST = {"host": "localhost:8000"}


@pytest.mark.parametrize(
    ("headers", "own"),
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
def test_page__is_of_the_service_or_not(headers: dict[str, str], own: bool | None) -> None:
    assert is_of_own_page(Headers(HOST | headers)) is own
