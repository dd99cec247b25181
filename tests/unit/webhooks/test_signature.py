"""Signatures as the specification of Standard Webhooks has them, and the secrets of subscribers."""

import uuid
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from kosmos_rag.webhooks.delivery import FIRST_DELAY_S, LONGEST_DELAY_S, choose_delay
from kosmos_rag.webhooks.signature import derive_secret, sign

KEY = "k" * 32
TENANT, SUBSCRIBER = uuid.UUID(int=1), uuid.UUID(int=2)


def test_sign__gives_the_published_signature() -> None:
    """The values are those of the specification's reference libraries."""
    headers = sign(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        datetime.fromtimestamp(1614265330, UTC),
        '{"test": 2432232314}',
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_sign__by_two_secrets_is_verified_by_each() -> None:
    secrets = [derive_secret(KEY, TENANT, SUBSCRIBER, version) for version in (2, 1)]
    headers = sign(secrets, "evt_1", datetime.now(UTC), "{}")
    for secret in secrets:
        assert Webhook(secret).verify("{}", headers) == {}
    with pytest.raises(WebhookVerificationError):
        Webhook(derive_secret(KEY, TENANT, SUBSCRIBER, 3)).verify("{}", headers)


def test_derive_secret__differs_by_key_tenant_subscriber_and_version() -> None:
    secrets = {
        derive_secret(key, tenant, subscriber, version)
        for key in (KEY, "l" * 32)
        for tenant in (TENANT, SUBSCRIBER)
        for subscriber in (TENANT, SUBSCRIBER)
        for version in (1, 2)
    }
    assert len(secrets) == 16
    assert {len(secret) for secret in secrets} == {len("whsec_") + 44}


def test_choose_delay__doubles_with_jitter_up_to_an_hour() -> None:
    for failures in range(1, 40):
        doubled = min(LONGEST_DELAY_S, FIRST_DELAY_S * 2 ** (failures - 1))
        delays = {choose_delay(failures).total_seconds() for _ in range(20)}
        assert len(delays) > 1
        assert all(0.5 * doubled <= delay <= 1.5 * doubled for delay in delays)


def test_choose_delay__is_no_shorter_than_the_endpoint_asks_for() -> None:
    assert choose_delay(1, 600).total_seconds() == 600
    assert choose_delay(1, 10**30).total_seconds() == 86400
