"""Mails as senders write them: parts in order, forwarded, signed, encrypted, malformed; mailboxes and saved pages."""

import base64
import datetime
from email.message import EmailMessage

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7
from cryptography.x509.oid import NameOID

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import OutputLimits, parse
from kosmos_rag.parsing.mail.mime import decode_words
from kosmos_rag.parsing.web.cms import extract_signed_content

HEAD = "From: Ada <ada@example.org>\nTo: bob@example.org\nSubject: Plan\nMIME-Version: 1.0\n"
TOP = "Plan\n\nFrom: Ada <ada@example.org>\nTo: bob@example.org\n\n"
PNG = base64.b64encode(b"\x89PNG\r\n" + bytes(200)).decode()
ARMOR = "-----BEGIN PGP MESSAGE-----\n\nhQEMA5Zz\n=abcd\n-----END PGP MESSAGE-----\n"
BASE64 = "\n".join(["QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5ejAxMjM0"] * 8)


def parse_mail(data: str | bytes, source: str = "a.eml") -> ParsedDocument:
    return parse(SourceDocument(source=source, data=data if isinstance(data, bytes) else data.encode()))


def parse_code(data: str | bytes, source: str = "a.eml") -> str:
    with pytest.raises(ParseError) as caught:
        parse_mail(data, source)
    return caught.value.code


def multipart(subtype: str, *parts: str, boundary: str = "b1", parameters: str = "") -> str:
    body = "".join(f"--{boundary}\n{part}\n" for part in parts)
    return f'Content-Type: multipart/{subtype}; boundary="{boundary}"{parameters}\n\n{body}--{boundary}--\n'


def text(content: str, kind: str = "plain", more: str = "") -> str:
    return f"Content-Type: text/{kind}; charset=utf-8\n{more}\n{content}"


def attached(kind: str, name: str, content: str) -> str:
    return (
        f"Content-Type: {kind}\nContent-Transfer-Encoding: base64\n"
        f'Content-Disposition: attachment; filename="{name}"\n\n{base64.b64encode(content.encode()).decode()}'
    )


PICTURE = f'Content-Type: image/png; name="a.png"\nContent-Transfer-Encoding: base64\n\n{PNG}'
OLD = "From: e@x\nSubject: Old\n\nOld words."
STATUS = "Reporting-MTA: dns; mx\n\nFinal-Recipient: rfc822; bob@x\nStatus: 5.1.1"
PGP_VERSION = "Content-Type: application/pgp-encrypted\n\nVersion: 1\n"
TWO = multipart("mixed", text("One."), text("Two."))
HTML = text("<p>HTML.</p>", "html")
FORWARDED = f"Content-Type: message/rfc822\n\nFrom: eve@example.org\nSubject: Old plan\nDate: Monday\n\n{'Old words.'}"


