"""RateLimiter of those who are not known yet: by the address that they come from."""

import pytest

from kosmos_rag import Settings
from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.http.rate_limit import RateLimiter
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.core.errors import ConfigError, NotAuthenticated, TooManyRequests
from tests.rate_clock import stop_rate_clock


@pytest.fixture(autouse=True)
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    stop_rate_clock(monkeypatch)


def _settings(**service: object) -> ServiceSettings:
    given = {"trusted_proxies": ("10.0.0.0/8",), "rates.refused_per_minute": 3} | service
    return Settings.load(overrides={f"service.{name}": value for name, value in given.items()}).service


def _refused(rates: RateLimiter, address: str | None) -> str:
    try:
        with rates.count_refused_credentials(address):
            raise NotAuthenticated("no")
    except (NotAuthenticated, TooManyRequests) as error:
        return type(error).__name__


def test_address__is_refused_unseen_after_so_many_bad_tries() -> None:
    rates = RateLimiter(_settings())
    assert [_refused(rates, "192.0.2.7") for _ in range(4)] == ["NotAuthenticated"] * 3 + ["TooManyRequests"]
    with (
        pytest.raises(TooManyRequests, match="address has used up its 3") as refused,
        rates.count_refused_credentials("192.0.2.7"),
    ):
        pass
    assert 1 <= refused.value.retry_after_s <= 60
    assert _refused(rates, "192.0.2.8") == "NotAuthenticated"


def test_address__with_good_credentials_is_not_counted() -> None:
    rates = RateLimiter(_settings())
    for _ in range(10):
        with rates.count_refused_credentials("192.0.2.7"):
            pass
        rates.count(Identity(tenant="acme", subject="anna", principals=(), scopes=frozenset()))


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("2001:db8::1", "2001:0db8:0::ffff", True),
        ("unknown", "unknown", True),
        ("unknown", "_hidden", False),
    ],
)
def test_address__of_one_network_is_one(first: str, second: str, same: bool) -> None:
    rates = RateLimiter(_settings())
    for _ in range(3):
        _refused(rates, first)
    assert (_refused(rates, second) == "TooManyRequests") == same


def test_address__is_not_counted_without_a_limit() -> None:
    rates = RateLimiter(_settings(**{"rates.refused_per_minute": 0}))
    assert {_refused(rates, "192.0.2.7") for _ in range(10)} == {"NotAuthenticated"}


def test_address__that_may_be_a_balancer_is_refused_unseen_for_lookups_only() -> None:
    rates = RateLimiter(_settings(trusted_proxies=()))
    assert [_refused(rates, "192.0.2.7") for _ in range(4)] == ["NotAuthenticated"] * 3 + ["TooManyRequests"]
    with rates.count_refused_credentials("192.0.2.7", needs_lookup=False):
        pass  # valid credentials of another client behind the same balancer
    with (
        pytest.raises(TooManyRequests),
        rates.count_refused_credentials("192.0.2.7", needs_lookup=False),
    ):
        raise NotAuthenticated("no")


def test_address__without_credentials_is_refused_unseen_and_shuts_out_nobody_with_them() -> None:
    rates = RateLimiter(_settings(trusted_proxies=()))

    def ask() -> str:
        try:
            with rates.count_refused_credentials("192.0.2.7", anonymous=True, needs_lookup=False):
                raise NotAuthenticated("no")
        except (NotAuthenticated, TooManyRequests) as error:
            return type(error).__name__

    assert [ask() for _ in range(4)] == ["NotAuthenticated"] * 3 + ["TooManyRequests"]
    for needs_lookup in (True, False):
        with rates.count_refused_credentials("192.0.2.7", needs_lookup=needs_lookup):
            pass
    assert _refused(rates, "192.0.2.7") == "NotAuthenticated"


@pytest.mark.parametrize("wrong", ["proxy.example", "10.0.0.1/8", "*", ""])
def test_proxies__are_addresses(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"service\.trusted_proxies"):
        _settings(trusted_proxies=(wrong,))
