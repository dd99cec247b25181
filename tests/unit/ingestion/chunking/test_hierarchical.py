"""The hierarchical splitter: small pieces, and the section around each."""

from collections.abc import Callable

import pytest
from hypothesis import given

from kosmos_rag.core.config import ChunkingSettings
from kosmos_rag.core.types import Chunk, Heading, ParsedDocument
from kosmos_rag.ingestion.chunking import Chunker, build_chunker
from kosmos_rag.ingestion.chunking.section import split_sections, split_units
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.property_examples import examples
from tests.unit.ingestion.chunking.test_properties import SIZES, parse, texts

Build = Callable[..., Chunker]
SECTION_SIZE = 200
CHUNKER = build_chunker(
    ChunkingSettings(strategy="hierarchical", section_size=SECTION_SIZE, **SIZES),  # type: ignore[arg-type]
    embedder=HashingEmbedder(),
    max_tokens=20,
)
TEXT = """Preamble.

# Metrics

## Churn

Churn is loss of accounts.

It is counted monthly.

## Refunds

Money that went back.
"""


def _render(text: str, chunk: Chunk) -> str:
    assert chunk.parent_span is not None
    return text[slice(*chunk.parent_span)]


def _paragraphs(*lengths: int) -> ParsedDocument:
    text = "\n\n".join(chr(ord("a") + index) * length for index, length in enumerate(lengths))
    return ParsedDocument(text=text, media_type="text/plain")


def test_split__gives_each_paragraph_the_section_around_it(build: Build) -> None:
    chunks = build("hierarchical", min_size=10).split(parse(TEXT))
    churn = "# Metrics\n\n## Churn\n\nChurn is loss of accounts.\n\nIt is counted monthly."
    refunds = "## Refunds\n\nMoney that went back."
    assert [(chunk.section, chunk.text, _render(TEXT, chunk)) for chunk in chunks] == [
        ((), "Preamble.", "Preamble."),
        (("Metrics", "Churn"), "# Metrics\n\n## Churn\n\nChurn is loss of accounts.", churn),
        (("Metrics", "Churn"), "It is counted monthly.", churn),
        (("Metrics", "Refunds"), refunds, refunds),
    ]


def test_split__joins_paragraphs_of_a_section_to_min_size(build: Build) -> None:
    chunks = build("hierarchical", min_size=70, max_size=900).split(parse(TEXT))
    assert [chunk.section[-1:] for chunk in chunks] == [(), ("Churn",), ("Refunds",)]
    assert chunks[1].text == _render(TEXT, chunks[1])


def test_split__narrows_a_long_section_to_the_paragraphs_around(build: Build) -> None:
    document = _paragraphs(40, 40, 40, 40, 40)
    chunks = build("hierarchical", min_size=10, section_size=130).split(document)
    output = [_render(document.text, chunk) for chunk in chunks]
    assert [text.replace("\n", "")[::40] for text in output] == ["abc", "abc", "bcd", "cde", "cde"]


def test_split__shows_a_paragraph_that_is_cut_with_what_fits_around_it(build: Build) -> None:
    text = "one.\n\n" + "word " * 60 + "\n\n" + "b" * 40
    document = ParsedDocument(text=text, media_type="text/plain")
    sizes = {"min_size": 10, "max_size": 200, "recursive_size": 150}
    first, *cut, last = build("hierarchical", section_size=320, **sizes).split(document)
    assert len(cut) > 1
    assert {chunk.chunker for chunk in cut} == {"recursive"}
    assert {_render(text, chunk) for chunk in [first, *cut]} == {("one.\n\n" + "word " * 60).strip()}
    assert _render(text, last) == "b" * 40


def test_split__shows_nothing_around_a_part_of_a_paragraph_that_is_too_long(build: Build) -> None:
    document = ParsedDocument(text="word " * 300, media_type="text/plain")
    chunks = build("hierarchical", section_size=1200).split(document)
    assert len(chunks) > 1
    assert {chunk.parent_span for chunk in chunks} == {None}


@pytest.mark.parametrize("whole", [True, False])
def test_split__keeps_fenced_blocks_as_settings_ask(build: Build, whole: bool) -> None:
    block = "```sql\n" + "select 1;\n\n" * 40 + "```"
    document = ParsedDocument(
        text=f"# A\n\nText.\n\n{block}", media_type="text/markdown", headings=(Heading(level=1, title="A", start=0),)
    )
    chunks = build(
        "hierarchical", min_size=10, max_size=200, recursive_size=150, whole_blocks=whole, max_tokens=60
    ).split(document)
    assert (block in [chunk.text for chunk in chunks]) is whole
    assert {_render(document.text, chunk) for chunk in chunks} == {document.text}


@examples(120)
@given(text=texts)
def test_around__is_the_section_or_the_paragraphs_of_it_that_fit(text: str) -> None:
    document = parse(text)
    result = [units for section in split_sections(document) if (units := list(split_units(document, section)))]
    for chunk in CHUNKER.split(document):
        (units,) = [units for units in result if units[0].start <= chunk.start < units[-1].end]
        whole = (units[0].start, units[-1].end)
        chunk_units = [unit for unit in units if unit.start < chunk.end and chunk.start < unit.end]
        if whole[1] - whole[0] <= SECTION_SIZE:
            assert chunk.parent_span == whole
        elif chunk_units[-1].end - chunk_units[0].start > SECTION_SIZE:
            assert chunk.parent_span is None
        else:
            assert chunk.parent_span is not None
            start, end = chunk.parent_span
            assert start <= chunk_units[0].start < chunk_units[-1].end <= end <= start + SECTION_SIZE
            assert start in {unit.start for unit in units}
            assert end in {unit.end for unit in units}


def test_split__of_a_long_text_takes_linear_time() -> None:
    document = ParsedDocument(text="A paragraph of words.\n\n" * 20_000, media_type="text/plain")
    assert len(CHUNKER.split(document)) > 5_000
