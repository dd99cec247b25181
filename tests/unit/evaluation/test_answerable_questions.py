"""Question sets that judge a cutover, as they are read."""

from pathlib import Path

import pytest

from kosmos_rag.core.errors import RequestError
from kosmos_rag.evaluation.offline.embedding_quality import read_answerable


def test_questions__of_the_sample_are_those_that_a_file_answers() -> None:
    result = read_answerable(Path(__file__).parents[3] / "examples" / "questions.yaml")
    assert result[0].text == "How is churn calculated?"
    (place,) = result[0].locations
    assert (place.source, place.section) == ("example_sql.md", "Churn Calculation")
    assert all(searches.locations[0].source.endswith(".md") for searches in result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {question: 'Who?', answerable: false}", "names the source of its answer"),
        ("- question: Who?\n", "must either name the location of its answer or have none"),
        ("question: Who?\nsource: a.md\n", "is not a list of questions"),
        ("- who\n", "is not a list of questions"),
        ("", "is not a list of questions"),
        ("- {", "cannot be read"),
    ],
)
def test_questions__that_are_another_thing_are_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "set.yaml"
    file.write_text(text)
    with pytest.raises(RequestError, match=message):
        read_answerable(file)
    with pytest.raises(RequestError, match="cannot be read"):
        read_answerable(tmp_path / "missing.yaml")
