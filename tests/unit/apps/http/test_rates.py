"""RateLimiter of those who are not known yet: by the address that they come from."""

import random

import pytest

from kosmos_rag import Settings
from kosmos_rag.apps.auth.identity import Identity
from kosmos_rag.apps.errors import NotAuthenticated, TooManyRequests
from kosmos_rag.apps.http.toolkit.rate_limit import RateLimiter, SlidingWindowCounter
from kosmos_rag.core.config import ServiceSettings
from kosmos_rag.core.errors import ConfigError
from tests.rate_clock import RateClock, stop_rate_clock


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> RateClock:
    return stop_rate_clock(monkeypatch)


def _settings(**service: object) -> ServiceSettings:
    values = {"trusted_proxies": ("10.0.0.0/8",), "rates.refused_per_minute": 3} | service
    return Settings.load(overrides={f"service.{name}": value for name, value in values.items()}).service


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
    """After too many requests without credentials from one address, further ones are refused unread, also on direct
    connections; requests with credentials are not affected.
    """
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


def test_count__has_the_share_of_the_window_before_that_the_last_minute_covers(clock: RateClock) -> None:
    counter, key = SlidingWindowCounter(), ("tenant", "acme")
    clock.advance(60 - clock.monotonic() % 60)
    for _ in range(8):
        counter.add(key)
    clock.advance(75)  # three quarters of the window before are in the last minute
    assert counter.wait_s(key, 7) is None
    assert counter.wait_s(key, 6) == 0
    assert counter.wait_s(key, 4) == pytest.approx(15)
    counter.add(key)
    assert counter.wait_s(key, 4) == pytest.approx(22.5)
    clock.advance(120)
    assert counter.wait_s(key, 1) is None


@pytest.mark.parametrize("seed", range(5))
def test_wait__ends_when_the_count_is_below_the_amount_and_not_a_second_before(clock: RateClock, seed: int) -> None:
    dice, counter, key, amount = random.Random(seed), SlidingWindowCounter(), ("subject", "acme", "anna"), 10
    waits = 0
    for _ in range(300):
        clock.advance(dice.uniform(0, 6))
        if (wait_s := counter.wait_s(key, amount)) is None:
            counter.add(key)
            continue
        waits += 1
        if wait_s > 1:
            clock.advance(wait_s - 1)
            assert counter.wait_s(key, amount) is not None
        clock.advance(min(wait_s, 1) + 1e-6)
        assert counter.wait_s(key, amount) is None
    assert waits > 10


def test_keys__of_two_windows_are_kept_and_no_more(clock: RateClock) -> None:
    counter = SlidingWindowCounter()
    for number in range(1_000):
        clock.advance(1)
        counter.add(("address", str(number)))
    assert len(counter._current) + len(counter._previous) <= 120
