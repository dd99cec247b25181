"""Archives of documents, and exports of Slack and Notion."""

import bz2
import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable, Mapping

import docx
import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.core.types.places import find_place
from kosmos_rag.parsing import bounds, parse
from tests.files import pack_zip, save


def parse_data(data: bytes, source: str = "team.zip") -> ParsedDocument:
    return parse(SourceDocument(source=source, data=data))


def pack_tar(members: Mapping[str, bytes | str], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return out.getvalue()


def pack_docx(text: str) -> bytes:
    document = docx.Document()
    document.add_heading("Leave", 1)
    document.add_paragraph(text)
    return save(document)


MEMBERS: dict[str, bytes | str] = {
    "hr/leave.docx": pack_docx("Employees have twenty days."),
    "b.md": "# Notice\n\nNinety days.\n",
    "a.csv": "Country,Capital\nKenya,Nairobi\n",
    "logo.png": b"\x89PNG\r\n\x1a\n\0",
    "__MACOSX/._b.md": b"\0\1",
    "empty.txt": " ",
}


@pytest.mark.parametrize(
    "data",
    [pack_zip(MEMBERS), *(pack_tar(MEMBERS, mode) for mode in ("w:", "w:gz", "w:bz2", "w:xz"))],
    ids=["zip", "tar", "gz", "bz2", "xz"],
)
def test_parse_archive__each_file_is_a_section_under_its_path(data: bytes) -> None:
    parsed = parse_data(data)
    assert [heading.title for heading in parsed.headings] == ["a.csv", "b.md", "Notice", "hr/leave.docx", "Leave"]
    assert parsed.find_section(parsed.text.index("twenty")) == ("hr/leave.docx", "Leave")
    assert "Country: Kenya; Capital: Nairobi" in parsed.text
    at = parsed.text.index("Ninety")
    place = find_place(parsed.places, at, at + 6)
    assert place is not None
    assert place.attachment == "b.md"
    assert parsed.notes == ()


def test_parse_archive__reads_a_tar_of_the_current_folder() -> None:
    parsed = parse_data(pack_tar({"./b.md": "# Notice\n\nNinety days.", "./.env": "secret"}))
    assert [heading.title for heading in parsed.headings] == ["b.md", "Notice"]
    assert "secret" not in parsed.text


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_parse_archive__a_compressed_file_is_the_file(pack: Callable[[bytes], bytes]) -> None:
    parsed = parse_data(pack(b"Country,Capital\nKenya,Nairobi\n"), "a.csv.gz")
    assert parsed.text == "Country | Capital\nCountry: Kenya; Capital: Nairobi"


def test_parse_archive__archives_in_archives_are_read_three_deep() -> None:
    data = pack_zip({"words.txt": "innermost words"})
    for level in range(5):
        data = pack_zip({f"{level}.zip": data, "b.txt": f"words of {level}"})
    parsed = parse_data(data)
    assert "words of 4" in parsed.text
    assert "words of 1" in parsed.text
    assert "innermost" not in parsed.text
    assert (
        parse_data(pack_zip({"a.txt": "words", "x.pdf": b"%PDF-1.7 broken"})).notes[0].code == "attachment_unreadable"
    )


def test_parse_archive__hostile_archives_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def code(data: bytes) -> str:
        with pytest.raises(ParseError) as refusal:
            parse_data(data)
        return refusal.value.code

    assert code(pack_zip({"../a.txt": "words"})) == "corrupt"
    assert code(pack_zip({"a.txt": bytes(50 * 2**20)})) == "too_large"
    assert code(pack_tar(MEMBERS)[:80]) == "corrupt"
    assert code(pack_zip({"logo.png": b"\x89PNG"})) == "empty"
    monkeypatch.setattr(bounds, "MAX_ARCHIVE_MEMBERS", 2)
    assert code(pack_tar(MEMBERS)) == "too_large"
    monkeypatch.setattr(bounds, "MAX_ARCHIVE_BYTES", 100)
    assert code(gzip.compress(bytes(1000))) == "too_large"
    assert code(pack_tar({"a.txt": "words" * 50}, "w:")) == "too_large"


SLACK = {
    "users.json": json.dumps(
        [{"id": "U1", "name": "ada", "profile": {"real_name": "Ada Lovelace"}}, {"id": "U2", "name": "grace"}, 7]
    ),
    "channels.json": json.dumps([{"id": "C1", "name": "support"}]),
    "support/2026-01-05.json": json.dumps(
        [
            {"type": "message", "user": "U1", "ts": "1767607500.1", "text": "<@U2> the limit is 40 &lt; 50 MB, see "
             "<https://example.org|the page> and <#C1|support> <!here>"},
            {"type": "message", "subtype": "channel_join", "user": "U2", "ts": "1", "text": "<@U2> has joined"},
            {"user": "U2", "ts": "x", "text": "", "files": [{"name": "plan.pdf"}]},
            {"username": "deploy-bot", "text": "Done.", "ts": None},
            "no message",
        ]
    ),
    "support/2026-01-06.json": "[]",
}  # fmt: skip


def test_parse_archive__slack_channels_have_the_names_of_their_users() -> None:
    parsed = parse_data(pack_zip(SLACK), "export.zip")
    assert [(heading.level, heading.title) for heading in parsed.headings] == [(1, "#support"), (2, "2026-01-05")]
    assert parsed.text.splitlines()[4:] == [
        "Ada Lovelace, 10:05: @grace the limit is 40 < 50 MB, see the page (https://example.org) and #support @here",
        "grace, time unknown: (files: plan.pdf)",
        "deploy-bot, time unknown: Done.",
    ]


def test_parse_archive__notion_pages_have_no_ids() -> None:
    page, other = "0123456789abcdef" * 2, "fedcba9876543210" * 2
    parsed = parse_data(
        pack_zip(
            {
                f"Home {page}.md": f"# Home\n\n[Leave](Home%20{page}/Paid%20leave%20{other}.md)",
                f"Home {page}/Paid leave {other}.md": "# Paid leave\n\nTwenty days.",
                f"Home {page}/Staff {other}.csv": "Name\nAda",
                f"Home {page}/Staff {other}_all.csv": "Name,Team\nAda,HR",
            }
        )
    )
    assert parsed.find_section(parsed.text.index("Twenty")) == ("Home/Paid leave.md", "Paid leave")
    assert "[Leave](Home/Paid leave.md)" in parsed.text
    assert page not in parsed.text
    assert parsed.text.count("Ada") == 1
    assert "Name: Ada; Team: HR" in parsed.text
