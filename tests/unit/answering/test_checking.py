"""Citations checked, whoever wrote the answer."""

import sys
from types import FrameType

import pytest

from kosmos_rag.answering import claims
from kosmos_rag.answering.abstention import REFUSAL
from kosmos_rag.answering.citation_check import check_citations, missing_fact
from kosmos_rag.answering.claims import StatedNumbers, find_contradiction, find_negated_word, is_negated
from kosmos_rag.answering.compose import render, sentence
from kosmos_rag.answering.evidence import score_evidence
from kosmos_rag.answering.scorers import EmbeddingScorer
from kosmos_rag.core.types import CitationReport
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.unit.answering.passages import passage

TRIAL = passage(
    "A trial is free for 14 days. Sales may extend it once, to 28 days at most. See `silver.trials`.", section="Trial"
)
REFUNDS = passage(
    "Money is returned by Finance Analytics on the day of `refunded_at`.\n\n"
    "```sql\nselect sum(amount_cents) from refunds;\n```\n\n| Table | Grain |\n|---|---|\n| refunds | One row |\n",
    index=2,
    section="Refunds",
)


def _check(text: str, citation_format: str = "[{index}]") -> CitationReport:
    return check_citations(
        text, [TRIAL, REFUNDS], embedder=HashingEmbedder(dimensions=512), citation_format=citation_format
    )


@pytest.mark.parametrize(
    "text",
    [
        "A trial is free for 14 days. [1]",
        "A trial is free for 14 days [1].",
        "[1] A trial is free for 14 days.",
        "A trial is free for 14 days. [1][2]",
        "A trial is free for 14 days. [1], [2]",
        "A trial is free for 14 days. ([1])",
        "Sales may extend a trial to 28 days. [1] Money is returned on the day of `refunded_at`. [2]",
        "```sql\nselect sum(amount_cents) from refunds;\n```\n\n[2]",
        "| refunds | One row | [2]",
        "Yes, a trial is free for 14 days. [1]",
        "# A trial is free [1]\n\nA trial is free for 14 days. [1]",
        "A trial is free for 14 days. [1]\n\n---\n",
    ],
)
def test_check__supports_what_stands_there(text: str) -> None:
    report = _check(text)
    assert report.supported, report.problems


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A trial is free for 15 days. [1]", "the number '15'"),
        ("A trial is free for 4 days. [1]", "the number '4'"),
        ("A trial is free for 14.5 days. [1]", "the number '14.5'"),
        ("A trial is free for 14 weeks. [1]", "'14 week' has another unit"),
        ("A trial is not free for 14 days. [1]", "it is negated"),
        ("Sales can't extend a trial to 28 days. [1]", "it is negated"),
        ("Sales may never extend it to 28 days. [1]", "it is negated"),
        ("A trial is free for 14 days in `gold.trials`. [1]", "the quoted 'gold.trials'"),
        ("A trial is free for 14 days in trial_days. [1]", "the identifier 'trial_days'"),
        ("It is free for 14 days, as Marketing may extend a trial. [1]", "the name 'Marketing'"),
        ("A trial is free, see https://evil.example/x. [1]", "the link 'https://evil.example/x"),
        ("A trial is free ![x](http://evil.example/?q=1) for 14 days. [1]", "the link"),
        ("The penguins swim towards distant icebergs. [1]", "0% of its words"),
        ("A trial is free for 14 days. [2]", "the number '14'"),
        ("CANARY-X A trial is free for 14 days. [1]", "the word 'CANARY-X'"),
        ("$$CANARY$$\nA trial is free for 14 days. [1]", "the word 'CANARY'"),
        ("k4n4ry a trial is free for 14 days. [1]", "the word 'k4n4ry'"),
        ("Marketing may extend it once. [1]", "the word 'Marketing'"),
        ("- Sales may extend it. Marketing may extend it once. [1]", "the word 'Marketing'"),
        ("# The vault password is CANARY [1]", "the name 'CANARY'"),
    ],
)
def test_check__refuses_what_is_made_up(text: str, reason: str) -> None:
    (problem,) = _check(text).problems
    assert problem.verdict == "unsupported"
    assert problem.reason is not None
    assert problem.reason.startswith(reason)


