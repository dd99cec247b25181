"""The keyword context as its users have it."""

import logging
from pathlib import Path

import pytest

from kosmos_rag.core.errors import IngestionError, KosmosError, ParseError, RequestError, SourceError
from kosmos_rag.retrieval.keyword.context import KeywordContext, Match, Ranking

RANKINGS: tuple[Ranking, ...] = ("bm25", "classic")
TWELVE = [f"paragraph{number} text" for number in range(12)]

both = pytest.mark.parametrize("ranking", RANKINGS)


@both
def test_from_file__loads_the_sixteen_paragraphs_of_the_example(schema_docs: Path, ranking: Ranking) -> None:
    context = KeywordContext.from_file(schema_docs, ranking=ranking)
    assert len(context.paragraphs) == 16
    assert context.paragraphs[0].text.startswith("Table: sales\nDescription: Sales transaction records")
    assert context.paragraphs[1].text.startswith("Columns:\n- id: INTEGER (Primary Key")
    assert context.paragraphs[2].text.startswith("Product Values (10 types):\n- Laptop")


@both
def test_search__puts_sales_by_region_first_for_total_sales_by_region(schema_docs: Path, ranking: Ranking) -> None:
    context = KeywordContext.from_file(str(schema_docs), ranking=ranking)
    for query in ("total sales by region", "show total sales by region"):
        assert context.search(query)[0].text.startswith("3. Sales by Region:\n   SELECT region")


def test_search__scores_the_classic_example_as_the_table_does(schema_docs: Path) -> None:
    context = KeywordContext.from_file(schema_docs, ranking="classic")
    scores = {match.text.partition("\n")[0]: match.score for match in context.search("total sales by region", k=16)}
    assert scores["3. Sales by Region:"] == 3
    assert not any(head.startswith("Product Values") for head in scores)


@both
def test_search__says_where_a_match_stands(schema_docs: Path, ranking: Ranking) -> None:
    [match] = KeywordContext.from_file(schema_docs, ranking=ranking).search("monthly sales", k=1)
    lines = schema_docs.read_text().splitlines()
    assert match.source == str(schema_docs)
    assert "\n".join(lines[match.line_start - 1 : match.line_end]) == match.text
    assert match.text.startswith("5. Monthly Sales:")


def test_search__gives_records_in_order_of_their_score() -> None:
    result = KeywordContext.from_text("a b\n\na b c\n\nb c", ranking="classic").search("b c")
    assert result == [
        Match(text="a b c", score=12, source=None, line_start=3, line_end=3),
        Match(text="b c", score=12, source=None, line_start=5, line_end=5),
        Match(text="a b", score=1, source=None, line_start=1, line_end=1),
    ]


@both
def test_search__gives_at_most_k_and_five_where_none_is_named(ranking: Ranking) -> None:
    context = KeywordContext.from_text("\n\n".join(TWELVE), ranking=ranking)
    assert [match.text for match in context.search("text", k=3)] == TWELVE[:3]
    assert [match.text for match in context.search("text")] == TWELVE[:5]
    assert len(context.search("text", k=100)) == 12


@both
def test_search__finds_nothing_for_words_that_are_nowhere(ranking: Ranking) -> None:
    assert KeywordContext.from_text("one\n\ntwo", ranking=ranking).search("three") == []


@both
def test_search__matches_in_a_text_of_one_paragraph(ranking: Ranking) -> None:
    context = KeywordContext.from_text("only one", ranking=ranking)
    assert [match.text for match in context.search("one")] == ["only one"]


@both
def test_get_context__joins_the_matches_by_a_blank_line(ranking: Ranking) -> None:
    context = KeywordContext.from_text("\n\n".join(TWELVE), ranking=ranking)
    assert context.get_context("text", k=2) == "paragraph0 text\n\nparagraph1 text"
    assert context.get_context("text") == "\n\n".join(TWELVE[:5])


