"""URLs as a source, against a server of its own: etags, limits, redirects, and what must never be asked."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kosmos_rag.core.config import IngestionSettings, UrlSettings
from kosmos_rag.core.errors import SourceError
from kosmos_rag.ingestion.sources.fetching import Fetcher
from kosmos_rag.ingestion.sources.listing import Entry
from kosmos_rag.ingestion.sources.registry import create_source
from tests.certificates import create_certificate
from tests.unit.ingestion.sources.web_server import Handler, Reply, Server


@pytest.fixture
def server() -> Iterator[Server]:
    with Server.run() as running:
        yield running


def answers(status: int, body: bytes = b"", **headers: str) -> Reply:
    return lambda handler: handler.send(status, body, **headers)


def _load(url: str, ingestion: IngestionSettings) -> bytes:
    source = create_source({"kind": "urls", "urls": [url]}, ingestion)
    return source.load(Entry(source=url, etag=None, locator={"url": url})).data


def _refusal(url: str, ingestion: IngestionSettings) -> SourceError:
    with pytest.raises(SourceError) as caught:
        _load(url, ingestion)
    assert str(caught.value).isprintable()
    return caught.value


def test_documents__are_listed_with_marks_and_loaded(server: Server, opened: Any) -> None:
    server.replies = {"/a": answers(200, b"# A", ETag='"1"'), "/b": answers(200, b"B", Last_Modified="yesterday")}
    urls = [server.url("/a"), server.url("/b"), server.url("/a")]
    source = opened(kind="urls", urls=urls, acl=["hr"], metadata={"team": "x"})
    listing = source.listing()
    entries = list(listing)
    assert listing.complete
    assert {method for method, _, _ in server.requests} == {"HEAD"}
    assert [entry.source for entry in entries] == urls[:2]
    assert len({entry.etag for entry in entries} - {None}) == 2
    document = source.load(entries[0])
    assert (document.source, document.data, document.acl) == (urls[0], b"# A", ("hr",))
    assert document.metadata == {"team": "x"}


def test_mark__changes_with_the_validators(server: Server, opened: Any) -> None:
    etags = []
    for headers in ({"ETag": '"1"'}, {"ETag": '"2"'}, {"ETag": '"2"', "Last_Modified": "today"}, {}):
        server.replies["/a"] = answers(200, b"x", **headers)
        [entry] = opened(kind="urls", urls=[server.url("/a")]).listing()
        etags.append(entry.etag)
    assert etags[3] is None
    assert len(set(etags)) == 4


def test_mark__comes_from_get_where_the_server_knows_no_head(server: Server, opened: Any) -> None:
    def reply(handler: Handler) -> None:
        handler.send(501) if handler.command == "HEAD" else handler.send(200, b"x", ETag='"1"')

    server.replies["/a"] = reply
    [entry] = opened(kind="urls", urls=[server.url("/a")]).listing()
    assert entry.etag is not None


def test_listing__keeps_an_address_that_fails(server: Server, opened: Any) -> None:
    source = opened(kind="urls", urls=[server.url("/gone"), "http://elsewhere.net/"])
    listing = source.listing()
    absent, elsewhere = listing
    assert listing.complete
    assert absent.etag is elsewhere.etag is None
    assert listing.covers(absent.source)
    assert not listing.covers(server.url("/other"))


@pytest.mark.parametrize(
    ("status", "code"),
    [(404, "not_found"), (410, "not_found"), (401, "no_permission"), (403, "no_permission"), (400, "unreadable"),
     (429, "unavailable"), (500, "unavailable"), (503, "unavailable"), (304, "unreadable")],
)  # fmt: skip
def test_status__has_a_code(status: int, code: str, server: Server, ingestion: IngestionSettings) -> None:
    server.replies["/a"] = answers(status)
    assert _refusal(server.url("/a"), ingestion).code == code


def test_redirects__are_followed(server: Server, ingestion: IngestionSettings) -> None:
    server.replies = {f"/{n}": answers(302, Location=f"/{n + 1}") for n in range(5)}
    server.replies["/5"] = answers(200, b"arrived")
    assert _load(server.url("/0"), ingestion) == b"arrived"


def test_redirects__end(server: Server, ingestion: IngestionSettings) -> None:
    server.replies["/a"] = answers(302, Location="/a")
    error = _refusal(server.url("/a"), ingestion)
    assert (error.code, len(server.requests)) == ("refused", 6)


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:10.0.0.1]/",
        "http://[::1]/",
        "http://localhost.evil.net/",
        "file:///etc/passwd",
        "ftp://127.0.0.1/",
        "http://user:secret@127.0.0.1/",
        "http://[",
        "gopher://127.0.0.1:6379/_FLUSHALL",
    ],
)
def test_redirects__to_where_nobody_may_ask_are_refused(
    target: str, server: Server, ingestion: IngestionSettings
) -> None:
    server.replies["/a"] = answers(302, Location=target)
    assert _refusal(server.url("/a"), ingestion).code == "refused"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [403, 404, 503])
def test_error__after_a_redirect_does_not_name_its_signature(
    status: int, server: Server, ingestion: IngestionSettings
) -> None:
    server.replies["/a"] = answers(302, Location="/file?token=s3cret#part")
    server.replies["/file?token=s3cret"] = answers(status)
    message = str(_refusal(server.url("/a"), ingestion))
    assert server.url("/file") in message
    server.replies["/file?token=s3cret"] = answers(302, Location="ftp://ann:s3cret@127.0.0.1/?token=s3cret")
    for text in (message, str(_refusal(server.url("/a"), ingestion))):
        assert "s3cret" not in text
        assert "token" not in text


@pytest.mark.parametrize("address", ["169.254.169.254", "224.0.0.1", "0.0.0.0"])
def test_redirects__to_a_name_with_such_an_address_are_refused(
    address: str, server: Server, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.replies["/a"] = answers(302, Location="http://docs.example.org/")
    _names(monkeypatch, {"docs.example.org": [address]})
    error = _refusal(server.url("/a"), ingestion)
    assert (error.code, len(server.requests)) == ("refused", 1)


def test_private_addresses__are_refused_by_default(server: Server) -> None:
    settings = IngestionSettings(urls=UrlSettings(allowed_hosts=("127.0.0.1",)))
    assert _refusal(server.url("/a"), settings).code == "refused"
    assert _refusal(server.url("/a"), IngestionSettings()).code == "refused"
    assert server.requests == []


def _names(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> list[str]:
    """Let names have addresses; a second look-up gives the next one. Returns the names that were looked up."""
    real, lookups = socket.getaddrinfo, []

    def look_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name not in names:
            return real(host, port, *args, **kwargs)
        lookups.append(name)
        address = names[name].pop(0) if len(names[name]) > 1 else names[name][0]
        return real(address, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return lookups


def test_connection__is_to_the_address_that_was_checked(
    server: Server, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = _names(monkeypatch, {"docs.example.org": ["127.0.0.1", "169.254.169.254"]})
    server.replies["/a"] = answers(200, b"checked")
    assert _load(f"http://docs.example.org:{server.port}/a", ingestion) == b"checked"
    assert lookups == ["docs.example.org"]
    assert server.requests == [("GET", "/a", f"docs.example.org:{server.port}")]


def test_connection__goes_on_to_the_next_address(
    server: Server, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        addresses = ["127.0.0.9", "127.0.0.1"] if host == "docs.example.org" else [host]
        return [result for address in addresses for result in real(address, port, *args, **kwargs)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    server.replies["/a"] = answers(200, b"second")
    assert _load(f"http://docs.example.org:{server.port}/a", ingestion) == b"second"


def test_proxies__of_the_environment_are_not_asked(
    server: Server, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    server.replies["/a"] = answers(200, b"direct")
    assert _load(server.url("/a"), ingestion) == b"direct"


def test_body__without_end_is_cut_off(server: Server, ingestion: IngestionSettings) -> None:
    chunks = []

    def endless(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(10 * 1024):  # ten gigabytes
            handler.wfile.write(bytes(1024 * 1024))
            chunks.append(1)

    server.replies["/a"] = endless
    assert _refusal(server.url("/a"), ingestion).code == "too_large"
    assert len(chunks) < 100


def test_body__compressed_without_being_asked_is_refused(server: Server, ingestion: IngestionSettings) -> None:
    server.replies["/a"] = answers(200, b"\x1f\x8b", Content_Encoding="gzip, gzip, gzip")
    assert _refusal(server.url("/a"), ingestion).code == "unreadable"


@pytest.mark.parametrize("part", ["headers", "body", "nothing"])
def test_server__that_is_slow_is_given_up(part: str, server: Server, ingestion: IngestionSettings) -> None:
    def trickle(handler: Handler) -> None:
        if part == "nothing":
            server.closing.wait(10)
            return
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"" if part == "headers" else b"\r\n"))
        while not server.closing.wait(0.05):
            handler.wfile.write(b"X-A: b\r\n" if part == "headers" else b"x")

    server.replies["/a"] = trickle
    urls = ingestion.urls.model_copy(update={"timeout_s": 0.5})
    started = time.monotonic()
    error = _refusal(server.url("/a"), ingestion.model_copy(update={"urls": urls}))
    assert error.code == "unavailable"
    assert time.monotonic() - started < 8


def _answer_as_said(*answers: bytes) -> tuple[Reply, list[int]]:
    """Answer the requests of each connection by raw bytes, then close it; returns the numbers of requests as well."""
    counts: list[int] = []

    def reply(handler: Handler) -> None:
        counts.append(0)
        for answer in answers:
            counts[-1] += 1
            handler.wfile.write(answer)
            if not answer or not handler.rfile.readline():
                return
            while handler.rfile.readline().strip():
                pass

    return reply, counts


_MARKED = b"HTTP/1.1 200 OK\r\nETag: 1\r\nContent-Length: 9\r\n\r\n"


@pytest.mark.parametrize(
    ("answers_of_a_connection", "expected"),
    [([_MARKED] * 3, [3]), ([_MARKED, b""], [2, 2, 1]), ([_MARKED, b"more than requested\r\n"], [2, 2, 1])],
    ids=["kept", "closed by its server", "with what is no response"],
)
def test_connection__of_a_listing_is_kept(
    answers_of_a_connection: list[bytes], expected: list[int], server: Server, opened: Any
) -> None:
    reply, counts = _answer_as_said(*answers_of_a_connection)
    server.replies = dict.fromkeys(("/a", "/b", "/c"), reply)
    listing = opened(kind="urls", urls=[server.url(path) for path in server.replies]).listing()
    assert [entry.etag is not None for entry in listing] == [True] * 3
    assert counts == expected


def test_connection__that_breaks_off_does_not_end_a_listing(server: Server, opened: Any) -> None:
    server.replies = {"/a": lambda _: None, "/b": answers(200, ETag="1")}
    listing = opened(kind="urls", urls=[server.url("/a"), server.url("/b")]).listing()
    assert [entry.etag is not None for entry in listing] == [False, True]


def test_connection__whose_server_says_that_it_waited_too_long_is_replaced(
    server: Server, ingestion: IngestionSettings
) -> None:
    timed_out = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
    reply, counts = _answer_as_said(_MARKED + b"requested", timed_out)
    server.replies = {"/a": reply, "/b": reply}
    with Fetcher(ingestion.urls, max_bytes=100).keep_connections() as fetcher:
        assert [fetcher.fetch(server.url(path)) for path in server.replies] == [b"requested"] * 2
    assert counts == [2, 1]


def test_what_is_sent_without_a_request__is_no_response(server: Server, ingestion: IngestionSettings) -> None:
    late = threading.Event()

    def reply(handler: Handler) -> None:
        handler.wfile.write(_MARKED + b"requested")
        time.sleep(0.1)  # else it would be received with the response
        handler.wfile.write(_MARKED + b"of nobody")
        late.set()
        handler.rfile.readline()

    server.replies = {"/a": reply, "/b": answers(200, b"second")}
    with Fetcher(ingestion.urls, max_bytes=100).keep_connections() as fetcher:
        assert fetcher.fetch(server.url("/a")) == b"requested"
        assert late.wait(5)
        assert fetcher.fetch(server.url("/b")) == b"second"


@pytest.mark.parametrize("status", [100, 102, 103])
def test_announcement__of_a_response_is_not_the_response(
    status: int, server: Server, ingestion: IngestionSettings
) -> None:
    def reply(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 %d Soon\r\nLink: </s.css>\r\n\r\n" % status * 2)
        time.sleep(0.05)
        body = handler.path.encode()
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        handler.close_connection = False

    server.replies = dict.fromkeys(("/a", "/b", "/c"), reply)
    with Fetcher(ingestion.urls, max_bytes=100).keep_connections() as fetcher:
        for path in server.replies:
            assert fetcher.fetch(server.url(path)) == path.encode()


def test_connection__that_changed_its_protocol_is_not_kept(server: Server, opened: Any) -> None:
    reply, counts = _answer_as_said(b"HTTP/1.1 101 Switching Protocols\r\n\r\n", _MARKED)
    server.replies = {"/a": reply, "/b": reply}
    list(opened(kind="urls", urls=[server.url("/a"), server.url("/b")]).listing())
    assert counts == [1, 1, 1, 1]  # HEAD and GET of each


def test_connection__of_a_request_without_answer_is_not_that_of_the_next(
    server: Server, ingestion: IngestionSettings
) -> None:
    """The thread of a request that was given up must not end the request after it."""

    def dripping(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 10\r\n\r\n")
        time.sleep(0.8)
        handler.wfile.write(b"x")
        server.closing.wait(5)

    def late(handler: Handler) -> None:
        time.sleep(0.9)
        handler.send(200, b"late")

    server.replies = {"/a": dripping, "/b": late}
    settings = ingestion.urls.model_copy(update={"timeout_s": 1.0})
    with Fetcher(settings, max_bytes=100).keep_connections() as fetcher:
        with pytest.raises(SourceError):
            fetcher.fetch(server.url("/a"))
        assert fetcher.fetch(server.url("/b")) == b"late"


@pytest.mark.parametrize("rest", [b"1\r\nx\r\n0\r\n", b""], ids=["trailers", "size of a chunk"])
def test_chunks__without_end_end_with_the_time(rest: bytes, server: Server, ingestion: IngestionSettings) -> None:
    hung_up = threading.Event()

    def endless(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + rest)
        try:
            while not server.closing.wait(0.02):
                handler.wfile.write(b"X: y\r\n" if rest else b"0")
        except OSError:
            hung_up.set()

    server.replies["/a"] = endless
    settings = ingestion.urls.model_copy(update={"timeout_s": 0.3})
    with pytest.raises(SourceError):
        Fetcher(settings, max_bytes=100).fetch(server.url("/a"))
    assert hung_up.wait(5)


def test_connections__that_are_kept_are_those_used_last(server: Server, ingestion: IngestionSettings) -> None:
    """A listing of many hosts would take the last descriptor of the process."""
    reply, counts = _answer_as_said(*[_MARKED + b"x" * 9] * 3)
    server.replies["/"] = reply
    hosts = [f"h{number}.example.org" for number in range(9)]
    with pytest.MonkeyPatch.context() as patched:
        _names(patched, {host: ["127.0.0.1"] for host in hosts})
        with Fetcher(ingestion.urls, max_bytes=100).keep_connections() as fetcher:
            for host in (*hosts, *reversed(hosts[1:])):
                fetcher.fetch(f"http://{host}:{server.port}/")
            assert len(counts) == 9
            fetcher.fetch(f"http://{hosts[0]}:{server.port}/")
            assert len(counts) == 10


def test_redirect__in_utf8_is_followed(server: Server, ingestion: IngestionSettings) -> None:
    moved = "HTTP/1.1 301 Moved\r\nLocation: /Über\r\nContent-Length: 0\r\n\r\n"
    server.replies["/a"] = _answer_as_said(moved.encode())[0]
    server.replies["/%C3%9Cber"] = answers(200, b"about")
    assert _load(server.url("/a"), ingestion) == b"about"


def test_cookie__of_a_redirect_is_sent_to_its_host_only(
    server: Server, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    _names(monkeypatch, {"docs.example.org": ["127.0.0.1"]})

    def reply(handler: Handler) -> None:
        if handler.headers["Cookie"] == "seen=1":
            handler.send(302, Location=f"http://docs.example.org:{server.port}/b")
        else:
            handler.send(302, Location="/a", Set_Cookie="seen=1; Path=/")

    server.replies = {"/a": reply, "/b": lambda handler: handler.send(200, str(handler.headers["Cookie"]).encode())}
    assert _load(server.url("/a"), ingestion) == b"None"


def test_requests__name_their_client(server: Server, ingestion: IngestionSettings) -> None:
    server.replies["/a"] = lambda handler: handler.send(200, handler.headers["User-Agent"].encode())
    assert _load(server.url("/a"), ingestion) == b"kosmos-rag"


@pytest.mark.parametrize("data", [b"", b"not HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"])
def test_server__that_breaks_off(data: bytes, server: Server, ingestion: IngestionSettings) -> None:
    def reply(handler: Handler) -> None:
        handler.wfile.write(data)

    server.replies["/a"] = reply
    assert _refusal(server.url("/a"), ingestion).code == "unavailable"


def test_server__that_is_not_there(ingestion: IngestionSettings) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert _refusal(f"http://127.0.0.1:{unused.getsockname()[1]}/", ingestion).code == "unavailable"


@pytest.fixture
def https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that is docs.example.org by its certificate, which is trusted."""
    pem = create_certificate(tmp_path, "docs.example.org")
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = Server()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    with server.serve():
        yield server