def test_check__refuses_what_leaves_out_a_negation() -> None:
    refund = passage("A refund does not lower MRR in the month. Der Umsatz sinkt dadurch nicht.", section="Refunds")
    for claim, reason in (
        ("A refund does lower MRR in the month. [1]", "the cited passages negate it"),
        ("Der Umsatz sinkt dadurch. [1]", "the cited passages negate it"),
    ):
        report = check_citations(claim, [refund], embedder=HashingEmbedder(dimensions=512), citation_format="[{index}]")
        assert [problem.reason for problem in report.problems] == [reason]
    text = "A refund does not lower MRR. [1] Der Umsatz sinkt nicht. [1]"
    report = check_citations(text, [refund], embedder=HashingEmbedder(dimensions=512), citation_format="[{index}]")
    assert report.supported, report.problems


@pytest.mark.parametrize(
    ("claim", "evidence", "quantity"),
    [
        ("It takes 5 %.", "It takes 5 minutes.", "5 percent"),
        ("It costs $5.", "It costs 5 €.", "5 dollar"),
        ("It rose by 5 percentage points.", "It rose by 5 %.", "5 point"),
        ("Es dauert 3 Wochen.", "It takes 3 days.", "3 week"),
        ("It takes 14 days.", "Es dauert 14 Tage.", None),
        ("It costs 500 euros.", "| Half rack | 500 |", None),
        ("A 14-day trial.", "Free for 14 days, or 14 weeks.", None),
        ("It has 5 wheels.", "It has 5 doors.", None),
        ("It rose by 12 points.", "It rose by 12 %.", "12 point"),
        ("It rose to 3.4 billion EUR.", "It rose to 3.4 million EUR.", "3.4 billion"),
        ("It rose to 3.4 million USD.", "It rose to 3.4 million EUR.", "3.4 dollar"),
        ("It rose to €3.4 million.", "It rose to 3.4 million EUR.", None),
        ("It takes two weeks.", "It takes 2 months.", "2 week"),
        ("Es sind 5 Punkte.", "Es sind 5 Prozentpunkte.", None),
        ("It costs 2 000 dollars.", "It costs 2,000 euros.", "2000 dollar"),
    ],
)
def test_find_other_unit__names_a_number_in_another_unit(claim: str, evidence: str, quantity: str | None) -> None:
    assert StatedNumbers(evidence).find_other_unit(claim) == quantity


