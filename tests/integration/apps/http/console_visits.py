"""Visitors of the console without a browser."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from typing import Any

import httpx

from tests.integration.apps.http.serving import Running

OWN = {"sec-fetch-site": "same-origin", "accept": "text/html"}
"""Headers of a browser on a page of the console."""


@contextmanager
def visitor(served: Running, *scopes: str, **options: Any) -> Iterator[httpx.Client]:
    """Give a client that has signed in."""
    key = served.key("console", *scopes, **options)
    with httpx.Client(base_url=served.url, headers=OWN, timeout=30, trust_env=False, verify=False) as client:
        assert client.post("/sign-in", data={"credentials": f" {key} "}).status_code == 303
        yield client


def extract_text(page: httpx.Response) -> str:
    return unescape(re.sub(r"<[^>]+>", "", page.text))