def test_https__is_checked_for_the_name_and_not_for_the_address(
    https: Server, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    _names(monkeypatch, {"docs.example.org": ["127.0.0.1"], "other.example.org": ["127.0.0.1"]})
    https.replies["/a"] = answers(200, b"secure")
    assert _load(f"https://docs.example.org:{https.port}/a", ingestion) == b"secure"
    error = _refusal(f"https://other.example.org:{https.port}/a", ingestion)
    assert error.code == "unavailable"
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)


def test_https__without_authorities_sends_nothing(
    server: Server, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent/authorities.pem")
    server.replies = {"/a": answers(200, b"plain"), "/b": answers(200, b"plain")}
    with Fetcher(ingestion.urls, max_bytes=100, headers={"Authorization": "s3cret"}).keep_connections() as fetcher:
        for path in server.replies:
            with pytest.raises(SourceError):
                fetcher.fetch(f"https://127.0.0.1:{server.port}{path}")
    assert server.requests == []


def test_https__leads_to_no_http(
    https: Server, server: Server, ingestion: IngestionSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    _names(monkeypatch, {"docs.example.org": ["127.0.0.1"]})
    https.replies["/a"] = answers(302, Location=server.url("/a"))
    server.replies["/a"] = answers(200, b"plain")
    https.replies["/b"] = answers(302, Location=server.url("/a?token=s3cret"))
    for path in ("/a", "/b"):
        error = _refusal(f"https://docs.example.org:{https.port}{path}", ingestion)
        assert (error.code, server.requests) == ("refused", [])
        assert "s3cret" not in str(error)
