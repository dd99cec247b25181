"""Texts cut into what an answer is made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kosmos_rag.answering.units import units


def _kinds(text: str) -> list[tuple[str, str]]:
    return [(unit.kind, unit.text) for unit in units(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One holds. Two does not!", [("sentence", "One holds."), ("sentence", "Two does not!")]),
        ("A wrapped\nsentence. Next.", [("sentence", "A wrapped\nsentence."), ("sentence", "Next.")]),
        ("It is 0.5 % of e.g. Rows.", [("sentence", "It is 0.5 % of e.g. Rows.")]),
        ("# Title\n\nText.", [("sentence", "Text.")]),
        ("One.\n![A plan](img/a.png)\n\nTwo ![b](b.png).", [("sentence", "One."), ("sentence", "Two ![b](b.png).")]),
        ("**Symptoms.** It is red. So.", [("sentence", "**Symptoms.** It is red."), ("sentence", "So.")]),
        ("Intro:\n- one. Still one\n  and on\n- two", [
            ("sentence", "Intro:"), ("item", "- one. Still one\n  and on"), ("item", "- two"),
        ]),
        ("- The limit is\n40 MB. It\nstays.\n- two\n\nText.", [
            ("item", "- The limit is\n40 MB. It\nstays."), ("item", "- two"), ("sentence", "Text."),
        ]),
        ("- one\n# Title\nText.\n- two\n> quote", [
            ("item", "- one"), ("sentence", "Text."), ("item", "- two\n> quote"),
        ]),
        ("1. First. Then.\n2. Second", [("item", "1. First. Then."), ("item", "2. Second")]),
        ("| A | B |\n|---|---|\n| 1. x | 2 |", [("row", "| 1. x | 2 |")]),
        ("```\nselect 1.\n\nfrom t;\n```\nText.", [
            ("code", "```\nselect 1.\n\nfrom t;\n```"), ("sentence", "Text."),
        ]),
        ("Options\n=======\n\nText of it.\n\nNext\n----\nMore.", [
            ("sentence", "Text of it."), ("sentence", "More."),
        ]),
        ("=====\nTitle\n=====\n\nText.", [("sentence", "Text.")]),
        ("Title\n---\nText. Two\nlines", [("sentence", "Text."), ("sentence", "Two\nlines")]),
        ("Run it::\n\n    pip install x\n\n    run\n\nThen go.", [
            ("sentence", "Run it::"), ("code", "pip install x\n\n    run"), ("sentence", "Then go."),
        ]),
        (".. code-block:: sql\n   :linenos:\n\n   select 1\n   from t\n\nText.", [
            ("code", "select 1\n   from t"), ("sentence", "Text."),
        ]),
        (".. _label:\n\n.. note:: Take care.\n\n.. toctree::\n   :maxdepth: 2\n\n.. comment\n\nText.", [
            ("sentence", "Take care."), ("sentence", "Text."),
        ]),
        ("```{versionadded} 2.0\n```\n\nIt opens files.\n\n```\nopen()\n```", [
            ("sentence", "It opens files."), ("code", "```\nopen()\n```"),
        ]),
        ("```{note}\n:class: a\nText.\n```\n\n:::{tip}\nMore.\n:::\n(label)=\nEnd.", [
            ("sentence", "Text."), ("sentence", "More."), ("sentence", "End."),
        ]),
        ("```{code-block} sql\nselect 1\n```", [("code", "```{code-block} sql\nselect 1\n```")]),
        ("---\ntitle: A page\ntags:\n  - one\n---\nText.", [("sentence", "Text.")]),
        ("{% if a %}\nText.\n{% endif %}\n<!-- note -->\n<div class='a'>\nMore.\n</div>", [
            ("sentence", "Text."), ("sentence", "More."),
        ]),
        ("===  ====\nA    B\n===  ====\n1    x\n2    y\n===  ====\n\nText.", [
            ("row", "1    x"), ("row", "2    y"), ("sentence", "Text."),
        ]),
        ("+---+---+\n| A | B |\n+===+===+\n| 1 | 2 |\n+---+---+", [("row", "| 1 | 2 |")]),
        ("One\n***\nTwo", [("sentence", "Two")]),
        ("``nodaemon``\n\n  Stay in front. Do not\n  detach.\n\n  *Default*: false", [
            ("sentence", "``nodaemon``\n\n  Stay in front."), ("sentence", "Do not\n  detach."),
            ("sentence", "*Default*: false"),
        ]),
        ("Example of it\n\n    run this\n\n``term``\n\nText. More.", [
            ("sentence", "Example of it"), ("sentence", "run this"), ("sentence", "``term``"), ("sentence", "Text."),
            ("sentence", "More."),
        ]),
        ("from t;\n```\nText.", [("sentence", "from t;"), ("sentence", "Text.")]),
        ("第一句。第二句。", [("sentence", "第一句。"), ("sentence", "第二句。")]),
        (" \n\t\n", []),
        ("= Page\n\n== Title\nText. More.\n=== Sub\nEnd.", [
            ("sentence", "Text."), ("sentence", "More."), ("sentence", "End."),
        ]),
        ("\\section{Title}\\label{a}\nText.\n\\subsection*{Sub}\nMore.", [
            ("sentence", "Text."), ("sentence", "More."),
        ]),
        ("Text\n<h2 id='a'>Title</h2>\nMore.", [("sentence", "Text"), ("sentence", "More.")]),
        ("<!-- generated\nby hand -->\n{%\n  if a\n%}\nText.\n{#\nnote #}\nMore.", [
            ("sentence", "Text."), ("sentence", "More."),
        ]),
        ("<!-- cut\nText.", [("sentence", "<!-- cut\nText.")]),
        ("[source,sql]\n----\nselect 1.\n\nfrom t\n----\nText.\n\n----\nMore.", [
            ("code", "select 1.\n\nfrom t"), ("sentence", "Text."), ("sentence", "More."),
        ]),
        ("Run it:\n#+BEGIN_SRC sql\nselect 1.\n\nfrom t\n#+END_SRC\nText.", [
            ("sentence", "Run it:"), ("code", "select 1.\n\nfrom t"), ("sentence", "Text."),
        ]),
        ("\\begin{lstlisting}[language=SQL]\nselect 1.\n\\end{lstlisting}\nText.", [
            ("code", "select 1."), ("sentence", "Text."),
        ]),
        ("#+begin_src sh\ncut off", [("sentence", "cut off")]),
        ("|===\n|A |B\n\n|1 |2\n|===\n\n| A | B |\n|---+---|\n| 3 | 4 |", [
            ("row", "|A |B"), ("row", "|1 |2"), ("row", "| 3 | 4 |"),
        ]),
        ("* one\n** two\n. three\n. four", [
            ("item", "* one"), ("item", "** two"), ("item", ". three"), ("item", ". four"),
        ]),
        ("-- Paying accounts.\nselect a.b\n\nfrom t\nwhere c = 1.5;\n\ncreate table x (\n  a int\n);\nText. More", [
            ("code", "-- Paying accounts.\nselect a.b\n\nfrom t\nwhere c = 1.5;"),
            ("code", "create table x (\n  a int\n);"),
            ("sentence", "Text."), ("sentence", "More"),
        ]),
        ("Select a row from the list.\n\nIt is red;\nsee below;", [
            ("sentence", "Select a row from the list."), ("sentence", "It is red;\nsee below;"),
        ]),
        ("Select this;\nor that.", [("sentence", "Select this;\nor that.")]),
        ("Owners\nTeam | Owns\nTeam: Finance; Owns: Cash. All\nTeam: Data\nall teams\n\nText | more\nEnd.", [
            ("sentence", "Owners"), ("row", "Team: Finance; Owns: Cash. All"), ("row", "Team: Data"),
            ("row", "all teams"), ("sentence", "Text | more\nEnd."),
        ]),
    ],
)  # fmt: skip
def test_units__are_whole(text: str, expected: list[tuple[str, str]]) -> None:
    assert _kinds(text) == expected


def test_units__have_no_heading_of_their_section() -> None:
    headings = ("Policies", "Retention  of logs", "Two lines", "#")
    text = "Policies\n\nRetention of\nlogs\n\nLogs stay.\n\n** Two lines\nRetention of logs is short. #"
    assert [unit.text for unit in units(text, headings=headings)] == ["Logs stay.", "Retention of logs is short.", "#"]
    assert len(list(units(text))) == 6


def test_units__of_a_table_that_begins_above_are_its_rows() -> None:
    text = "Team: Finance; Owns: Cash\nOwns: Silver\n\nTeam: is a word."
    assert [(unit.kind, unit.text) for unit in units(text, columns=("Team", "Owns"))] == [
        ("row", "Team: Finance; Owns: Cash"),
        ("row", "Owns: Silver"),
        ("sentence", "Team: is a word."),
    ]
    assert [unit.kind for unit in units(text)] == ["sentence", "sentence"]


@given(st.text(alphabet="aB1 .!?\n|-#`*~。=:{%<>", max_size=120))
def test_units__are_spans_in_order_without_overlap(text: str) -> None:
    end = 0
    for unit in units(text):
        assert unit.start >= end
        assert text[unit.start : unit.end] == unit.text
        assert unit.text == unit.text.strip() != ""
        end = unit.end


def test_units__of_a_long_text_take_linear_time() -> None:
    text = "A sentence that says a thing. " * 4_000 + "- item\n" * 4_000 + "| a | b |\n" * 4_000
    assert len(list(units(text))) == 12_000


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "sign",
    [
        "`",
        "~",
        "#",
        "|",
        "-",
        "=",
        ":",
        "<",
        "{%",
        "= ",
        "=== ===\n",
        "a\n",
        ".. ",
        "```a\n",
        "#+begin_src\n",
        "select\n",
        "Title\n\nTitle\n\n",
    ],
)
def test_units__of_a_long_line_of_signs_take_linear_time(sign: str) -> None:
    list(units(sign * 100_000))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4. Meal Allowance\n\nIt is 28 euros.\n\nHOTELS\n\nA night is 130 euros.", [
            ("", "4. Meal Allowance"), ("Meal Allowance", "It is 28 euros."),
            ("", "HOTELS"), ("HOTELS", "A night is 130 euros."),
        ]),
        ("Price List\n\nIt costs 5 euros. Or 6.", [
            ("", "Price List"), ("Price List", "It costs 5 euros."), ("Price List", "Or 6."),
        ]),
        ("Max Load 500 kg\n\nDo not exceed it.", [
            ("", "Max Load 500 kg"), ("Max Load 500 kg", "Do not exceed it."),
        ]),
        ("2024 Revenue was 5 million\n\nCosts fell.", [
            ("", "2024 Revenue was 5 million"), ("Revenue was 5 million", "Costs fell."),
        ]),
        ("1. Open it\n\n2. Close it\n\nThen go.", [("", "1. Open it"), ("", "2. Close it"), ("", "Then go.")]),
        ("Yes it is\n\nWe close later.", [("", "Yes it is"), ("", "We close later.")]),
        ("1. Open it\n\n2. Close it", [("", "1. Open it"), ("", "2. Close it")]),
        ("1. Open it\n\n   Turn left.", [("", "1. Open it"), ("", "Turn left.")]),
        ("Opening hours: 8 to 18\n\nWe close later.", [("", "Opening hours: 8 to 18"), ("", "We close later.")]),
        ("It is open\n\nWe close later.", [("", "It is open"), ("", "We close later.")]),
        ("# A page\n\nOne.\n\nPart\n----\n\nTwo.", [("A page", "One."), ("Part", "Two.")]),
        ("* Idle: 1\n* Some are bad. These\n  are:\n  * login\n* Others", [
            ("", "* Idle: 1"), ("", "* Some are bad. These\n  are:"), ("These are:", "* login"), ("", "* Others"),
        ]),
        ("* Idle: 1\n* Bad commands:\n  * before login: 3\n* Others: none", [
            ("", "* Idle: 1"), ("", "* Bad commands:"), ("Bad commands:", "* before login: 3"), ("", "* Others: none"),
        ]),
        ("weekly\n    Once a week. Day 0 is Sunday.\n\n    And so on.\n\nyearly\n    Once. A year.\n\nNext text.", [
            ("", "weekly\n    Once a week."), ("weekly", "Day 0 is Sunday."), ("weekly", "And so on."),
            ("", "yearly\n    Once."), ("yearly", "A year."), ("", "Next text."),
        ]),
    ],
    ids=[
        "numbered", "capitalised", "a value", "a year", "steps", "short words", "items", "an item with text", "a fact",
        "a sentence", "Markdown", "items of a sentence", "nested items", "terms",
    ],
)  # fmt: skip
def test_units__have_the_title_and_the_term_above_them(text: str, expected: list[tuple[str, str]]) -> None:
    assert [(unit.heading, unit.text) for unit in units(text)] == expected