@pytest.mark.parametrize(
    ("claim", "evidence", "number"),
    [
        ("It costs $1850.", "It costs $1,850.", None),
        ("Es kostet 1250,50 Euro.", "Es kostet 1.250,50 Euro.", None),
        ("It costs 18,500.", "It costs 1,850.", "18,500"),
        ("It takes 2.5 minutes.", "It takes 2,5 minutes.", None),
        ("It takes 125 minutes.", "It takes 0.125 minutes.", "125"),
        ("It takes 1.125 minutes.", "It takes 1,125 minutes.", "1.125"),
        ("Es dauert 1.125 Minuten.", "It takes 1,125 minutes.", None),
        ("Es dauert 1.125 Minuten.", "Es dauert 1,125 Minuten.", "1.125"),
        ("In total: 1.125 minutes.", "Das ist die Dauer: 1.125 Minuten.", None),
        ("It costs 3.5 euros.", "It costs 3.50 euros.", None),
        ("It costs 3.5 euros.", "It costs EUR 3.50.", None),
        ("Es kostet 3,5 Euro.", "Der Preis ist 3,50.", None),
        ("It needs Python 3.1.", "It needs Python 3.10.", "3.1"),
        ("It is in version 3.1.", "It came with release 3.10.", "3.1"),
        ("It runs at 2:30.", "It runs at 02:30.", None),
        ("It runs at 10.", "It runs at 10:30.", "10"),
        ("It ends on 4 May.", "It ends on 2026-05-04.", None),
        ("It ends on 2026-04-05.", "It ends on 2026-05-04.", "2026-04-05"),
        ("It takes 4-8 days.", "It takes between four and eight days.", None),
        ("Three of thirteen are left.", "3 of 12 are left.", "thirteen"),
        ("Es dauert zwei Tage.", "Es dauert 2 Tage.", None),
        ("Es dauert drei Tage.", "Es dauert 2 Tage.", "drei"),
        ("Drei Tage.", "Das dauert 2 Tage, und der Rest ist frei.", "Drei"),
        ("Los diecis\u00e9is d\u00edas.", "The 15 days.", "diecis\u00e9is"),
        ("A DoS attack is blocked.", "Attacks of this kind are blocked.", None),
        ("The ACHT and the TEN are blocked.", "They are blocked.", None),
        ("An elf is blocked.", "It is blocked.", None),
        ("Use two-factor logins.", "Use strong logins.", None),
        ("See the 14th.", "See the 14th.", None),
        ("It has 1 000 000 rows.", "It has 1,000,000 rows.", None),
        ("It has 1000000 rows.", "It has 1 000 000 rows.", None),
        ("Es kostet 1 250,50 Euro.", "Es kostet 1.250,50 Euro.", None),
        ("It has 1 000 000 rows.", "It has 1 000 rows, and 000 is a code.", "1\u00a0000\u00a0000"),
        ("It has 100 seats.", "Room 5 100 seats", None),
        ("It began in 2024 with 300.", "In 2024 300 people began.", None),
        ("In chapter 3 200 pages are listed.", "Chapter 3 lists 200 pages.", None),
        ("By line 12 450 riders travel.", "450 riders travel by line 12.", None),
        ("In chapter 3 250 pages are listed.", "Chapter 3 lists 200 pages.", "3\u00a0250"),
        ("It costs 3 200 euros.", "It costs 3 euros for 200 pages.", "3\u00a0200"),
    ],
)
def test_find_missing_number__compares_values(claim: str, evidence: str, number: str | None) -> None:
    assert StatedNumbers(evidence).find_missing(claim) == number


def test_check__keeps_a_number_with_no_break_spaces_whole() -> None:
    for space in "\u00a0\u202f":
        price = passage(f"Das Ger\u00e4t kostet 1{space}850 Euro.", section="Preise")
        for number in (f"1{space}850", "1850"):
            report = check_citations(
                f"Das Ger\u00e4t kostet {number} Euro. [1]",
                [price],
                embedder=HashingEmbedder(dimensions=512),
                citation_format="[{index}]",
            )
            assert report.supported, report.problems


