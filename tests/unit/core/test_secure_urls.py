"""URLs of servers that get secrets: TLS or this machine, and no user."""

import pytest

from kosmos_rag.core.secure_urls import is_loopback_url, is_secure_url


@pytest.mark.parametrize(
    ("url", "secure"),
    [
        ("https://id.example", True),
        ("https://id.example:8443/realms/acme", True),
        ("http://localhost", True),
        ("http://127.0.0.1:8080/", True),
        ("http://[::1]:8080/", True),
        ("http://id.example", False),
        ("http://localhost:x@evil.example/", False),
        ("http://localhost:1@evil.example/", False),
        ("https://user:secret@id.example/", False),
        ("http://localhost.evil.example/", False),
        ("https://id.example:port/", False),
        ("https://[", False),
        ("https://", False),
        ("https://id.example\\@evil.example/", False),
        ("https://id.example/\n", False),
        ("file:///etc/passwd", False),
        ("keys.json", False),
    ],
)
def test_url__is_secure_with_tls_or_on_this_machine(url: str, secure: bool) -> None:
    assert is_secure_url(url) == secure


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:1/", True),
        ("https://127.1.2.3/", True),
        ("https://[::1]/", True),
        ("https://LOCALHOST./", True),
        ("https://id.localhost/", True),
        ("https://id.example/localhost", False),
        ("https://[", False),
    ],
)
def test_url__is_of_this_machine_by_its_host(url: str, loopback: bool) -> None:
    assert is_loopback_url(url) == loopback