@pytest.mark.parametrize(
    ("mail", "expected"),
    [
        (HEAD + multipart("mixed", text("One."), PICTURE, text("Two.")), "One.\n\nTwo.\n\nAttachments: a.png"),
        (
            HEAD + multipart("mixed", text("See below."), FORWARDED),
            "See below.\n\nOld plan\n\nFrom: eve@example.org\nDate: Monday\n\nOld words.",
        ),
        (
            HEAD + multipart("digest", "\nFrom: a@x\nSubject: First\n\n1.", "\nFrom: b@x\nSubject: Second\n\n2."),
            "First\n\nFrom: a@x\n\n1.\n\nSecond\n\nFrom: b@x\n\n2.",
        ),
        (HEAD + multipart("alternative", text(""), text("<p>Only here.</p>", "html")), "Only here."),
        (HEAD + multipart("alternative", text("Plain."), HTML), "Plain."),
        (HEAD + multipart("alternative", HTML, text("Plain.")), "Plain."),
        (
            HEAD + multipart("alternative", text("Plain."), multipart("mixed", HTML, PICTURE, boundary="b2")),
            "Plain.\n\nAttachments: a.png",
        ),
        (HEAD + multipart("related", HTML, PICTURE), "HTML.\n\nAttachments: a.png"),
        (
            HEAD
            + multipart("mixed", text("See."), attached("text/csv", "sums.csv", "Region,Sum\nNorth,12\nSouth,15\n")),
            "See.\n\nAttachments: sums.csv\n\nsums.csv\n\nRegion | Sum\nRegion: North; Sum: 12\nRegion: South; Sum: 15",
        ),
        (
            HEAD + multipart("mixed", text("See."), attached("message/rfc822", "old.eml", OLD)),
            "See.\n\nOld\n\nFrom: e@x\n\nOld words.",
        ),
        (
            HEAD + multipart("signed", text("Signed."), "Content-Type: application/pgp-signature\n\n" + ARMOR),
            "Signed.",
        ),
        (
            HEAD + "\n-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\nSigned.\n- - a list\n"
            "-----BEGIN PGP SIGNATURE-----\n\niQEzBAEB\n-----END PGP SIGNATURE-----\n",
            "Signed.\n- a list",
        ),
        (
            HEAD
            + multipart(
                "report",
                text("It did not arrive."),
                f"Content-Type: message/delivery-status\n\n{STATUS}\n",
                "Content-Type: text/rfc822-headers\n\nSubject: Plan\n",
            ),
            f"It did not arrive.\n\n{STATUS}\n\nSubject: Plan",
        ),
        (
            HEAD + "Content-Type: text/plain; format=flowed\n\nA long \nline.\n> quoted \n> words\n-- \nAda\n",
            "A long line.\n> quoted words\n-- \nAda",
        ),
        (HEAD + "Content-Type: text/plain; format=flowed; delsp=yes\n\n日本 \n語\n", "日本語"),
        (HEAD + "Content-Transfer-Encoding: BASE64;\n\nR3LDvMOfZQ=\n", "Grüße"),
        (HEAD + "Content-Transfer-Encoding: base64\n\nR3LDvMOfZQ==\n\n___\nlist footer\n", "Grüße\n\n___\nlist footer"),
        (HEAD + "Content-Transfer-Encoding: base64\n\nNot encoded at all.\n", "Not encoded at all."),
        (HEAD + "Content-Transfer-Encoding: quoted-printable\n\nGr=C3=BC=\n=C3=9Fe =ZZ\n", "Grüße =ZZ"),
        (HEAD + "Content-Type: text/plain; charset=x-sjis\nContent-Transfer-Encoding: base64\n\nk4yLng==\n", "東京"),
        (HEAD + "Content-Type: text/plain; charset=iso-2022-jp\n\n" + "東京".encode("iso2022_jp").decode(), "東京"),
        # What is malformed.
        (HEAD + multipart("mixed", text("One.")).replace("--b1--\n", ""), "One."),
        (HEAD + TWO.replace('; boundary="b1"', ""), "One.\n\nTwo."),
        (HEAD + TWO.replace('boundary="b1"', 'boundary="other"'), "One.\n\nTwo."),
        (HEAD.replace("MIME-Version: 1.0\n", "") + "\n--b1\nContent-Type: text/plain\n\nOne.\n--b1--\n", "One."),
        ("\n\n" + HEAD + "\nWords.", "Words."),
        ("\ufeff" + HEAD + "\nWords.", "Words."),
        ("From ada@example.org Mon Jan  6 10:00:00 2025\n" + HEAD + "\nWords.", "Words."),
        (">From ada@example.org Mon Jan  6 10:00:00 2025\n" + HEAD + "\nWords.", "Words."),
        ("\n" + HEAD.replace("To: ", "a line that is no field\nTo : ") + "\nWords.", "Words."),
        (HEAD.replace("\n", "\r\n") + "\r\nWords.\r\nMore.\r\n", "Words.\nMore."),
        (HEAD + f"\nBefore.\n\n{BASE64}\n\nAfter.\n", "Before.\n\n\nAfter."),
    ],
)  # fmt: skip
def test_parse_mail__text(mail: str, expected: str) -> None:
    parsed = parse_mail(mail)
    assert parsed.text == TOP + expected
    assert parsed.title == "Plan"
    assert all(parsed.text.startswith(heading.title, heading.start) for heading in parsed.headings)


