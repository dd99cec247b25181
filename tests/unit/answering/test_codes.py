"""A unit about another building, error or version does not answer."""

import pytest

from kosmos_rag.answering.codes import find_codes, has_other_code
from kosmos_rag.answering.evidence import score_evidence
from kosmos_rag.answering.scorers import EmbeddingScorer
from kosmos_rag.models.testing.hashing import HashingEmbedder
from tests.unit.answering.passages import passage


@pytest.mark.parametrize(
    ("question", "text", "is_other"),
    [
        ("When does building B open?", "Building C opens at 8.", True),
        ("When does building b open?", "Buildings C and D open at 8.", True),
        ("When does building B open?", "Building B opens at 8, building C at 9.", False),
        ("When does building B open?", "Buildings A and B open at 8.", False),
        ("When does building B open?", "Buildings A to C open at 8.", False),
        ("When does building B open?", "It opens at 8.", False),
        ("Is building a house allowed?", "Building B is a house.", False),
        ("What does error E-102 mean?", "Error E-103 is a broken pump.", True),
        ("What does E-102 mean?", "E-103 is a broken pump.", True),
        ("What does error E103 mean?", "Error E102 is a leak.", True),
        ("Where is room 12a?", "Room 12b is on the left.", True),
        ("Where does State Route 168 end?", "State Route 99 ends in the north.", True),
        ("Where does State Route 168 end?", "Routes 99 and 168 end in the north.", False),
        ("Where is room 12?", "Rooms 10 to 20 are on the left.", False),
        ("Was regelt Artikel 6?", "Artikel 7 regelt die Einwilligung.", True),
        ("What happened in 2019?", "In 2020 it rained.", False),
        ("What was the revenue in Q2?", "The revenue of Q3 was high.", True),
        ("What was the revenue in Q2?", "The revenue has grown since Q1.", False),
        ("Is size L enough?", "Size M or larger is enough.", False),
        ("Is grade B enough?", "At least grade C is needed.", False),
        ("Is grade B enough?", "A minimum of grade C is needed.", False),
        ("Is class D safe?", "All above class C are safe.", False),
        ("Can I use Python 3.12?", "Python 3.10 or newer is required.", False),
        ("Can I use version v3?", "Version v2 or newer is required.", False),
        ("Is version v3 safe?", "Version v2 has a known fault.", False),
        ("Is PostgreSQL 15 supported?", "PostgreSQL 13+ is supported.", False),
        ("May someone of age 17 apply?", "Applicants must be of age 16 or older.", False),
        ("Does shipping cost 5 EUR?", "Shipping costs 4.90 EUR.", False),
        ("Is the delay 5s normal?", "The delay 8s is normal.", False),
        ("Can I return goods after day 20?", "Goods can be returned before day 30.", False),
        ("Wann \u00f6ffnet Geb\u00e4ude B?", "Geb\u00e4ude C \u00f6ffnet um 8.", True),
    ],
)
def test_has_other_code__compares_codes_after_one_name(question: str, text: str, is_other: bool) -> None:
    language = "german" if "Geb" in text or "Artikel" in text else "english"
    assert has_other_code(find_codes(question, language), text, language) is is_other


def test_score_evidence__gives_nothing_to_a_unit_about_another_building() -> None:
    gates = [
        passage("Building C opens at 8 in the morning.", section="Opening"),
        passage("It opens at 9 in the morning.", index=2, section="Building D"),
        passage("In building B the doors open at 7.", index=3, section="Opening"),
    ]
    scorer = EmbeddingScorer(HashingEmbedder(dimensions=512))
    evidence = score_evidence("When does building B open in the morning?", gates, scorer)
    assert [item.score > 0 for item in evidence] == [False, False, True]


def test_score_evidence__scores_the_unit_that_has_a_bound() -> None:
    client = [passage("Python 3.10 or newer is required to use the client.", section="Requirements")]
    (evidence,) = score_evidence(
        "Can I use the client with Python 3.12?", client, EmbeddingScorer(HashingEmbedder(dimensions=512))
    )
    assert evidence.score > 0
