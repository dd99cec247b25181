"""Headings of reStructuredText, AsciiDoc, Org and LaTeX, and text that matches the file."""

import pytest

from kosmos_rag.core.types import ParsedDocument, SourceDocument
from kosmos_rag.parsing import parse


def parse_named(source: str, text: str) -> ParsedDocument:
    return parse(SourceDocument(source=source, data=text.encode()))


RST = """\
.. _top:

=====
Guide
=====

Words::

    Not a title
    -----------

Install
-------

=====  =====
A      B
=====  =====
1      2
=====  =====

On Linux
~~~~~~~~

A term
  Its meaning.

----

Use
-------------
* one
"""
ADOC = """\
= The Guide
:toc:

Words.

== Install ==

[source,sh]
----
== not a title
----

.Caption
====
Example text.
====

=== On Linux

////
== hidden
////

== Use
"""
ORG = """\
#+TITLE: The Guide
#+DATE: 2026-01-31

* TODO [#A] Install   :shell:linux:
** On Linux
Words * here.
*bold* no title
* DONE Use
"""
TEX = r"""
\documentclass{article}
\title{The \emph{Guide} \\ of 50\% \thanks{All}}
% \section{No}
\begin{document}
\section[Short]{Install \label{sec:i} on {\bf Linux}}
Words. 5\% \subsection*{Costs~of 5\$}
\begin{verbatim}
\section{No}
\end{verbatim}
\section{Use}
\section{never closed
\end{document}
"""


@pytest.mark.parametrize(
    ("source", "text", "title", "headings"),
    [
        ("a.rst", RST, "Guide", [(1, "Guide", 4), (2, "Install", 12), (3, "On Linux", 21), (2, "Use", 29)]),
        ("a.adoc", ADOC, "The Guide", [(1, "The Guide", 1), (2, "Install", 6), (3, "On Linux", 18), (2, "Use", 24)]),
        ("a.org", ORG, "The Guide", [(1, "Install", 4), (2, "On Linux", 5), (1, "Use", 8)]),
        (
            "a.tex",
            TEX,
            "The Guide of 50%",
            [(3, "Install on Linux", 6), (4, "Costs of 5$", 7), (3, "Use", 11)],
        ),
    ],
)
def test_parse_markup__headings_title_and_lines(
    source: str, text: str, title: str, headings: list[tuple[int, str, int]]
) -> None:
    parsed = parse_named(source, text)
    assert parsed.text == text
    assert parsed.title == title
    assert [(h.level, h.title, parsed.find_line(h.start)) for h in parsed.headings] == headings


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a.rst", "A long title\n==\n"),
        ("a.rst", "Words of a\nparagraph\n---------\n"),
        ("a.rst", "====\n----\n"),
        ("a.adoc", "====== \n=======Seven\nwords\n"),
        ("a.org", "*bold* words\n,* escaped\n"),
        ("a.tex", "100\\% of \\sectional{x} \\section{" + "x" * 2_000 + "}"),
    ],
)
def test_parse_markup__what_is_no_heading(source: str, text: str) -> None:
    assert parse_named(source, text).headings == ()


SIMPLE = """\
===== =====
Plan  Seats
      of it
===== =====
Basic    15
===== =====
"""
GRID = """\
+-------+-------+
| Plan  | Seats |
+=======+=======+
| Basic | 15    |
+-------+-------+
"""
BLOCK = """\
|===
|Plan |Seats

|Basic |15
|===
"""
RULED = """\
| Plan  | Seats |
|-------+-------|
| Basic |    15 |
"""


@pytest.mark.parametrize(
    ("source", "table", "names", "body"),
    [
        ("a.rst", SIMPLE, "Plan | Seats of it", "Basic    15\n===== ====="),
        ("a.rst", GRID, "Plan | Seats", "| Basic | 15    |\n+-------+-------+"),
        ("a.adoc", BLOCK, "Plan | Seats", "\n|Basic |15\n|==="),
        ("a.org", RULED, "Plan | Seats", "| Basic |    15 |"),
    ],
)
def test_parse_markup__tables(source: str, table: str, names: str, body: str) -> None:
    parsed = parse_named(source, f"Words.\n\n{table}\nMore words.\n")
    [span] = parsed.tables
    assert span.context == (names,)
    assert parsed.text[span.start : span.end] == table.rstrip("\n")
    assert parsed.text[span.body : span.end] == body


@pytest.mark.parametrize(
    ("source", "table"),
    [
        ("a.rst", "==== ====\n1    2\n==== ===="),
        ("a.rst", "+---+---+\n| 1 | 2 |\n+---+---+"),
        ("a.adoc", "|===\n|1 |2\n|==="),
    ],
)
def test_parse_markup__tables_without_a_header(source: str, table: str) -> None:
    [span] = parse_named(source, f"Words.\n\n{table}\n\nMore\n").tables
    assert (span.context, span.end - span.start) == ((), len(table))


@pytest.mark.parametrize("text", ["==== ====\nwords that go on\n", "|===\n|a |b\n", "+---+\n", "=== ==\nx\n== ===\n"])
def test_parse_markup__no_tables(text: str) -> None:
    assert not [
        table for name in ("a.rst", "a.adoc", "a.org") for table in parse_named(name, text).tables if table.context
    ]