@pytest.mark.parametrize(
    "mail",
    [
        HEAD + multipart("encrypted", PGP_VERSION, attached("application/octet-stream", "a.asc", ARMOR)),
        HEAD + f"\n{ARMOR}",
        HEAD + multipart("mixed", text(ARMOR), text("list footer")),
        HEAD + multipart("mixed", multipart("encrypted", text("x"), boundary="b2"), text("list footer")),
    ],
)  # fmt: skip
def test_parse_mail__encrypted(mail: str) -> None:
    assert parse_code(mail) == "encrypted"


def test_parse_mail__encrypted_mail_in_another_is_a_note() -> None:
    forwarded = f"Content-Type: message/rfc822\n\nFrom: eve@example.org\nSubject: Secret\n\n{ARMOR}"
    parsed = parse_mail(HEAD + multipart("mixed", text("See below."), forwarded))
    assert parsed.text == TOP + "See below."
    assert [(note.code, "Secret" in note.message, "encrypted" in note.message) for note in parsed.notes] == [
        ("attachment_unreadable", True, True)
    ]


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture(scope="module")
def certificate(key: rsa.RSAPrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Ada")])
    start = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(start + datetime.timedelta(days=9))
    return builder.sign(key, hashes.SHA256())


def smime(data: bytes, kind: str) -> str:
    encoded = base64.encodebytes(data).decode()
    head = f'Content-Type: application/pkcs7-mime; smime-type={kind}; name="smime.p7m"\n'
    return f"{HEAD}{head}Content-Transfer-Encoding: base64\n\n{encoded}"


def test_parse_mail__smime_that_is_signed_has_its_text(key: rsa.RSAPrivateKey, certificate: x509.Certificate) -> None:
    builder = pkcs7.PKCS7SignatureBuilder().set_data(text("Signed words.").encode())
    signed = builder.add_signer(certificate, key, hashes.SHA256()).sign(Encoding.DER, [pkcs7.PKCS7Options.Binary])
    assert extract_signed_content(signed) == text("Signed words.").encode()
    assert parse_mail(smime(signed, "signed-data")).text == TOP + "Signed words."
    for cut in range(0, len(signed) - 1, 7):
        try:
            assert "Signed words" in parse_mail(smime(signed[:cut], "signed-data")).text
        except ParseError as error:
            assert error.code in {"corrupt", "encrypted"}  # noqa: PT017 — either says that it is not read


def test_extract_signed_content__indefinite_length() -> None:
    """As `openssl smime -stream` writes it."""
    pieces = b"\x24\x80\x04\x03one\x04\x03two\x00\x00"
    content = b"\x30\x80\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01\xa0\x80" + pieces + b"\x00\x00" * 2
    signed = b"\x30\x80\x02\x01\x01\x31\x00" + content + b"\x31\x00\x00\x00"
    oid = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02"
    assert extract_signed_content(b"\x30\x80" + oid + b"\xa0\x80" + signed + b"\x00\x00" * 2) == b"onetwo"


def test_parse_mail__smime_that_is_enveloped(certificate: x509.Certificate) -> None:
    builder = pkcs7.PKCS7EnvelopeBuilder().set_data(b"Secret").add_recipient(certificate)
    assert parse_code(smime(builder.encrypt(Encoding.DER, []), "enveloped-data")) == "encrypted"


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        ("=?utf-8?B?R3LDvMOfZQ==?=", "Grüße"),
        ("=?utf-8?Q?Gr=C3=BC?= =?utf-8?Q?=C3=9Fe?= all", "Grüße all"),
        ("=?utf-8?B?R3LD?=\n =?utf-8?B?vMOfZQ==?=", "Grüße"),
        ('"=?iso-8859-1?Q?M=FCller,_J=F6rg?=" <a@b>', '"Müller, Jörg" <a@b>'),
        ("=?x-sjis?B?k4yLng==?=", "東京"),
        ("=?gb2312?B?seC8rQ?=", "编辑"),
        ("=?utf-8*en?Q?a_b?=", "a b"),
        ("=?no-such?Q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        ("=?utf-8?B?!!!?= x", "!!! x"),
        ("a =?utf-8?Q?b", "a =?utf-8?Q?b"),
        ("Gr\udcc3\udcbc\udcc3\udc9fe", "Grüße"),
        ("a =?utf-8?Q?b?= c =?utf-8?Q?d?= =?koi8-r?Q?=C4?=", "a b c dд"),
    ],
)
def test_decode_words__reads_any_charset(raw: str, decoded: str) -> None:
    assert decode_words(raw) == decoded


