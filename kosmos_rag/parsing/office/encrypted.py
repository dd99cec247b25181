"""Decrypt Office documents that have a password."""

import io
from collections.abc import Sequence

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.extras import require_extra
from kosmos_rag.parsing.office.compound import list_root_streams

PACKAGE = "EncryptedPackage"
"""The stream that holds the document."""


def is_encrypted_office(data: bytes) -> bool:
    """Return whether data are an Office document with a password."""
    return PACKAGE in list_root_streams(data)


def decrypt_office(data: bytes, passwords: Sequence[str]) -> bytes:
    """Return the document that an encrypted one contains.

    Args:
        data: an encrypted document.
        passwords: are tried in this order.

    Raises:
        ParseError: `encrypted`; none of the passwords is right, or the extra `encrypted` is not installed.
    """
    require_extra(
        "encrypted",
        "an Office document with a password",
        "msoffcrypto",
        error=lambda text: ParseError("encrypted", text),
    )
    import msoffcrypto
    from msoffcrypto.exceptions import DecryptionError, InvalidKeyError

    for password in passwords:
        document = msoffcrypto.OfficeFile(io.BytesIO(data))
        decrypted = io.BytesIO()
        try:
            document.load_key(password=password, verify_password=True)
            document.decrypt(decrypted)
        except (DecryptionError, InvalidKeyError):
            continue
        return decrypted.getvalue()
    raise ParseError(
        "encrypted", "the Office document has another password than those of ingestion.parsing.passwords; add it there"
    )
