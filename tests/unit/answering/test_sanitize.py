"""What a language model writes, made safe to show while it comes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.answering.sanitize import REMOVED, sanitize, strip_invisible

EVIDENCE = "Ask at https://hr.example.org/leave?form=1 or see https://evil.example/x and (https://hr.example.org/faq)."
HOSTS = ("hr.example.org", "*.docs.example.org")


def _clean(*pieces: str, evidence: str = EVIDENCE, link_hosts: tuple[str, ...] = HOSTS) -> str:
    return "".join(sanitize(pieces, evidence=evidence, link_hosts=link_hosts))


@pytest.mark.parametrize(
    "text",
    [
        "Churn is 3.5 % [1][2], see `silver.trials` & R&D, a < b, x[1] = 5!",
        "```sql\nselect count(*) from t where a <> 5 and b != 'x'\n```\n\n[1]",
        "| a | b |\n|---|---|\n- [x] done\n1. [Source 1] It is so: yes.",
        "Is it `gold.trials`? Is it gold.trials?[1] Ask @anna, or root@host; 7//2 // and //so on: src/a.b 10.0.0.0/8",
        "Zeit: 10:30 Uhr, Kündigung\u00a0frei. 中文。日本語。",
        "",
    ],
)
def test_cleaned__leaves_what_is_only_text(text: str) -> None:
    assert _clean(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("![x](https://evil.example/p.png?d=1) end", f"! [x] {REMOVED} end"),
        ("[click here](https://evil.example/x). [1]", f"[click here] {REMOVED}. [1]"),
        ("[click](/relative) and [a](javascript:alert(1))", f"[click] (/relative) and [a] {REMOVED})"),
        ("see https://evil.example/x, or <https://evil.example>", f"see {REMOVED}, or <{REMOVED}>"),
        ("[a][b]\n\n[b]: evil.example/x 'title'", f"[a][b]\n\n[b] : {REMOVED} 'title'"),
        ('<img src="https://evil.example/x">', f'< img src="{REMOVED}">'),
        ("<script>alert(1)</script> <!-- x -->", "< script>alert(1)< /script> < !-- x -->"),
        ("http\u200bs://evil.example/x", REMOVED),
        ("https:\\/\\/evil.example/x and HTTPS:\\\\evil.example", f"{REMOVED} and {REMOVED}"),
        ("&#104;ttps://evil.example/x https&colon;//evil.example", f"& #104;{REMOVED} https& colon;{REMOVED}"),
        ("www.evil.example data:text/html;base64,x mailto:a@evil.example", f"{REMOVED} {REMOVED} {REMOVED}"),
        ("evil.example/x?d=secret", REMOVED),
        ("[1]https://evil.example", f"[1] {REMOVED}"),
        ("_www.evil.example_ *evil.example/x*", f"_{REMOVED}_ *{REMOVED}*"),
        ("https://evil.example/。x", f"{REMOVED}。x"),
        ("[more](//evil.example/x) // a comment", f"[more] {REMOVED} // a comment"),
        ("write to leak@evil.example. Or a@b.evil.example?subject=secret [1]", f"write to {REMOVED}. Or {REMOVED} [1]"),
        ("evil.example?d=secret evil.example#secret @evil.example/x", f"{REMOVED} {REMOVED} @{REMOVED}"),
        ("evil.example:80/x evil.xn--p1ai/x", f"{REMOVED} {REMOVED}"),
        ("//localhost/x //localhost?x //10.0.0.1/x ///evil.example", " ".join([REMOVED] * 4)),
        ("//[::1]/x //a@localhost/x //evil.\u0440\u0444", f"{REMOVED} {REMOVED} {REMOVED}"),
        ("\u0437\u043b\u043e.\u0440\u0444/x evil.\u0440\u0444/x?d=secret", f"{REMOVED} {REMOVED}"),
        ("https:/evil.example/x http:\\evil file:/etc/passwd", f"{REMOVED} {REMOVED} {REMOVED}"),
        ("a\u202eb\u2066c\u00add\U000e0041\U000e0101\x1b[31m\x00e\r\n", "abcd[31me\n"),
        ("half \ud83d of it", "half  of it"),
    ],
)
def test_cleaned__breaks_what_loads_links_or_hides(text: str, left: str) -> None:
    assert _clean(text) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Ask at https://hr.example.org/leave?form=1.", None),
        ("Ask at [HR](https://hr.example.org/faq).", "Ask at [HR] (https://hr.example.org/faq)."),
        ("Ask at https://hr.example.org/leave?form=1&d=secret.", f"Ask at {REMOVED}."),
        ("Ask at https://hr.example.org/leave.", f"Ask at {REMOVED}."),
        ("Ask at https://hr.example.org@evil.example/x", f"Ask at {REMOVED}"),
        ("Ask at https://hr.example.org.evil.example/x", f"Ask at {REMOVED}"),
        ("Ask at https://evil.example/x", f"Ask at {REMOVED}"),
    ],
)
def test_cleaned__keeps_a_link_of_an_allowed_host_that_stands_in_the_evidence(text: str, left: str | None) -> None:
    assert _clean(text) == (text if left is None else left)


def test_cleaned__keeps_links_of_hosts_below_an_allowed_one() -> None:
    evidence = "https://a.docs.example.org/x https://docs.example.org/x https://notdocs.example.org/x"
    assert _clean(evidence, evidence=evidence) == f"https://a.docs.example.org/x {REMOVED} {REMOVED}"


def test_cleaned__keeps_an_address_of_mail_of_an_allowed_host_that_stands_in_the_evidence() -> None:
    evidence = "Write to help@hr.example.org, or to x@evil.example."
    assert _clean(evidence, evidence=evidence) == f"Write to help@hr.example.org, or to {REMOVED}."
    assert _clean("Write to secret@hr.example.org.", evidence=evidence) == f"Write to {REMOVED}."


def test_cleaned__keeps_no_link_where_no_host_is_allowed() -> None:
    assert _clean(EVIDENCE, link_hosts=()).count(REMOVED) == 3


@pytest.mark.parametrize(
    ("pieces", "left"),
    [
        (["<think>I see</think>\n\nChurn is loss. [1]"], "Churn is loss. [1]"),
        (["\n<th", "ink>I ", "see</thi", "nk> Churn", " is loss."], "Churn is loss."),
        (["<think>I see</think>", "Churn is loss."], "Churn is loss."),
        (["<think>I never end"], ""),
        (["<think>", "I</", "th", "ink>x"], "x"),
        (["<thin", " air>"], "< thin air>"),
        (["<th"], "< th"),
    ],
)
def test_cleaned__leaves_reasoning_out(pieces: list[str], left: str) -> None:
    assert _clean(*pieces) == left


@pytest.mark.timeout(20)
def test_cleaned__of_reasoning_that_never_ends_takes_linear_time() -> None:
    assert _clean("<think>", *(["word"] * 100_000)) == ""


@pytest.mark.timeout(20)
@pytest.mark.parametrize("shape", ["a.", "_", "a@", "//a", "//[", "a.b?[1]", "a.bb:", "a+", "-", "https:"])
def test_cleaned__of_a_long_word_takes_linear_time(shape: str) -> None:
    _clean("x.yz?" + shape * (60_000 // len(shape)), shape * (60_000 // len(shape)))


def test_cleaned__of_a_word_without_end_does_not_grow() -> None:
    given_out = list(sanitize(("x" * 1000 for _ in range(100)), evidence="", link_hosts=()))
    assert max(map(len, given_out)) <= 11_001
    assert "".join(given_out).replace(" ", "") == "x" * 100_000


def test_cleaned__gives_words_out_as_they_come() -> None:
    pieces = sanitize(iter(["Churn is ", "lo", "ss. [1]"]), evidence="", link_hosts=())
    assert list(pieces) == ["Churn is ", "loss. ", "[1]"]


SNIPPETS = st.sampled_from(
    [
        "![",
        "](",
        "]:",
        "<img ",
        "https://",
        "evil.example",
        "/x",
        "&#58;",
        "[1]",
        " ",
        "\n",
        "!",
        "[",
        "(",
        "<",
        "\u200b",
    ]
)


@given(st.lists(SNIPPETS | st.text(max_size=3), max_size=25))
def test_cleaned__is_the_same_however_it_is_cut(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert _clean(*pieces) == _clean(whole) == _clean(*whole)


@given(st.lists(SNIPPETS | st.text(max_size=3), max_size=25))
def test_cleaned__never_lets_an_image_a_link_or_a_tag_through(pieces: list[str]) -> None:
    text = _clean(*pieces, link_hosts=())
    assert not re.search(r"!\[|\]\(|\]:|<[A-Za-z/!?]|://\S|&#?\w+;", text)
    assert strip_invisible(text) == text
