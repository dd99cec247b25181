"""Secrets and signatures of subscribers, as Standard Webhooks has them (standardwebhooks.com)."""

import base64
import hashlib
import hmac
import uuid
from collections.abc import Sequence
from datetime import datetime

from kosmos_rag.core.extras import require_extra

_PREFIX = "whsec_"


def derive_secret(signing_key: str, tenant_id: uuid.UUID, subscriber_id: uuid.UUID, version: int) -> str:
    """Derive the secret of a subscriber: the database has none.

    HKDF-Expand with SHA-256 and one block (RFC 5869, section 2.3).

    Args:
        version: increased by each rotation.
    """
    info = f"kosmos-rag webhook {tenant_id.hex} {subscriber_id.hex} {version}".encode()
    block = hmac.digest(hashlib.sha256(signing_key.encode()).digest(), info + b"\x01", "sha256")
    return _PREFIX + base64.b64encode(block).decode()


def sign(secrets: Sequence[str], message_id: str, at: datetime, body: str) -> dict[str, str]:
    """Return the headers of a request: id, time and a signature by each secret.

    Args:
        secrets: while a secret is rotated, the new and the former one.
        message_id: the same for each attempt.
        at: time of the attempt, in UTC.
    """
    require_extra("webhooks", "the delivery of events", "standardwebhooks")
    from standardwebhooks.webhooks import Webhook

    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(message_id, at, body) for secret in secrets),
    }
