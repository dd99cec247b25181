"""Which hosts and addresses may be asked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.core.config import UrlSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.addresses import is_allowed, is_reachable, resolve_allowed

NEVER = [
    "169.254.169.254",
    "169.254.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "::7f00:1",
]
PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "::1",
    "fd00::1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
]
PUBLIC = ["8.8.8.8", "93.184.215.14", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", NEVER)
def test_address__never(address: str) -> None:
    assert not is_reachable(address, allow_private=False)
    assert not is_reachable(address, allow_private=True)


@pytest.mark.parametrize("address", PRIVATE)
def test_address__private_only_where_allowed(address: str) -> None:
    assert not is_reachable(address, allow_private=False)
    assert is_reachable(address, allow_private=True)


@pytest.mark.parametrize("address", PUBLIC)
def test_address__public(address: str) -> None:
    assert is_reachable(address, allow_private=False)


@given(st.ip_addresses(v=4))
def test_address__is_judged_alike_however_it_is_wrapped(address: object) -> None:
    for allow_private in (False, True):
        plain = is_reachable(str(address), allow_private=allow_private)
        assert is_reachable(f"::ffff:{address}", allow_private=allow_private) == plain
        assert is_reachable(f"64:ff9b::{address}", allow_private=allow_private) == plain


@pytest.mark.parametrize(
    ("host", "patterns", "allowed"),
    [
        ("example.org", ("example.org",), True),
        ("EXAMPLE.org.", ("example.org",), True),
        ("docs.example.org", ("*.example.org",), True),
        ("a.b.example.org", ("*.example.org",), True),
        ("example.org", ("*.example.org",), False),
        ("notexample.org", ("*.example.org", "example.org"), False),
        ("example.org.evil.net", ("*.example.org", "example.org"), False),
        ("docs.example.org", ("example.org",), False),
        ("example.org", (), False),
    ],
)
def test_host__is_on_the_list(host: str, patterns: tuple[str, ...], allowed: bool) -> None:
    assert is_allowed(host, patterns) == allowed


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "127.1", "017700000001"])
def test_look_up__sees_through_spellings_of_loopback(host: str) -> None:
    with pytest.raises(SourceError, match=r"not a public one") as caught:
        resolve_allowed(host, 80, UrlSettings(allowed_hosts=(host,)))
    assert caught.value.code == "refused"


def test_look_up__of_a_host_that_is_not_allowed_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", lambda *a, **k: pytest.fail("the name was looked up"))
    with pytest.raises(SourceError, match="allowed_hosts"):
        resolve_allowed("example.org", 80, UrlSettings())


def test_look_up__one_bad_address_among_good_ones_refuses_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(2, 1, 6, "", ("8.8.8.8", 80)), (2, 1, 6, "", ("10.0.0.1", 80))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *a, **k: answers)
    with pytest.raises(SourceError, match=r"10\.0\.0\.1"):
        resolve_allowed("example.org", 80, UrlSettings(allowed_hosts=("example.org",)))


def test_look_up__of_no_such_name() -> None:
    name = "x" * 70 + ".example.org"  # longer than a label of a name may be
    with pytest.raises(SourceError) as caught:
        resolve_allowed(name, 80, UrlSettings(allowed_hosts=("*.example.org",)))
    assert caught.value.code == "unavailable"
