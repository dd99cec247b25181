"""Notebooks, subtitles, drawings and Parquet tables."""

import io
import json
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import OutputLimits, parse


def parse_named(source: str, data: bytes | str) -> ParsedDocument:
    return parse(SourceDocument(source=source, data=data.encode() if isinstance(data, str) else data))


def notebook(*cells: dict[str, Any], **fields: Any) -> str:
    return json.dumps({"cells": cells, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, **fields})


PICTURE = "iVBORw0KGgo" + "A" * 5_000


def test_parse_notebook__cells_and_results_without_pictures() -> None:
    parsed = parse_named(
        "a.ipynb",
        notebook(
            {"cell_type": "markdown", "source": ["# Churn\n", f"Words ![x](data:image/png;base64,{PICTURE})."]},
            {
                "cell_type": "code",
                "source": "total = 1\ntotal",
                "outputs": [
                    {"output_type": "stream", "text": ["\u001b[31mloaded\u001b[0m\n"]},
                    {"data": {"image/png": PICTURE, "text/plain": "<Figure>"}},
                    {"data": {"image/png": PICTURE, "text/html": "<b>x</b>"}},
                    {"output_type": "error", "ename": "KeyError", "evalue": "'a'", "traceback": ["no"]},
                    {"output_type": "stream", "text": PICTURE},
                ],
            },
            {"cell_type": "markdown", "source": "## Result\nGood."},
            {"cell_type": "raw", "source": "as it is"},
            {"cell_type": "code", "source": [], "outputs": None},
        ),
    )
    assert parsed.text == (
        "# Churn\nWords ![x]().\n\n```python\ntotal = 1\ntotal\n```\n\n```\n loaded\n```\n\n```\n<Figure>\n```\n\n"
        "```\nKeyError: 'a'\n```\n\n## Result\nGood.\n\nas it is"
    ).replace(" loaded", "loaded")
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Churn"), (2, "Result")]
    assert all(parsed.text[h.start :].lstrip("# ").startswith(h.title) for h in parsed.headings)
    assert parsed.title == "Churn"


def test_parse_notebook__version_3() -> None:
    cells = [
        {"cell_type": "heading", "level": 1, "source": "Old"},
        {"cell_type": "code", "input": "1", "outputs": [{"output_type": "pyout", "text": "1"}]},
    ]
    parsed = parse_named("a.ipynb", json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}))
    assert parsed.text == "# Old\n\n```\n1\n```\n\n```\n1\n```"


@pytest.mark.parametrize("text", ["{", "[1]", '{"cells": 1}', "words", "[" * 100_000])
def test_parse_notebook__what_is_none_keeps_its_lines(text: str) -> None:
    assert parse_named("a.ipynb", text).text == text


SRT = """1
00:00:01,000 --> 00:00:04,000
<i>Hello</i> there.

2
00:00:05,000 --> 00:00:07,000 X1:1
- Two
- lines

3
00:01:30,500 --> 00:01:32,000
{\\an8}Later &amp; on

4
01:00:00,000 --> 01:00:01,000
The end.
"""
VTT = """WEBVTT - talk

NOTE a note

STYLE
::cue { color: red }

intro
00:01.000 --> 00:04.000 align:start
<v Ada Lovelace>Hello <c.loud>there</c>.

00:05.000 --> 00:06.000
<00:05.500>Two
words

NOTE
hidden

00:05.500 --> 00:07.000
Two words
"""


def test_parse_subtitles__times_are_headings() -> None:
    parsed = parse_named("a.srt", SRT)
    assert parsed.text == ("00:00:01\n\nHello there.\n- Two - lines\n\n00:01:30\n\nLater & on\n\n01:00:00\n\nThe end.")
    assert parsed.find_section(parsed.text.index("Later")) == ("00:01:30",)


@pytest.mark.parametrize("source", ["a.vtt", "a", "a.txt"])
def test_parse_subtitles__webvtt(source: str) -> None:
    parsed = parse_named(source, VTT)
    assert parsed.media_type == "text/vtt"
    assert parsed.text == "00:00:01\n\nAda Lovelace: Hello there.\nTwo words"


@pytest.mark.parametrize("source", ["a.srt", "a.vtt"])
def test_parse_subtitles__without_cues_keeps_its_lines(source: str) -> None:
    assert parse_named(source, "WEBVTT\n\nwords\n").text == "WEBVTT\n\nwords\n"


def test_parse_svg__words_of_the_drawing() -> None:
    body = (
        "<svg xmlns='http://www.w3.org/2000/svg'><title>Flow of orders</title><desc>How it goes</desc>"
        "<style>.a{}</style><script>no()</script><g><text x='1'>Order <tspan>placed</tspan></text><g><text>Paid</text>"
        "</g></g><metadata><a>no</a></metadata><path d='M0'/></svg>"
    )
    doctype = '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://x/svg11.dtd">'
    for data in (body, doctype + body):
        parsed = parse_named("a", data)
        assert parsed.media_type == "image/svg+xml"
        assert parsed.text == "Flow of orders\nHow it goes\nOrder placed\nPaid"
        assert parsed.title == "Flow of orders"


def write_parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def test_parse_parquet__rows_are_lines() -> None:
    table = pa.table(
        {
            "name": ["Ada", None],
            "born": [pa.scalar(1815).as_py(), 1906],
            "paid": [True, False],
            "picture": [b"\x89PNG", b""],
            "address": [{"city": "London"}, None],
            "tags": [["a", "b"], []],
        }
    )
    assert parse_named("a.bin", write_parquet(table)).text == (
        "name: Ada; born: 1815; paid: true; address.city: London; tags: a, b\nborn: 1906; paid: false"
    )


def test_parse_parquet__more_text_than_the_limit() -> None:
    data = write_parquet(pa.table({"a": ["word"] * 100_000}))
    with pytest.raises(ParseError, match="text_mb") as caught:
        parse(SourceDocument(source="a", data=data), OutputLimits(text_bytes=1_000))
    assert caught.value.code == "too_large"