def test_parse_mail__attachments_that_cannot_be_read_are_notes() -> None:
    attachments = [
        attached("application/pdf", "plan.pdf", "%PDF-1.4"),
        attached("application/zip", "all.zip", "PK\x03\x04" + "\0" * 18),
        attached("application/octet-stream", "=?utf-8?Q?gr=C3=BCn.md?=", "# Green\n\nWords."),
        attached("application/pgp-signature", "s.asc", ARMOR),
        attached("text/plain", "empty.txt", " "),
    ]
    parsed = parse_mail(HEAD + multipart("mixed", text("See."), *attachments))
    assert (
        parsed.text
        == TOP + "See.\n\nAttachments: plan.pdf, all.zip, grün.md, empty.txt\n\ngrün.md\n\n# Green\n\nWords."
    )
    assert parsed.find_section(parsed.text.index("Words")) == ("Plan", "grün.md", "Green")
    assert [note.code for note in parsed.notes] == ["attachment_unreadable"] * 2
    assert "plan.pdf" in parsed.notes[0].message


def test_parse_mail__mails_in_mails_are_bounded() -> None:
    mail = HEAD + "\nInnermost."
    for number in range(12):
        mail = HEAD.replace("Plan", f"Plan {number}") + multipart(
            "mixed", text(f"Words {number}."), "Content-Type: message/rfc822\n\n" + mail, boundary=f"b{number}"
        )
    parsed = parse_mail(mail)
    assert "Words 8." in parsed.text
    assert "Innermost" not in parsed.text
    assert "too deep" in parsed.notes[0].message
    encoded = HEAD + "\nInnermost."
    for _ in range(6):
        encoded = HEAD + multipart("mixed", text("Words."), attached("application/octet-stream", "a.eml", encoded))
    parsed = parse_mail(encoded)
    assert "Innermost" not in parsed.text
    assert {note.code for note in parsed.notes} == {"attachment_unreadable"}


def nested(depth: int) -> str:
    opened = "".join(f'Content-Type: multipart/mixed; boundary="b{n}"\n\n--b{n}\n' for n in range(depth))
    return f"{HEAD}{opened}\nWords."


@pytest.mark.parametrize(
    "mail",
    [
        nested(500),
        nested(5_000),
        HEAD + multipart("mixed", *[text(str(number)) for number in range(3_000)]),
        HEAD + multipart("mixed", text("x"), *[attached("text/plain", f"{n}.txt", "y") for n in range(1_000)]),
        HEAD + "Content-Type: multipart/mixed; boundary=\n\nWords.",
        HEAD + 'Content-Type: multipart/mixed; boundary="' + "b" * 100_000 + '"\n\nWords.',
        HEAD + "Content-Type: text/plain; charset*0*=utf-8'x; charset*9999999999*=y\n\nWords.",
        HEAD + "Content-Disposition: attachment; filename*0*=x'y; filename*z=1\n\nWords.",
        HEAD + "Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n!!!!",
        HEAD + "Content-Type: message/rfc822\n\n",
        HEAD + "Content-Type: message/partial; id=1; number=1\n\nWords.",
        HEAD + "Content-Type: message/delivery-status\n\n\n\n\n",
        HEAD + "Content-Type: application/pkcs7-mime\n\nWords.",
        HEAD + "Content-Type: " + "a/" * 10_000 + "\n\nWords.",
        HEAD + "Content-Transfer-Encoding: x-uuencode\n\nbegin 644 a\n!!!\nend\n",
        HEAD + "Subject: " + "=?utf-8?Q?a?= " * 20_000 + "\n\nWords.",
        HEAD + "Subject: " + "=?" * 100_000 + "\n\nWords.",
        HEAD + "To: " + "a@b," * 50_000 + "\n\nWords.",
        HEAD + "\n" + "From \n" * 50_000,
        HEAD + "\n" + "-----BEGIN PGP SIGNED MESSAGE-----\n" * 5_000,
        HEAD + "\n" + "-----BEGIN PGP MESSAGE-----\n" * 5_000,
        HEAD + "\n" + "A" * 2_000_000,
        HEAD + "\n" + ("A" * 61 + "\n") * 30_000 + "!",
        HEAD + "\n" + "--b\nContent-Type: text/plain\n\n" * 5_000,
        HEAD + "Content-Type: text/plain; format=flowed\n\n" + ">" * 100_000 + " x \n" * 10_000,
    ],
)  # fmt: skip
def test_parse_mail__hostile(mail: str) -> None:
    try:
        assert parse(SourceDocument(source="a.eml", data=mail.encode()), OutputLimits(text_bytes=3_000_000)).text
    except ParseError as error:
        assert error.code in {"corrupt", "encrypted", "too_large", "empty"}  # noqa: PT017 — either end is right