@both
def test_get_context__gives_the_first_ten_where_nothing_matches(ranking: Ranking) -> None:
    context = KeywordContext.from_text("\n\n".join(TWELVE), ranking=ranking, fallback="unused")
    assert context.get_context("unheard", k=1) == "\n\n".join(TWELVE[:10])


@both
@pytest.mark.parametrize("data", [None, b"", b" \n", b"\x00\x01binary"], ids=["missing", "empty", "blank", "binary"])
def test_from_file__that_cannot_be_used_gives_the_fallback_and_says_so(
    tmp_path: Path, ranking: Ranking, data: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "docs.txt"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(IngestionError, match=r"docs\.txt"):
        KeywordContext.from_file(file, ranking=ranking)
    with caplog.at_level(logging.WARNING, logger="kosmos_rag.retrieval.keyword"):
        context = KeywordContext.from_file(file, ranking=ranking, fallback="Table: sales")
    assert context.search("sales") == []
    assert context.get_context("sales") == "Table: sales"
    assert "docs.txt" in caplog.text


def test_from_file__names_the_error_of_each_bad_file(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as missing:
        KeywordContext.from_file(tmp_path / "missing.txt")
    (tmp_path / "empty.txt").touch()
    with pytest.raises(ParseError) as empty:
        KeywordContext.from_file(tmp_path / "empty.txt")
    assert (missing.value.code, empty.value.code) == ("not_found", "empty")


@both
def test_from_text__refuses_a_blank_text_or_gives_the_fallback(ranking: Ranking) -> None:
    with pytest.raises(ParseError, match="no paragraph") as refused:
        KeywordContext.from_text(" \n\n", ranking=ranking)
    assert refused.value.code == "empty"
    assert KeywordContext.from_text("", ranking=ranking, fallback="else").get_context("any") == "else"


@pytest.mark.parametrize("fallback", ["", " \n"])
def test_fallback__may_not_be_blank(fallback: str) -> None:
    with pytest.raises(RequestError, match="fallback is"):
        KeywordContext.from_text("text", fallback=fallback)


def test_ranking__that_is_unknown_is_refused() -> None:
    with pytest.raises(RequestError, match="ranking is 'tfidf'; choose one of bm25, classic"):
        KeywordContext.from_text("text", ranking="tfidf")  # type: ignore[arg-type]


@both
@pytest.mark.parametrize("query", ["", " \t\n"])
def test_query__may_not_be_blank(ranking: Ranking, query: str) -> None:
    context = KeywordContext.from_text("text", ranking=ranking)
    for ask in (context.search, context.get_context):
        with pytest.raises(RequestError, match="the query is empty"):
            ask(query)


@pytest.mark.parametrize("k", [0, -1, True, 2.0, None])
def test_k__must_be_a_number_from_one_on(k: int) -> None:
    context = KeywordContext.from_text("text")
    for ask in (context.search, context.get_context):
        with pytest.raises(RequestError, match=f"k is {k!r}"):
            ask("text", k)


@both
def test_get_context__always_gives_something(ranking: Ranking) -> None:
    context = KeywordContext.from_text("--- ***\n\n???", ranking=ranking)
    for query in ("***", "?", "😀", "a" * 100_000, "\x00", "\ud800"):
        assert context.get_context(query).strip()


@both
def test_from_file__reads_ten_megabytes(tmp_path: Path, ranking: Ranking) -> None:
    """Time is measured by benchmarks/keyword.py; what is quadratic would not end here."""
    paragraph = f"{'word ' * 2_000}\n \t\n"
    blank = f"{' ' * 10_000}\n" * 500
    (tmp_path / "large.txt").write_text(f"{paragraph * 500}{blank}the needle\n")
    context = KeywordContext.from_file(tmp_path / "large.txt", ranking=ranking)
    assert (tmp_path / "large.txt").stat().st_size > 10_000_000
    [result] = context.search("needle")
    assert (result.text, result.line_start, len(context.paragraphs)) == ("the needle", 1501, 501)


def test_errors__are_of_the_librarys_tree() -> None:
    with pytest.raises(KosmosError):
        KeywordContext.from_text("")
