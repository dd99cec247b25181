"""Mails of a mailbox as documents, against a Dovecot of the test."""

import socket
import ssl
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from imapclient import IMAPClient

from kosmos_rag.core.config import IngestionSettings
from kosmos_rag.core.errors import GONE, ConfigError, ParseError, RequestError, SourceError
from kosmos_rag.ingestion.sources import imap_mailbox
from kosmos_rag.ingestion.sources.listing import Entry
from kosmos_rag.parsing import parse
from tests.unit.ingestion.sources.dovecot import PASSWORD, Dovecot

BÜRO = "B&APw-ro &- Co"
"""Büro & Co, as the protocol writes it."""


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with Dovecot.run() as server:
        yield server


@pytest.fixture
def user(dovecot: Dovecot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user of this test with an empty mailbox."""
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return dovecot.add_user()


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the searches and the reads of mails that are sent."""
    counts: Counter[str] = Counter()
    for name in ("search", "fetch"):
        original = getattr(IMAPClient, name)

        def count(*arguments: Any, _name: str = name, _original: Any = original, **options: Any) -> Any:
            counts[_name] += 1
            return _original(*arguments, **options)

        monkeypatch.setattr(IMAPClient, name, count)
    return counts


def _open(opened: Any, dovecot: Dovecot, user: str, **spec: Any) -> Any:
    values = {"name": "kb", "host": "localhost", "port": dovecot.port, "user": user, "password_env": "MAIL_PASSWORD"}
    return opened(kind="imap", **{**values, "acl": ["support"], **spec})


def _entries(source: Any) -> dict[str, Entry]:
    listing = source.listing()
    entries = {entry.source: entry for entry in listing}
    assert listing.complete, listing.failures
    return entries


def _failure(source: Any) -> tuple[str, str]:
    listing = source.listing()
    assert list(listing) == []
    assert not listing.complete
    [failure] = listing.failures
    return failure.code, failure.message


def _mail(subject: str, **headers: str) -> EmailMessage:
    mail = EmailMessage()
    for name, value in {"From": "Ann Ray <Ann@Example.org>", "Subject": subject, **headers}.items():
        mail[name.replace("_", "-")] = value
    mail.set_content(f"About {subject}.\n")
    return mail


def _append(dovecot: Dovecot, user: str, *mails: bytes, folder: str = "INBOX") -> None:
    with dovecot.log_in(user) as connection:
        connection.create(f'"{folder}"')
        for mail in mails:
            assert connection.append(f'"{folder}"', "", "", mail)[0] == "OK"


def test_mail__is_a_document_with_its_attachments_as_parts(dovecot: Dovecot, user: str, opened: Any) -> None:
    mail = _mail("Leave", Message_ID="<1@example.org>")
    mail.add_attachment(b"# Policy\n\nThirty days.\n", maintype="text", subtype="markdown", filename="policy.md")
    _append(dovecot, user, mail.as_bytes())
    source = _open(opened, dovecot, user, metadata={"team": "x"})
    [entry] = _entries(source).values()
    assert entry.source == "imap://kb/INBOX/1.eml"
    document = source.load(entry)
    assert document.acl == ("support",)
    received = document.metadata.pop("updated")
    assert received.startswith("20")
    assert document.metadata == {
        "team": "x", "from": "ann@example.org", "message_id": "<1@example.org>", "thread": "<1@example.org>",
    }  # fmt: skip
    parsed = parse(document)
    assert parsed.title == "Leave"
    assert "About Leave." in parsed.text
    assert "Thirty days." in parsed.text
    assert [heading.title for heading in parsed.headings] == ["Leave", "policy.md", "Policy"]


def test_thread__is_the_first_mail_that_a_mail_refers_to(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(
        dovecot,
        user,
        _mail("a", Message_ID="<1@x>").as_bytes(),
        _mail("b", Message_ID="<2@x>", In_Reply_To="<1@x>").as_bytes(),
        _mail("c", Message_ID="<3@x>", In_Reply_To="<2@x>", References="<1@x> <2@x>").as_bytes(),
        b"no head at all",
    )
    source = _open(opened, dovecot, user)
    threads = [source.load(entry).metadata.get("thread") for entry in _entries(source).values()]
    assert threads == ["<1@x>", "<1@x>", "<1@x>", None]


def test_second_pass__asks_for_no_mails_of_an_unchanged_folder(
    dovecot: Dovecot, user: str, opened: Any, commands: Counter[str]
) -> None:
    _append(dovecot, user, *(_mail(str(number)).as_bytes() for number in range(5)))
    first = _entries(_open(opened, dovecot, user))
    assert commands == {"search": 1}
    assert _entries(_open(opened, dovecot, user)) == first
    assert commands == {"search": 1}
    _append(dovecot, user, _mail("new").as_bytes())
    third = _entries(_open(opened, dovecot, user))
    assert [entry.locator["uid"] for entry in third.values()] == [1, 2, 3, 4, 5, 6]
    assert {name: third[name] for name in first} == first
    assert commands == {"search": 2}


def test_second_pass__without_modification_sequences_asks_again(
    dovecot: Dovecot, user: str, opened: Any, commands: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IMAPClient, "has_capability", lambda client, name: False)
    _append(dovecot, user, _mail("a").as_bytes())
    assert _entries(_open(opened, dovecot, user)) == _entries(_open(opened, dovecot, user))
    assert commands == {"search": 2}


def test_second_pass__of_what_was_removed_marked_and_moved(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, *(_mail(str(number)).as_bytes() for number in range(5)))
    _append(dovecot, user, _mail("old").as_bytes(), folder="Archive")
    _entries(_open(opened, dovecot, user))
    with dovecot.log_in(user) as connection:
        connection.select("INBOX")
        connection.store("1", "+FLAGS", r"(\Deleted)")
        connection.expunge()
        connection.uid("STORE", "3", "+FLAGS", r"(\Deleted)")
        connection.uid("STORE", "4", "+FLAGS", r"(\Seen)")
        connection.uid("MOVE", "5", "Archive")
    source = _open(opened, dovecot, user)
    entries = _entries(source)
    assert sorted(entries) == [
        *("imap://kb/Archive/1.eml", "imap://kb/Archive/2.eml", "imap://kb/INBOX/2.eml", "imap://kb/INBOX/4.eml")
    ]
    assert b"About 4." in source.load(entries["imap://kb/Archive/2.eml"]).data


def test_reading__leaves_mails_unread(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, _mail("a").as_bytes())
    source = _open(opened, dovecot, user)
    for entry in _entries(source).values():
        source.load(entry)
    with dovecot.log_in(user) as connection:
        connection.select("INBOX")
        assert connection.search(None, "SEEN") == ("OK", [b""])


def test_uid_validity__that_changed_makes_all_mails_new(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, _mail("before").as_bytes(), folder="Support")
    source = _open(opened, dovecot, user)
    before = _entries(source)
    with dovecot.log_in(user) as connection:
        connection.delete("Support")
    _append(dovecot, user, _mail("after").as_bytes(), folder="Support")
    with pytest.raises(SourceError) as caught:
        source.load(before["imap://kb/Support/1.eml"])
    assert caught.value.code == GONE
    after = _entries(source)
    assert after.keys() == before.keys()
    assert after["imap://kb/Support/1.eml"].etag != before["imap://kb/Support/1.eml"].etag
    assert b"About after." in source.load(after["imap://kb/Support/1.eml"]).data


def test_folders__have_the_names_that_people_read(dovecot: Dovecot, user: str, opened: Any) -> None:
    for folder in (BÜRO, f"{BÜRO}.&ZeVnLIqe-", 'a \\"b\\"'):
        _append(dovecot, user, _mail("a").as_bytes(), folder=folder)
    source = _open(opened, dovecot, user)
    entries = _entries(source)
    assert sorted(entries) == [
        *("imap://kb/Büro & Co/1.eml", "imap://kb/Büro & Co/日本語/1.eml", 'imap://kb/a "b"/1.eml')
    ]
    assert all(b"About a." in source.load(entry).data for entry in entries.values())
    assert list(_entries(_open(opened, dovecot, user, include=["Büro*/"], exclude=["日本語/"]))) == [
        "imap://kb/Büro & Co/1.eml"
    ]


def test_folders__of_trash_are_read_only_if_they_are_included(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, _mail("a").as_bytes(), folder="Trash")
    source = _open(opened, dovecot, user)
    assert _entries(source) == {}
    assert source.listing().covers("imap://kb/Trash/1.eml")
    chosen = _open(opened, dovecot, user, include=["Trash/"])
    assert list(_entries(chosen)) == ["imap://kb/Trash/1.eml"]
    assert not chosen.listing().covers("imap://kb/INBOX/1.eml")


def test_folder__that_cannot_be_opened_does_not_stop_the_others(
    dovecot: Dovecot, user: str, opened: Any, commands: Counter[str]
) -> None:
    folders = ("Archive", "Locked", "Support")
    for folder in folders:
        _append(dovecot, user, _mail("a").as_bytes(), folder=folder)
    path = dovecot.folder / "mail" / user / "Locked"
    path.chmod(0)
    listing = _open(opened, dovecot, user).listing()
    assert sorted(entry.source for entry in listing) == ["imap://kb/Archive/1.eml", "imap://kb/Support/1.eml"]
    [failure] = listing.failures
    assert (failure.source, failure.code) == ("imap://kb/Locked", "unavailable")  # Dovecot says SERVERBUG
    assert "does not open the folder Locked (select failed: [SERVERBUG] Internal" in failure.message
    assert failure.message.endswith(f"let {user} read it, or name it in exclude")
    assert listing.refusal_to_prune(["imap://kb/Locked/1.eml"]) is not None
    searches = commands["search"]
    assert len(_entries(_open(opened, dovecot, user, exclude=["Locked/"]))) == 2
    assert commands["search"] == searches  # the pass with the failure has remembered the others
    path.chmod(0o700)
    assert sorted(_entries(_open(opened, dovecot, user))) == [f"imap://kb/{folder}/1.eml" for folder in folders]


def test_folder__that_was_removed_while_the_source_is_listed_does_not_stop_the_others(
    dovecot: Dovecot, user: str, opened: Any
) -> None:
    for folder in ("Archive", "Locked", "Support"):
        _append(dovecot, user, _mail("a").as_bytes(), folder=folder)
    listing = _open(opened, dovecot, user).listing()
    entries = iter(listing)
    start = next(entries).locator["folder"]
    name = next(folder for folder in ("Support", "Archive") if folder != start)
    with dovecot.log_in(user) as connection:
        connection.delete(name)
    assert len(list(entries)) == 1
    [failure] = listing.failures
    assert (failure.source, failure.code) == (f"imap://kb/{name}", "not_found")


@pytest.mark.parametrize(
    "mail",
    [
        b"\xff\xfe\x00\x00",
        b"From: =?x?q?=\r\nReferences: <<>\r\nMessage-ID: \x80\x81\r\nContent-Type: multipart/mixed\r\n\r\n--\r\n",
        b"Subject: a\r\n" * 50_000,
        b"Content-Type: application/pkcs7-mime\r\n\r\nAAAA",
    ],
)
def test_mail__that_cannot_be_parsed_does_not_stop_the_others(
    mail: bytes, dovecot: Dovecot, user: str, opened: Any
) -> None:
    _append(dovecot, user, mail, _mail("good").as_bytes())
    source = _open(opened, dovecot, user)
    broken, good = (source.load(entry) for entry in _entries(source).values())
    with suppress(ParseError):
        parse(broken)
    assert "About good." in parse(good).text


def test_mail__that_is_larger_than_allowed_is_refused(dovecot: Dovecot, user: str, opened: Any) -> None:
    mail = _mail("large")
    mail.add_attachment(bytes(1024 * 1024), maintype="application", subtype="octet-stream", filename="a.bin")
    _append(dovecot, user, mail.as_bytes())
    source = _open(opened, dovecot, user)
    [entry] = _entries(source).values()
    with pytest.raises(SourceError) as caught:
        source.load(entry)
    assert caught.value.code == "too_large"


def test_mail__that_arrived_after_a_folder_was_opened_is_read(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, _mail("a").as_bytes())
    reader = _open(opened, dovecot, user)
    [entry] = _entries(reader).values()
    reader.load(entry)
    _append(dovecot, user, _mail("b").as_bytes())
    *_, new = _entries(_open(opened, dovecot, user)).values()
    assert b"About b." in reader.load(new).data


def test_password__that_expires_is_named_by_its_variable(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, _mail("a").as_bytes())
    [entry] = _entries(_open(opened, dovecot, user)).values()
    dovecot.expire_password(user)
    code, message = _failure(_open(opened, dovecot, user))
    assert code == "no_permission"
    assert f"localhost:{dovecot.port} refuses the password in MAIL_PASSWORD" in message
    assert PASSWORD not in message
    with pytest.raises(SourceError) as caught:
        _open(opened, dovecot, user).load(entry)
    assert caught.value.code == "no_permission"


@contextmanager
def _refuse_login(dovecot: Dovecot, reply: bytes, capabilities: bytes) -> Iterator[int]:
    """Run a server that answers AUTHENTICATE with a reply, or ends the connection; yield its port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(dovecot.certificate, dovecot.folder / "key.pem")

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with context.wrap_socket(connection, server_side=True) as encrypted, encrypted.makefile("rb") as lines:
            encrypted.sendall(b"* OK ready\r\n")
            for line in lines:
                tag, command = line.split()[:2]
                if command == b"AUTHENTICATE":
                    if not reply:
                        return
                    encrypted.sendall(tag + b" " + reply + b"\r\n")
                else:
                    encrypted.sendall(b"* CAPABILITY IMAP4rev1 " + capabilities + b"\r\n" + tag + b" OK done\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        thread.join(timeout=10)


@pytest.mark.parametrize(
    ("reply", "capabilities", "code", "message"),
    [
        (b"NO Login failed [see help]", b"AUTH=PLAIN", "no_permission", "MAIL_PASSWORD (Login failed [see help])"),
        (b"NO [AUTHENTICATIONFAILED] no", b"AUTH=PLAIN", "no_permission", "refuses the password in MAIL_PASSWORD"),
        (b"NO [authorizationfailed] no", b"AUTH=PLAIN", "no_permission", "refuses the password in MAIL_PASSWORD"),
        (b"NO [EXPIRED] no", b"AUTH=PLAIN", "no_permission", "renew it"),
        (b"NO [UNAVAILABLE] busy", b"AUTH=PLAIN", "unavailable", "[UNAVAILABLE] busy); try again later"),
        (b"NO [LIMIT] too many connections", b"AUTH=PLAIN", "unavailable", "too many connections"),
        (b"NO [ALERT x] too many connections", b"AUTH=PLAIN", "unavailable", "too many connections"),
        (b"", b"AUTH=PLAIN", "unavailable", "try again later"),
        (b"NO [CANNOT] unknown mechanism", b"AUTH=XOAUTH2", "refused", "does not offer SASL PLAIN"),
        (b"BAD unknown mechanism", b"AUTH=XOAUTH2", "refused", "unknown mechanism"),
    ],
)
def test_login__is_a_matter_of_the_password_only_if_the_server_says_so(
    reply: bytes, capabilities: bytes, code: str, message: str, dovecot: Dovecot, user: str, opened: Any
) -> None:
    with _refuse_login(dovecot, reply, capabilities) as port:
        failure = _failure(_open(opened, dovecot, user, port=port))
    assert failure[0] == code
    assert message in failure[1]
    assert ("MAIL_PASSWORD" in failure[1]) == (code == "no_permission")


def test_login__with_too_many_connections_is_tried_again(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, _mail("a").as_bytes())
    source = _open(opened, dovecot, user)
    with ExitStack() as connections:
        for _ in range(10):  # as many as Dovecot allows for one user
            connections.enter_context(dovecot.log_in(user))
        code, message = _failure(source)
    assert code == "unavailable", message
    assert "onnections" in message
    assert len(_entries(source)) == 1


def test_starttls__is_used_where_the_spec_says_so(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, _mail("a").as_bytes())
    source = _open(opened, dovecot, user, security="starttls", port=dovecot.starttls_port)
    [entry] = _entries(source).values()
    assert b"About a." in source.load(entry).data


def test_starttls__that_the_server_lacks_sends_no_password(user: str, opened: Any, dovecot: Dovecot) -> None:
    received = bytearray()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as lines:
            connection.sendall(b"* OK ready\r\n")
            for line in lines:
                received.extend(line)
                tag = line.split()[0]
                connection.sendall(b"* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n" + tag + b" OK done\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        source = _open(opened, dovecot, user, security="starttls", port=listener.getsockname()[1], host="127.0.0.1")
        code, message = _failure(source)
        thread.join(timeout=10)
    assert code == "unavailable"
    assert "TLS" in message
    assert bytes(received).split()[1::2] == [b"CAPABILITY"]


def test_certificate__that_is_not_trusted_is_refused(
    dovecot: Dovecot, user: str, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for spec in ({}, {"security": "starttls", "port": dovecot.starttls_port}, {"host": "127.0.0.1"}):
        if "host" not in spec:
            monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        else:
            monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))  # which names localhost only
        code, message = _failure(_open(opened, dovecot, user, **spec))
        assert code == "refused"
        assert "name its authority in SSL_CERT_FILE" in message


def test_connection__that_the_server_has_closed_is_opened_again(dovecot: Dovecot, user: str, opened: Any) -> None:
    _append(dovecot, user, _mail("a").as_bytes())
    source = _open(opened, dovecot, user)
    [entry] = _entries(source).values()
    dovecot.stop()
    with pytest.raises(SourceError) as caught:
        source.load(entry)
    assert caught.value.code == "unavailable"
    dovecot.start()
    source.load(entry)
    dovecot.stop()
    dovecot.start()
    assert b"About a." in source.load(entry).data


def test_large_folder__is_listed_in_parts_and_with_little_memory(
    dovecot: Dovecot, user: str, opened: Any, commands: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imap_mailbox, "_WINDOW", 1000)
    _append(dovecot, user, _mail("first").as_bytes())
    mails = dovecot.folder / "mail" / user / "cur"
    for number in range(4000):
        (mails / f"17000{number:05}.M1P1.host:2,").write_bytes(b"Subject: x\r\n\r\nx\r\n")
    source = _open(opened, dovecot, user)
    tracemalloc.start()
    count = sum(1 for _ in source.listing())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 4001
    assert commands == {"search": 5}
    assert peak < 2_000_000
    with dovecot.log_in(user) as connection:
        connection.select("INBOX")
        connection.store("1001:3000", "+FLAGS", r"(\Deleted)")
    assert [entry.locator["uid"] for entry in source.listing()] == [*range(1, 1001), *range(3001, 4002)]


def test_cache__that_is_broken_is_read_anew(dovecot: Dovecot, user: str, opened: Any, tmp_path: Path) -> None:
    _append(dovecot, user, _mail("a").as_bytes())
    first = _entries(_open(opened, dovecot, user))
    [file] = (tmp_path / "cache").rglob("*.json")
    for content in ("{", "[]", '{"INBOX": [[1], 2]}', '{"INBOX": 7}'):
        file.write_text(content)
        assert _entries(_open(opened, dovecot, user)) == first
    assert PASSWORD not in file.read_text()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"acl": None}, "name the readers: acl, or permissions"),
        ({"password": "x"}, "password is not a key of it"),
        ({"host": "mail.example.org/x"}, "host is"),
        ({"security": "none"}, "security is"),
        ({"password_env": "a b"}, "password_env is"),
    ],
)
def test_spec__that_cannot_be_used_is_refused(spec: dict[str, Any], message: str, opened: Any) -> None:
    values = {"name": "kb", "host": "localhost", "user": "ann", "password_env": "MAIL_PASSWORD", "acl": ["hr"], **spec}
    with pytest.raises(RequestError, match=message):
        opened(kind="imap", **{key: value for key, value in values.items() if value is not None})


def test_source__names_the_variable_or_the_extra_that_is_missing(
    opened: Any, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"kind": "imap", "name": "kb", "host": "localhost", "user": "ann", "password_env": "MAIL_PASSWORD"}
    monkeypatch.delenv("MAIL_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match="MAIL_PASSWORD is not set"):
        opened(**spec, acl=["hr"])
    monkeypatch.setitem(sys.modules, "imapclient", None)
    with pytest.raises(ConfigError, match=r"pip install 'kosmos-rag\[imap\]'"):
        opened(**spec, acl=["hr"])
