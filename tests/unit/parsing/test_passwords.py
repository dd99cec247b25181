"""Encrypted files are opened with the configured passwords."""

import io

import docx
import fpdf
import pytest
from pydantic import SecretStr

from kosmos_rag.core.config import ParsingSettings
from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.sandbox.client import parse_confined, render_confined
from kosmos_rag.parsing.sandbox.protocol import PNG

WORDS = "Words that have a password."


def encrypt_pdf(password: str) -> SourceDocument:
    pdf = fpdf.FPDF()
    pdf.set_encryption(owner_password="owner", user_password=password)
    pdf.add_page()
    pdf.set_font("Helvetica")
    pdf.cell(text=WORDS)
    return SourceDocument(source="a.pdf", data=bytes(pdf.output()))


def encrypt_docx(password: str) -> SourceDocument:
    formats = pytest.importorskip("msoffcrypto.format.ooxml", reason="the extra encrypted is not installed")
    plain, encrypted = io.BytesIO(), io.BytesIO()
    document = docx.Document()
    document.add_paragraph(WORDS)
    document.save(plain)
    formats.OOXMLFile(plain).encrypt(password, encrypted)
    return SourceDocument(source="a.docx", data=encrypted.getvalue())


@pytest.mark.parametrize("encrypt", [encrypt_pdf, encrypt_docx])
def test_parse__opens_an_encrypted_file_with_a_password(encrypt: object) -> None:
    document = encrypt("sesame")  # type: ignore[operator]
    assert WORDS in parse(document, passwords=("other", "sesame")).text
    for passwords in ((), ("other",)):
        with pytest.raises(ParseError, match=r"ingestion\.parsing\.passwords") as refusal:
            parse(document, passwords=passwords)
        assert refusal.value.code == "encrypted"
        assert "other" not in str(refusal.value).replace("other than", "").replace("another", "")


def test_sandbox__gets_the_passwords_of_the_settings() -> None:
    limits = ParsingSettings(passwords=(SecretStr("sesame"),))
    document = encrypt_pdf("sesame")
    assert WORDS in parse_confined(document, limits).text
    assert render_confined(document.data, 1, limits).startswith(PNG)
    assert "sesame" not in repr(limits)