MBOX = (
    f"From ada@example.org Mon Jan  6 10:00:00 2025\n{HEAD}\nFirst words.\n>From here on.\nFrom time to time.\n\n"
    f"From bob@example.org Tue Jan  7 10:00:00 2025\nFrom: bob@example.org\nDate: Tuesday\n\nSecond words.\n\n"
)


@pytest.mark.parametrize("source", ["a.mbox", "a", "Inbox.mbx"])
def test_parse_mbox__each_mail_is_a_section(source: str) -> None:
    parsed = parse_mail(MBOX.replace("To: bob", "Date: Monday\nTo: bob"), source)
    assert parsed.media_type == "application/mbox"
    assert [(heading.level, heading.title) for heading in parsed.headings] == [(1, "Plan"), (1, "Mail 2")]
    assert parsed.text.endswith(
        "First words.\nFrom here on.\nFrom time to time.\n\n"
        "Mail 2\n\nFrom: bob@example.org\nDate: Tuesday\n\nSecond words."
    )


def test_parse_mbox__encrypted_mails_are_notes_unless_all_are() -> None:
    secret = f"From eve@example.org Mon Jan  6 10:00:00 2025\n{HEAD}\n{ARMOR}\n"
    parsed = parse_mail(MBOX + secret, "a.mbox")
    assert [note.code for note in parsed.notes] == ["encrypted_part"]
    assert "BEGIN PGP" not in parsed.text
    assert parse_code(secret * 2, "a.mbox") == "encrypted"


def test_parse_mbox__truncated_anywhere() -> None:
    for cut in range(1, len(MBOX), 11):
        assert parse_mail(MBOX[:cut], "a.mbox").text


@pytest.mark.parametrize("source", ["a.mhtml", "a.mht", "a"])
def test_parse_mhtml__page(source: str) -> None:
    page = text(
        "<title>Rates</title><h1>Rates</h1><p>Gr=C3=BCn=\ner.</p>",
        "html",
        "Content-Transfer-Encoding: quoted-printable\n",
    )
    head = "From: <Saved by Blink>\nSnapshot-Content-Location: x:\nSubject: Saved\nDate: Monday\nMIME-Version: 1.0\n"
    parsed = parse_mail(head + multipart("related", page, PICTURE, parameters='; type="text/html"'), source)
    assert (parsed.text, parsed.title, parsed.media_type) == ("Rates\n\nGrüner.", "Rates", "multipart/related")
    assert parsed.headings[0].title == "Rates"


def test_parse_mail__that_begins_with_a_part() -> None:
    data = f"--b1\n{text('One.')}\n--b1\n{PICTURE}\n--b1--\n"
    assert parse_mail(data).text == "One.\n\nAttachments: a.png"


def test_parse_mail__with_the_library() -> None:
    """A mail that the standard library writes, with parts in several encodings."""
    message = EmailMessage()
    message["Subject"] = "Größe"
    message.set_content("Grün", charset="utf-8", cte="base64")
    message.add_attachment("Łódź", subtype="plain", charset="iso-8859-2", filename="miasto – nowe.txt")
    parsed = parse_mail(b"From: a@x\n" + message.as_bytes())
    assert parsed.text == "Größe\n\nFrom: a@x\n\nGrün\n\nAttachments: miasto – nowe.txt\n\nmiasto – nowe.txt\n\nŁódź"