def test_missing_fact__reads_the_numbers_of_the_evidence_once() -> None:
    evidence = "The rates are " + " ".join(map(str, range(1000, 2000)))
    claim = "The rates are " + " ".join(map(str, range(1000, 1100)))
    calls = 0

    def count_calls(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == claims.__file__

    sys.setprofile(count_calls)
    try:
        assert missing_fact(claim, evidence, claims.StatedNumbers(evidence)) is None
    finally:
        sys.setprofile(None)
    assert 1000 <= calls <= 10 * 1100  # once for each number of the claim: 100,000


def test_check__takes_a_number_from_where_something_similar_is_said() -> None:
    budget = passage(
        "Work from abroad is limited to 30 days. Ask the people team 14 days earlier.", section="Equipment 2026"
    )

    def check(text: str) -> list[str | None]:
        embedder = HashingEmbedder(dimensions=512)
        report = check_citations(text, [budget], embedder=embedder, citation_format="[{index}]")
        return [sentence.reason for sentence in report.sentences]

    assert check("Work from abroad is limited to 14 days. [1]") == [
        "the number '14' is not where the cited passages say something similar"
    ]
    assert check("Work from abroad is limited to 30 days in 2026. [1]") == [None]


@pytest.mark.parametrize(
    ("text", "negated"),
    [
        ("It doesn\u2019t end.", True),
        ("Es endet nie.", True),
        ("It takes no more than\nfive days.", False),
        ("Es gilt nicht nur heute.", False),
        ("A note on knots.", False),
    ],
)
def test_is_negated__reads_words_and_no_comparisons(text: str, negated: bool) -> None:
    assert is_negated(text) is negated


@pytest.mark.parametrize(
    ("claim", "evidence", "words"),
    [
        ("Logins are enabled.", "Logins are disabled.", ("enabled", "disabled")),
        ("Dogs are allowed.", "Dogs are forbidden.", ("allowed", "forbidden")),
        ("It increases latency.", "It lowers latency.", ("increases", "lowers")),
        ("Hunde sind erlaubt.", "Hunde sind verboten.", ("erlaubt", "verboten")),
        ("Die Miete steigt.", "Die Miete sinkt.", ("steigt", "sinkt")),
        ("Das ist unzul\u00e4ssig.", "Das ist zul\u00e4ssig.", ("unzul\u00e4ssig", "zul\u00e4ssig")),
        ("It takes at most 5 days.", "It takes at least 5 days.", ("at most", "at least")),
        ("Admins cannot delete public files.", "Admins can delete private files.", ("public", "private")),
        ("You cannot increase the limit.", "You can reduce the limit.", ("increase", "reduce")),
        ("You can not increase the limit.", "You can reduce the limit.", ("increase", "reduce")),
        ("You can't increase the limit.", "You can reduce the limit.", ("increase", "reduce")),
        ("The limit is reduced.", "The limit is not increased.", ("reduced", "increased")),
        ("Dogs are not allowed.", "Dogs are not forbidden.", ("allowed", "forbidden")),
        ("No public files are deleted.", "Private files are deleted.", ("public", "private")),
    ],
)
def test_find_contradiction__names_words_of_opposite_meanings(
    claim: str, evidence: str, words: tuple[str, str]
) -> None:
    assert find_contradiction(claim, evidence) == "it says {!r}, and the cited passages {!r}".format(*words)


@pytest.mark.parametrize(
    ("claim", "evidence"),
    [
        ("Logins are enabled.", "Logins can be enabled or disabled."),
        ("It takes five days.", "It takes no more than five days."),
        ("The parameter is required.", "The option must be given."),
        ("It is important.", "It is for the export."),
        ("The publication takes two days.", "Confidential drafts are published in two days."),
        ("The success is clear.", "It failed three successive times."),
        ("A report is approved before it is published.", "A report is published after it is approved."),
        ("Bob bought the house from Alice.", "Alice sold the house to Bob."),
        ("Plan A is more expensive than plan B.", "Plan B costs less than plan A."),
        ("The minimum age is 16.", "Most courses admit people from the age of 16."),
        ("Keep it short.", "It may be as long as five lines."),
        ("The rate was raised to 5 %.", "The rate, lower in 2023, is 5 %."),
        ("A name is not optional.", "A name is required."),
        ("The office does not allow dogs.", "Dogs are forbidden in the office."),
        ("No dogs are allowed.", "Dogs are forbidden."),
        ("Dogs are forbidden.", "Dogs aren\u2019t allowed, without exception."),
        ("Hunde sind verboten.", "Es sind keine Hunde erlaubt."),
        ("MRR does not rise.", "MRR falls."),
        ("Accounts that are not active are deleted.", "Inactive accounts are deleted."),
    ],
)
def test_find_contradiction__passes_what_says_the_same(claim: str, evidence: str) -> None:
    assert find_contradiction(claim, evidence) is None


def test_check__refuses_an_antonym_unless_it_is_negated() -> None:
    rules = passage("Dogs are forbidden in the office.", section="Rules")

    def check(text: str) -> list[str | None]:
        embedder = HashingEmbedder(dimensions=512)
        report = check_citations(text, [rules], embedder=embedder, citation_format="[{index}]")
        return [sentence.reason for sentence in report.sentences]

    assert check("Dogs are allowed in the office. [1]") == ["it says 'allowed', and the cited passages 'forbidden'"]
    assert check("Dogs are not allowed in the office. [1]") == [None]
    assert check("Dogs are not forbidden in the office. [1]") == ["it is negated, and the cited passages are not"]


def test_check__flags_what_cites_nothing() -> None:
    first, second = _check("A trial is free for 14 days. Sales may extend it to 28 days. [1]").sentences
    assert (first.verdict, first.reason) == ("uncited", "it has no citation")
    assert second.verdict == "supported"


TRUE = "A trial is free for 14 days. [1]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"# The password is X\n\n{TRUE}", "# The password is X"),
        (f"{TRUE}\n\n# The password is X", "# The password is X"),
        (f"{TRUE}\n### The password\n", "### The password"),
        (f"| The password is X |\n|---|\n\n{TRUE}", "| The password is X |"),
        (f"{TRUE}\n\n# A trial is free\n\n# Trial\n\n{TRUE}", "# A trial is free"),
        (f"# The vault password is swordfish\n\n{TRUE}", "# The vault password is swordfish"),
        (f"**Refunds**\n\n{TRUE}", "**Refunds**"),
        (f"{TRUE}\n\n| The password is X |\n|---|\n| refunds | One row | [2]", "| The password is X |"),
    ],
)
def test_check__flags_headings_and_heads_of_tables_that_cite_nothing(text: str, message: str) -> None:
    (problem,) = _check(text).problems
    assert (problem.verdict, problem.text) == ("uncited", message)


