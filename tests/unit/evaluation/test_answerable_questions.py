"""Question sets that judge a cutover, as they are read."""

import math
from pathlib import Path

import pytest

from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline.embedding_quality import ndcg_at_10, read_answerable
from kosmos_rag.evaluation.offline.questions import Location, Question


def test_questions__of_the_sample_are_those_that_a_file_answers() -> None:
    result = read_answerable(Path(__file__).parents[3] / "examples" / "questions.yaml")
    assert result[0].text == "How is churn calculated?"
    (place,) = result[0].locations
    assert (place.source, place.section) == ("example_sql.md", "Churn Calculation")
    assert all(searches.locations[0].source.endswith(".md") for searches in result)


def test_ndcg__counts_no_place_that_is_judged_as_not_relevant() -> None:
    locations = (Location(source="wrong.md", grade=0), Location(source="right.md"))
    question = Question(id="1", text="Who?", locations=locations)
    rankings = [["wrong.md"], ["wrong.md", "right.md"], ["docs/right.md"]]
    assert [ndcg_at_10([ranking], [question]) for ranking in rankings] == pytest.approx([0, 1 / math.log2(3), 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {question: 'Who?', answerable: false}", "names the source of its answer"),
        ("- question: Who?\n", "must either name the location of its answer or have none"),
        ("question: Who?\nsource: a.md\n", "is not a list of questions"),
        ("- who\n", "is not a list of questions"),
        ("", "is not a list of questions"),
        ("- {", "line 1 is not YAML: .*; correct it there"),
        ("- question: a\n- {question: What?, source: a.md}", "line 2 is not YAML"),
    ],
)
def test_questions__that_are_another_thing_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "set.yaml"
    file.write_text(text)
    with pytest.raises(RequestError, match=message):
        read_answerable(file)
    with pytest.raises(RequestError, match="cannot be read"):
        read_answerable(tmp_path / "missing.yaml")
