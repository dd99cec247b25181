"""Sets of questions whose answers are known word by word: XQuAD, TAT-QA, and documentation trees."""

import html
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.command import DATASETS
from benchmarks.documentation.trees import Tree, load_trees, quick_tree
from kosmos_rag import SourceDocument

LANGUAGES = {"en": "english", "de": "german", "es": "spanish", "zh": "simple"}
TREES = ("click", "supervisor", "hatch", "beets", "black", "khal")


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerQuestion:
    """A question with the document that answers it."""

    text: str
    source: str
    answers: tuple[str, ...]
    """Words of the answer; one of them is enough."""
    within: bool = False
    """Whether the question is only clear within its document, as on a page without the name of its company."""
    kind: str = ""
    is_line: bool = False
    """Whether the answer is a line of the document, which may have parts of two sentences: half of it is enough."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSet:
    """Documents with questions."""

    name: str
    documents: tuple[SourceDocument, ...]
    questions: tuple[AnswerQuestion, ...]


def load_sets(names: tuple[str, ...]) -> Iterator[AnswerSet]:
    """Yield the sets of these names; one whose data are absent is named and left out.

    Args:
        names: `xquad-en` and other languages, `tatqa`, a documentation tree, or `examples`, which needs no data.
    """
    for name in names:
        if name in TREES:
            yield from (_build_tree_set(tree) for tree in load_trees((name,)))
        elif name == "examples":
            yield _build_tree_set(quick_tree())
        else:
            folder = DATASETS / name.replace("-", "/")
            if folder.is_dir():
                yield _load_tatqa(folder / "pages.jsonl") if name == "tatqa" else _load_xquad(folder, name)
            else:
                print(f"{name} is left out: there is no folder {folder}")


def take_sample(answer_set: AnswerSet, size: int | None) -> AnswerSet:
    """Return the set with `size` evenly spaced questions; None for all."""
    count = len(answer_set.questions)
    if size is None or size >= count:
        return answer_set
    return replace(answer_set, questions=tuple(answer_set.questions[at * count // size] for at in range(size)))


def _build_tree_set(tree: Tree) -> AnswerSet:
    questions = tuple(
        AnswerQuestion(
            text=question.text, source=question.file, answers=(question.quote,), kind=question.kind, is_line=True
        )
        for question in tree.questions
        if question.kind in ("ordinary", "paraphrase")
    )
    documents = tuple(SourceDocument(source=path, data=data) for path, data in tree.files.items())
    return AnswerSet(name=tree.name, documents=documents, questions=questions)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _load_xquad(folder: Path, name: str) -> AnswerSet:
    language = LANGUAGES[folder.name]
    documents = tuple(
        SourceDocument(source=row["_id"], data=row["text"].encode(), language=language, media_type="text/plain")
        for row in _lines(folder / "corpus.jsonl")
    )
    answers = {row["_id"]: tuple(row["answers"]) for row in _lines(folder / "answers.jsonl")}
    rows = (line.split("\t") for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:])
    sources = {row[0]: row[1] for row in rows}
    questions = tuple(
        AnswerQuestion(text=row["text"], source=sources[row["_id"]], answers=answers[row["_id"]])
        for row in _lines(folder / "queries.jsonl")
    )
    return AnswerSet(name=name, documents=documents, questions=questions)


def _load_tatqa(path: Path) -> AnswerSet:
    documents, questions = [], []
    for page in _lines(path):
        source = page["table"]["uid"]
        documents.append(SourceDocument(source=source, data=_write_page(page).encode(), media_type="text/html"))
        questions += [
            AnswerQuestion(
                text=question["question"], source=source, answers=tuple(map(str, question["answer"])),
                within=True, kind=f"{question['answer_type']} from {question['answer_from']}",
            )
            for question in page["questions"]
            if question["answer_type"] in ("span", "multi-span")
        ]  # fmt: skip
    return AnswerSet(name="tatqa", documents=tuple(documents), questions=tuple(questions))


def _write_page(page: dict[str, Any]) -> str:
    paragraphs = "".join(f"<p>{html.escape(item['text'])}</p>\n" for item in page["paragraphs"])
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in page["table"]["table"]
    )
    return f"<html><body>\n<table>\n{rows}</table>\n{paragraphs}</body></html>\n"