@pytest.mark.parametrize(
    "head",
    [
        "**Refunds are not allowed within 30 days.**",
        "**Refunds are not allowed within 30 days**",
        "**Refunds are forbidden within 30 days.**",
        "**Refunds are forbidden within 30 days**",
        "**Refunds are allowed within 30 days.**",
        "**Refunds of fees are allowed**",
        "# No refunds within 30 days",
    ],
)
def test_check__flags_statements_in_the_form_of_a_heading(head: str) -> None:
    refunds = passage(
        "Refunds are allowed within 30 days of the purchase.\n\nRefunds of fees are not allowed.", section="Refunds"
    )
    report = check_citations(
        f"{head}\n\nRefunds are allowed within 30 days of the purchase. [1]",
        [refunds],
        embedder=HashingEmbedder(dimensions=512),
        citation_format="[{index}]",
    )
    assert [(problem.verdict, problem.text) for problem in report.problems] == [("uncited", head)]


def test_check__supports_headings_above_what_is_not_allowed() -> None:
    for head in ("# Refunds of fees", "# Are refunds of fees allowed?", "# Why are refunds of fees not allowed?"):
        report = check_citations(
            f"{head}\n\nRefunds of fees are not allowed. [1]",
            [passage("Refunds of fees are not allowed.", section="Refunds")],
            embedder=HashingEmbedder(dimensions=512),
            citation_format="[{index}]",
        )
        assert report.supported, report.problems


def test_check__supports_headings_in_words_of_what_is_cited_below() -> None:
    for head in ("# Free trial", "## How long is a trial free?", "**Trial:**", "**Trial**:", "## Summary"):
        report = _check(f"{head}\n\n{TRUE}\n\n### Refunds\n\nMoney is returned on the day of `refunded_at`. [2]")
        assert report.supported, report.problems


def test_check__flags_a_marker_of_no_passage() -> None:
    (problem,) = _check("A trial is free for 14 days. [1][7]").problems
    assert (problem.verdict, problem.reason, problem.markers) == ("unresolved", "there is no passage 7", (1, 7))


def test_check__gives_each_sentence_its_own_markers() -> None:
    report = _check("[1] A trial is free.\n\n[2] Money is returned.\n\nSales may extend it. [1] [2]")
    assert [(message.text, message.markers) for message in report.sentences] == [
        ("A trial is free.", (1,)),
        ("Money is returned.", (2,)),
        ("Sales may extend it.", (1, 2)),
    ]


def test_check__reads_markers_of_the_configured_form() -> None:
    assert _check("A trial is free for 14 days. (source 1)", "(source {index})").supported
    assert not _check("A trial is free for 14 days. [1]", "(source {index})").supported


def test_check__of_a_refusal_has_nothing_to_say() -> None:
    report = _check(REFUSAL)
    assert report.sentences == ()
    assert not report.supported


def test_check__supports_what_we_compose() -> None:
    embedder = HashingEmbedder(dimensions=512)
    sentences = [
        sentence(item) for item in score_evidence("How long is a trial?", [TRIAL, REFUNDS], EmbeddingScorer(embedder))
    ]
    assert len(sentences) == 6
    assert _check(render(sentences)).supported


