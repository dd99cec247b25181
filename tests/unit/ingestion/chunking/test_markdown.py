"""The header-aware splitter."""

import re
from collections.abc import Callable
from itertools import pairwise

import pytest

from kosmos_rag.core.types import Heading, ParsedDocument
from kosmos_rag.ingestion.chunking import Chunker

Build = Callable[..., Chunker]

PROSE = "A sentence of the text. Another sentence of it.\n\n"


def parse(text: str) -> ParsedDocument:
    lines = re.finditer(r"^(#{1,6}) (.*)$", text, re.MULTILINE)
    headings = tuple(Heading(level=len(line[1]), title=line[2], start=line.start()) for line in lines)
    return ParsedDocument(text=text, media_type="text/markdown", headings=headings)


def test_split__makes_a_chunk_of_each_section(build: Build) -> None:
    text = "Preamble.\n\n# A\n\nText of A.\n\n## B\nText of B.\n\n# C\n\nText of C.\n"
    chunks = build("markdown").split(parse(text))
    assert [(chunk.section, chunk.text) for chunk in chunks] == [
        ((), "Preamble."),
        (("A",), "# A\n\nText of A."),
        (("A", "B"), "## B\nText of B."),
        (("C",), "# C\n\nText of C."),
    ]
    assert [(chunk.line_start, chunk.line_end) for chunk in chunks] == [(1, 1), (3, 5), (7, 8), (10, 12)]


@pytest.mark.parametrize("strategy", ["markdown", "semantic", "hierarchical"])
def test_split__joins_headings_without_text_to_the_section_after_them(build: Build, strategy: str) -> None:
    text = "# A\n\n## B\n\n### C\n\nText.\n\n# D\n\n# E\n\nMore.\n\n### F\n\n## G\n\nLast.\n\n# H\n"
    chunks = build(strategy).split(parse(text))
    assert [(chunk.text, chunk.section) for chunk in chunks] == [
        ("# A\n\n## B\n\n### C\n\nText.", ("A", "B", "C")),
        ("# D\n\n# E\n\nMore.", ("E",)),
        ("### F\n\n## G\n\nLast.", ("E", "G")),
        ("# H", ("H",)),
    ]


def test_split__takes_the_underline_of_a_heading_with_it(build: Build) -> None:
    text = f"Title\n=====\n\n{'word ' * 300}"
    document = ParsedDocument(
        text=text, media_type="text/markdown", headings=(Heading(level=1, title="Title", start=0),)
    )
    assert build("markdown").split(document)[0].text.startswith("Title\n=====\n\nword word")


def test_split__overlaps_within_a_section_only(build: Build) -> None:
    text = f"# A\n\n{PROSE * 10}# B\n\n{PROSE * 10}"
    chunks = build("markdown", max_size=300, overlap=60, recursive_size=200, min_size=50).split(parse(text))
    boundary = text.index("# B")
    assert len(chunks) > 4
    for previous, chunk in pairwise(chunks):
        overlap = text[chunk.start : previous.end]
        if chunk.start == boundary:
            assert overlap == ""
        else:
            assert overlap == PROSE.strip(), "a whole line, found at its own place"


def test_split__overlaps_from_a_sentence_where_no_line_begins(build: Build) -> None:
    paragraph = "A first sentence that is rather long to be repeated. Then a short one."
    chunks = build("markdown", max_size=100, overlap=30, recursive_size=90, min_size=10).split(
        parse(f"{paragraph}\n\n{paragraph}")
    )
    assert [chunk.text for chunk in chunks] == [paragraph, f"Then a short one.\n\n{paragraph}"]


def test_split__keeps_a_fence_whole(build: Build) -> None:
    code = "```python\n" + "value = 1\n\n" * 10 + "```"
    text = f"# A\n\n{PROSE * 3}\n{code}\n{PROSE * 3}"
    chunks = build("markdown", max_size=150, overlap=40, recursive_size=100, min_size=20).split(parse(text))
    assert len(chunks) == 5
    assert [code in chunk.text for chunk in chunks].count(True) == 1
    assert all(chunk.text.count("```") in (0, 2) for chunk in chunks)
    assert {chunk.fallback_reason for chunk in chunks} == {None}


def test_split__keeps_a_fence_whole_up_to_half_as_much_again(build: Build) -> None:
    code = "~~~\n" + "x = 1\n" * 23 + "~~~"
    build_ = {"max_size": 100, "overlap": 20, "recursive_size": 80, "min_size": 20}
    (chunk,) = build("markdown", **build_).split(parse(code))
    assert (len(chunk.text), chunk.text) == (145, code)
    longer = code.replace("~~~\n", "~~~\ny = 22\n", 1)
    chunks = build("markdown", **build_).split(parse(longer))
    reason = "fenced block longer than 1.5 times max_size (100 characters)"
    assert {(chunk.chunker, chunk.fallback_reason) for chunk in chunks} == {("recursive", reason)}


def test_split__prefers_a_whole_fence_to_one_with_its_heading(build: Build) -> None:
    code = "```\n" + "x = 1\n" * 23 + "```"
    chunks = build("markdown", max_size=100, overlap=20, recursive_size=80, min_size=20).split(
        parse(f"# A heading\n\n{code}")
    )
    assert [chunk.text for chunk in chunks] == ["# A heading", code]


def test_split__when_a_fence_is_never_closed(build: Build) -> None:
    text = "# A\n\n```\n" + "line of code\n\n" * 20
    chunks = build("markdown", max_size=100, overlap=20, recursive_size=80, min_size=20).split(parse(text))
    assert len(chunks) > 2
    assert max(len(chunk.text) for chunk in chunks) <= 100


def test_split__keeps_a_heading_with_a_paragraph_that_is_too_long(build: Build) -> None:
    paragraph = "word " * 300
    first, *rest = build("markdown").split(parse(f"# A\n\n## B\n\n{paragraph}"))
    assert first.text.startswith("# A\n\n## B\n\nword word")
    assert {chunk.fallback_reason for chunk in [first, *rest]} == {"paragraph longer than max_size (1000 characters)"}


def test_split__keeps_to_max_size_under_a_long_heading(build: Build) -> None:
    heading = "# " + "long heading " * 46
    first, *_ = build("markdown").split(parse(f"{heading}\n\n{'word ' * 300}"))
    assert first.text.startswith(heading.strip() + " \n\nword word")
    assert 900 < len(first.text) <= 1000


def test_split__leaves_out_an_overlap_for_which_there_is_no_room(build: Build) -> None:
    paragraph = "A first sentence that is long enough to fill most of a chunk alone. And a second one."
    chunks = build("markdown", max_size=100, overlap=30, recursive_size=90, min_size=10).split(
        parse(f"{paragraph}\n\n{paragraph}")
    )
    assert [chunk.text for chunk in chunks] == [paragraph, paragraph]
