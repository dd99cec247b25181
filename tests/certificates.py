"""Certificates of servers in tests, and one TLS context for all clients with the usual authorities.

Reading the certificates of the authorities takes 40 ms a client.
"""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import certifi
import httpcore2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


@contextmanager
def read_certificates_once() -> Iterator[None]:
    """Let the clients of httpx and httpx2 share a context each, unless they name authorities of their own."""
    create, create_usual = ssl.create_default_context, httpcore2.default_ssl_context

    @cache
    def of_httpx() -> ssl.SSLContext:
        return create(cafile=certifi.where())

    @cache
    def of_httpx2() -> ssl.SSLContext:
        return create_usual(_trust_env=False)

    def create_or_share(*arguments: Any, **options: Any) -> ssl.SSLContext:
        if not arguments and options == {"cafile": certifi.where()}:
            return of_httpx()
        return create(*arguments, **options)

    def create_usual_or_share(*, _trust_env: bool = True) -> ssl.SSLContext:
        if _trust_env and {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys():
            return create_usual()
        return of_httpx2()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", create_or_share)
        patch.setattr(httpcore2, "default_ssl_context", create_usual_or_share)
        yield


def create_certificate(folder: Path, name: str) -> Path:
    """Write a certificate for a name, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / f"{name}.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem
