"""Encrypts values for a browser to keep: it can neither read nor change them."""

import base64
import json
from collections.abc import Mapping
from typing import Any


class Sealer:
    """Encrypts and authenticates values, for one purpose. Processes with the same secret read each other's."""

    def __init__(self, secret: str, purpose: str) -> None:
        """Derive the key of a purpose: what was sealed for another one is not accepted."""
        from cryptography.fernet import Fernet
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        key = HKDF(algorithm=SHA256(), length=32, salt=None, info=f"kosmos-rag {purpose}".encode())
        self._fernet = Fernet(base64.urlsafe_b64encode(key.derive(secret.encode())))

    def seal(self, values: Mapping[str, Any]) -> str:
        """Return the values as text of letters, digits, `-` and `_`."""
        return self._fernet.encrypt(json.dumps(values).encode()).decode().rstrip("=")

    def open(self, text: str, *, max_age_s: int) -> dict[str, Any] | None:
        """Return sealed values; None where they are older, changed, or not sealed with this secret."""
        from cryptography.fernet import InvalidToken

        try:
            values: dict[str, Any] = json.loads(self._fernet.decrypt(text + "=" * (-len(text) % 4), ttl=max_age_s))
        except (InvalidToken, ValueError):
            return None
        return values
