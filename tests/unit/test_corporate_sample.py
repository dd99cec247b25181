"""The corporate sample: the same documents each time, and questions about what stands in them."""

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.corporate import questions
from kosmos_rag.core.types import SourceDocument
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.headings import find_plain_headings

SCRIPT = Path(__file__).parents[2] / "examples" / "corporate" / "generate.py"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """The script, imported from where it lies."""
    spec = importlib.util.spec_from_file_location("corporate_generate", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sample__has_92_documents_with_the_paragraphs_of_each_department(generate: ModuleType) -> None:
    documents = list(generate.documents())
    assert Counter(document.department for document in documents) == {
        "hr": 12, "it": 16, "finance": 15, "security": 20, "general": 29,
    }  # fmt: skip
    paragraphs: Counter[str] = Counter()
    for document in documents:
        paragraphs[document.department] += sum(len(texts) for _, texts in document.sections)
    assert paragraphs == generate.PARAGRAPHS


def test_sample__is_the_same_each_time(generate: ModuleType, tmp_path: Path) -> None:
    paths = generate.write(tmp_path)
    assert Counter(path.suffix for path in paths) == {".pdf": 46, ".txt": 46}
    for path, document in list(zip(paths, generate.documents(), strict=True))[::5]:
        render = generate.write_pdf if path.suffix == ".pdf" else generate.write_text
        assert path.read_bytes() == render(document)


def test_sample__all_sections_are_found_in_both_formats(generate: ModuleType) -> None:
    for document in list(generate.documents())[:20]:
        expected = [heading.casefold() for heading, _ in document.sections]
        for name, data in (("a.pdf", generate.write_pdf(document)), ("a.txt", generate.write_text(document))):
            parsed = parse(SourceDocument(source=name, data=data))
            headings = parsed.headings or find_plain_headings(parsed.text)
            result = [heading.title.lstrip("0123456789. ").casefold() for heading in headings]
            assert [title for title in result if title in expected] == expected, (document.name, name)


def test_questions__are_about_sections_that_are_there(generate: ModuleType) -> None:
    sections = {f"{d.department}/{d.name}": [heading for heading, _ in d.sections] for d in generate.documents()}
    entries = questions()
    answerable = [question for question in entries if question.source]
    assert (len(answerable), len(entries)) == (60, 112)
    assert len({question.text for question in entries}) == len(entries)
    for question in answerable:
        assert question.section in sections[question.source or ""], question.text