@pytest.mark.parametrize(
    ("claim", "evidence", "bound"),
    [
        ("At least 100 clients may connect.", "At most 100 clients may connect.", "At least 100"),
        ("A join has more than 64 tables.", "It does not support a join of more than 64 tables.", "more than 64"),
        ("A join has up to 64 tables.", "It does not support a join of more than 64 tables.", None),
        ("At least 30 days pass.", "It must not be less than 30 days.", None),
        ("At most 30 days pass.", "It must not be less than 30 days.", "At most 30"),
        ("They need at least 3 sponsors.", "Guests who do not vote need at least 3 sponsors.", None),
        ("They need at most 3 sponsors.", "They need at least 3 sponsors. No guest votes.", "at most 3"),
        ("Como máximo 5 usuarios.", "Se permiten al menos 5 usuarios.", "Como máximo 5"),
        ("Au plus 5 personnes.", "Au moins 5 personnes.", "Au plus 5"),
        ("Al massimo 5 persone.", "Almeno 5 persone.", "Al massimo 5"),
        ("Es dauert mindestens 3 Tage.", "Es dauert höchstens drei Tage.", "mindestens 3"),
        ("At least 2 must agree.", "At least 2 must agree, in at most 2 days.", None),
        ("At least 5 days pass.", "It is open for 5 days.", None),
    ],
)
def test_find_other_bound__compares_bounds_of_one_number(claim: str, evidence: str, bound: str | None) -> None:
    assert StatedNumbers(evidence).find_other_bound(claim) == bound


@pytest.mark.parametrize(
    ("claim", "evidence", "word"),
    [
        ("One repository is recommended.", "One is possible. It is not recommended for security.", "recommend"),
        ("It moves the file.", "It copies the file instead of moving it.", "move"),
        ("It does not move the file.", "It copies the file instead of moving it.", None),
        ("Files are moved.", "Old files are moved. New ones are not moved.", None),
        ("Sie sehen die Daten.", "Gäste haben keinen Zugriff auf die Daten.", None),
    ],
)
def test_find_negated_word__compares_all_occurrences(claim: str, evidence: str, word: str | None) -> None:
    assert find_negated_word(claim, evidence) == word


@pytest.mark.parametrize(
    ("claim", "evidence", "is_supported"),
    [
        ("Transactions of several statements are not allowed.", "Transactions of statements are disallowed.", True),
        ("Transactions of several statements are allowed.", "Transactions of statements are disallowed.", False),
        ("Logs are discarded after 7 days.", "Logs are kept for 7 days.", True),
        ("Die Ware wird am selben Tag geliefert.", "Die Ware wird noch am selben Tag geliefert.", True),
        ("Stop the pump.", "1. Open the valve\n\n2. Stop the pump\n\nThen call the office.", True),
        ("Guests need at most 3 sponsors.", "Guests who do not vote need at least 3 sponsors.", False),
        ("Gäste brauchen höchstens 3 Bürgen.", "Gäste die nicht wählen brauchen mindestens 3 Bürgen.", False),
        ("Gäste brauchen höchstens 3 Bürgen.", "Gäste die nicht wählen brauchen mehr als 3 Bürgen.", False),
        ("Mehrere Kunden teilen den Pool.", "Die Kunden teilen den Pool.", True),
        ("It supports a join of at most 64 tables.", "It does not support a join of more than 64 tables.", True),
        ("It supports a join of at least 64 tables.", "It does not support a join of more than 64 tables.", False),
        ("One shared repository is recommended.", "One shared repository is safe. It is not recommended.", False),
        ("Several clients share a pool.", "The clients share a pool.", True),
        ("Die Mieten der Wohnungen steigen mit dem Index.", "Die Miete der Wohnung steigt mit dem Index.", True),
    ],
)
def test_check__compares_bounds_and_negated_words(claim: str, evidence: str, is_supported: bool) -> None:
    report = check_citations(
        f"{claim} [1]",
        [passage(evidence)],
        embedder=HashingEmbedder(dimensions=512),
        citation_format="[{index}]",
    )
    assert report.supported is is_supported, report.problems
