"""Sets of questions whose answers are known by words, line, section or document."""

import html
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Literal

import yaml

from benchmarks.command import DATASETS, EXAMPLES
from benchmarks.corporate import QUESTIONS as CORPORATE_QUESTIONS
from benchmarks.corporate import write_sample
from benchmarks.documentation.trees import Tree, load_trees, quick_tree
from kosmos_rag import SourceDocument

LANGUAGES = {"en": "english", "de": "german", "es": "spanish", "zh": "simple"}
TREES = ("click", "supervisor", "hatch", "beets", "black", "khal")


Place = Literal["words", "line", "section", "document"]
"""What is known of an answer: its words; a line, of which half is enough, as it may have parts of two sentences; its
section; or its document alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerQuestion:
    """A question with the documents that answer it."""

    text: str
    sources: tuple[str, ...]
    """The documents that answer it; none where nothing does."""
    answers: tuple[str, ...] = ()
    """Words, lines or titles of sections; one of them is enough."""
    place: Place = "words"
    within: bool = False
    """Whether the question is only clear within its document, as on a page without the name of its company."""
    kind: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerSet:
    """Documents with questions."""

    name: str
    documents: tuple[SourceDocument, ...]
    questions: tuple[AnswerQuestion, ...]


def load_sets(names: tuple[str, ...]) -> Iterator[AnswerSet]:
    """Yield the sets of these names; one whose data are absent is named and left out.

    Args:
        names: `xquad-en` and other languages, `tatqa`, `mtragun`, a documentation tree, a sample of examples/, or
            `examples`, which needs no data.
    """
    for name in names:
        if name in TREES:
            yield from (_build_tree_set(tree) for tree in load_trees((name,)))
        elif name == "examples":
            yield _build_tree_set(quick_tree())
        elif name in _SAMPLES:
            yield _SAMPLES[name]()
        elif (folder := DATASETS / name.replace("-", "/")).is_dir():
            yield _load_dataset(folder, name)
        else:
            print(f"{name} is left out: there is no folder {folder}")


def _load_dataset(folder: Path, name: str) -> AnswerSet:
    if name == "tatqa":
        return _load_tatqa(folder / "pages.jsonl")
    return _load_turns(folder / "turns.jsonl") if name == "mtragun" else _load_xquad(folder, name)


def take_sample(answer_set: AnswerSet, size: int | None) -> AnswerSet:
    """Return the set with `size` evenly spaced questions; None for all."""
    count = len(answer_set.questions)
    if size is None or size >= count:
        return answer_set
    return replace(answer_set, questions=tuple(answer_set.questions[at * count // size] for at in range(size)))


def _build_tree_set(tree: Tree) -> AnswerSet:
    questions = tuple(
        AnswerQuestion(
            text=question.text,
            sources=(question.file,) if question.file else (),
            answers=(question.quote,),
            kind=question.kind,
            place="line",
        )
        for question in tree.questions
        if question.kind in ("ordinary", "paraphrase", "unanswerable")
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
        AnswerQuestion(text=row["text"], sources=(sources[row["_id"]],), answers=answers[row["_id"]])
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
                text=question["question"], sources=(source,), answers=tuple(map(str, question["answer"])),
                within=True, kind=f"{question['answer_type']} from {question['answer_from']}",
            )
            for question in page["questions"]
            if question["answer_type"] in ("span", "multi-span")
        ]  # fmt: skip
    return AnswerSet(name="tatqa", documents=tuple(documents), questions=tuple(questions))


def _load_turns(path: Path) -> AnswerSet:
    """Load the last turns of conversations, asked alone, over the passages of all of them."""
    documents: dict[str, str] = {}
    questions = []
    for turn in _lines(path):
        passages = {context["document_id"]: context["text"] for context in turn["contexts"] if context["text"].strip()}
        documents |= passages
        (kind,) = turn["answerability"]
        questions.append(
            AnswerQuestion(
                text=" ".join(turn["input"][-1]["text"].split()),
                sources=() if kind == "UNANSWERABLE" else tuple(passages),
                place="document",
                kind=kind.lower(),
            )
        )
    return AnswerSet(
        name="mtragun",
        documents=tuple(
            SourceDocument(source=source, data=text.encode(), media_type="text/markdown")
            for source, text in documents.items()
        ),
        # Without passages nothing is known of the answer of the others.
        questions=tuple(item for item in questions if item.sources or item.kind == "unanswerable"),
    )


def _load_corporate() -> AnswerSet:
    """Write the corporate sample, and load its questions."""
    with tempfile.TemporaryDirectory() as folder:
        write_sample(Path(folder))
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(Path(folder).rglob("*.*"))}
    names = {PurePath(name).with_suffix("").as_posix(): name for name in files}
    return _build_sample("corporate", files, CORPORATE_QUESTIONS, names)


def _load_analytics() -> AnswerSet:
    files = {path.name: path.read_bytes() for path in sorted((EXAMPLES / "knowledge_base").glob("*.md"))}
    return _build_sample("analytics", files, EXAMPLES / "questions.yaml", {name: name for name in files})


_SAMPLES = {"corporate": _load_corporate, "analytics": _load_analytics}


def _build_sample(name: str, files: Mapping[str, bytes], questions: Path, names: Mapping[str, str]) -> AnswerSet:
    """Return a sample with its questions.

    Args:
        names: Source of a document by its name in the questions.
    """
    return AnswerSet(
        name=name,
        documents=tuple(SourceDocument(source=source, data=data) for source, data in files.items()),
        questions=tuple(
            AnswerQuestion(
                text=entry["question"],
                sources=(names[entry["source"]],) if entry.get("answerable", True) else (),
                answers=(entry["section"],) if "section" in entry else (),
                place="section",
                kind="answerable" if entry.get("answerable", True) else "unanswerable",
            )
            for entry in yaml.safe_load(questions.read_text(encoding="utf-8"))
        ),
    )


def _write_page(page: dict[str, Any]) -> str:
    paragraphs = "".join(f"<p>{html.escape(item['text'])}</p>\n" for item in page["paragraphs"])
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n" for row in page["table"]["table"]
    )
    return f"<html><body>\n<table>\n{rows}</table>\n{paragraphs}</body></html>\n"
