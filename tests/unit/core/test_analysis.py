"""Terms of scripts without spaces, and of identifiers."""

import pytest

from kosmos_rag.core.text.analysis import index_text, query_text, separate_words


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("plain words, and Ёлка", "plain words, and Ёлка"),
        ("训练数据", "训练 练数 数据"),
        ("書", "書"),
        ("データの保存", "デー ータ タの の保 保存"),
        ("데이터 저장", "데이 이터 저장"),
        ("การ", "กา าร"),
        ("Python3で訓練する", "Python3 で訓 訓練 練す する"),
        ("ＡＢＣ１２で ﾊﾞｯｸ", "ABC12 で バッ ック"),
        ("cafe\u0301", "café"),
    ],
)
def test_separate_words__splits_scripts_without_spaces(text: str, split: str) -> None:
    assert separate_words(text).split() == split.split()


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ('<Connector maxThreads="200"/>', 'Connector maxThreads="200"'),
        ("<a>訓練</a><br />", "a 訓練 a br"),
        ("List<String> x->y 1 < 2", "List String x- y 1 2"),
    ],
)
def test_separate_words__keeps_the_words_of_tags(text: str, split: str) -> None:
    assert separate_words(text).split() == split.split()


@pytest.mark.parametrize(
    ("identifier", "terms"),
    [
        ("getUserById", "get user by id"),
        ("HTTPServer", "http server"),
        ("customer_type", "customertype"),
        ("storage.local.retention", "storage local retention storagelocalretention"),
        ("Engine.open_all", "engine open all engineopenall"),
        ("std::vector", "stdvector"),
        ("XJ-4471-B", "xj4471b"),
        *(
            (word, "")
            for word in (
                "word",
                "Word",
                "CA640123",
                "u12ab3cd",
                "3.11.2",
                "2024-01-05",
                "45degree",
                "U.S",
                "e.g",
                "H2O",
                "v3",
            )
        ),
        *((word, "") for word in ("state-of-the-art", "NP-complete", "a" * 60 + "_" + "b" * 60)),
    ],
)
def test_index_text__appends_what_the_parser_does_not_produce(identifier: str, terms: str) -> None:
    assert index_text(f"see {identifier} here").partition("\n")[2] == terms
    assert index_text(f"see {identifier} here").partition("\n")[0] == f"see {identifier} here"


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("run it with --url", "optionurl"),
        ("`--line-length=88` and [--no_Cache]", "optionlinelength optionnocache"),
        ("What is --url?", "optionurl"),
        ("one--two, a -- b, ---", ""),
        ("-v", ""),
    ],
)
def test_index_text__has_a_term_for_an_option(text: str, terms: str) -> None:
    added = index_text(text).partition("\n")[2].split()
    assert " ".join(term for term in added if term.startswith("option")) == terms


def test_query_text__splits_letters_from_digits() -> None:
    assert query_text("XJ4471 or words") == ("XJ4471 or words\nxj 4471", {"xj": "xj4471", "4471": "xj4471"})
    assert query_text("XJ-4471-B") == ("XJ-4471-B\nxj4471b", {})
    assert query_text("C0330") == ("C0330\n0330", {"0330": "c0330"})
    assert query_text("plain words").text == "plain words"
    assert query_text("1f0c2a9b77ab43de").text == "1f0c2a9b77ab43de"
