"""Known items by words alone: scripts without spaces, words without accents, and words with a typo.

    python -m benchmarks.known_items [--data FOLDER] [--json FILE] [--quick]

The documents are the messages of Django's translations (BSD-3-Clause), which pip downloads: each message is a
document, each language a collection. With a set in the BEIR layout, its titles ask for its documents too. No model is
used, and no setting is chosen on these questions.

- Scripts: each question is a run of letters that one message has, or two short runs that one message has together. The
  collection has the default language.
- Accents: each question is a message of three to eight words without its accents.
- Typos: each question is such a message, or its two longest words, with one random edit in one word: a letter is left
  out, inserted, replaced or swapped with the next. `unchanged` is the share of questions without a typo whose hits are
  the same with `fuzzy: false`.
"""

import ast
import random
import re
import tarfile
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.beir import load
from benchmarks.command import DATASETS, EXAMPLES, MODEL, command, parse, temporary_folder, write_results
from benchmarks.documentation.trees import fetch
from kosmos_rag import Engine, Settings, SourceDocument, Tenant
from kosmos_rag.models.testing.hashing import HashingEmbedder

DISTRIBUTION = "django==5.2.8"
SHA256 = "23254866a5bb9a2cfa6004e8b809ec6246eba4b58a7589bc2772f1bcc8456c7f"
SCRIPTS = {"zh_Hans": 3, "zh_Hant": 3, "ja": 4, "ko": 3, "th": 6}
"""Letters of a run, by language: those of a word, about."""
LANGUAGES = {"en": "english", "de": "german", "fr": "french", "es": "spanish", "ru": "russian", "el": "greek"}
"""Text search configuration of each language."""
QUESTIONS = 100
"""Questions of each kind and language, at most."""
_MESSAGE = re.compile(r'^msgid ((?:"[^\n]*"\n)+)msgstr ((?:"[^\n]*"\n?)+)', re.MULTILINE)
_PLACEHOLDER = re.compile(r"%\(\w+\)\w|%\w|\{\w+\}")
_RUN = re.compile("[\u0e00-\u0e7f]+|[\uac00-\ud7a3]+|[\u3041-\u30ff\u4e00-\u9fff]+")
"""A run of Thai, Korean, Japanese or Chinese letters."""
_WORD = re.compile(r"[^\W\d_]{4,}")
_LETTER_SHARE = 0.005
"""Least share of a letter of a language."""
_WORDS = range(3, 9)
"""Words of a message that is a question."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """A question, and the document that it is about."""

    question: str
    source: str


def read_messages(languages: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the distinct messages of each language by a name for each; those of `en` are the originals."""
    messages: dict[str, list[str]] = {language: [] for language in languages}
    with tarfile.open(fetch(DISTRIBUTION, SHA256)) as members:
        for member in members:
            for language in languages:
                # The originals are the keys of any translation.
                folder = "de" if language == "en" else language
                if member.name.endswith(f"/locale/{folder}/LC_MESSAGES/django.po"):
                    content = members.extractfile(member)
                    assert content is not None
                    pairs = _MESSAGE.findall(content.read().decode())
                    messages[language] += [_unquote(pair[0 if language == "en" else 1]) for pair in pairs]
    return {
        language: {f"{language}/{number:03}": text for number, text in enumerate(dict.fromkeys(filter(None, texts)))}
        for language, texts in messages.items()
    }


def _unquote(lines: str) -> str:
    text = "".join(ast.literal_eval(line) for line in lines.strip().splitlines())
    return " ".join(_PLACEHOLDER.sub(" ", text).split())


def ask_for_runs(texts: Mapping[str, str], letters: int, *, runs: int, dice: random.Random) -> list[Item]:
    """Return questions of runs of letters that only one text has all of.

    Args:
        texts: Texts by source.
        letters: Letters of a run.
        runs: Runs of a question.
        dice: Chooses the runs.
    """
    items = []
    for source, text in texts.items():
        parts = [run[at : at + letters] for run in _RUN.findall(text) for at in range(len(run) - letters + 1)]
        if len(parts) < runs * letters:
            continue
        chosen = dice.sample(parts, runs)
        if sum(all(part in other for part in chosen) for other in texts.values()) == 1:
            items.append(Item(question=" ".join(chosen), source=source))
    return dice.sample(items, min(QUESTIONS, len(items)))


def ask_without_accents(questions: Mapping[str, str], dice: random.Random) -> list[tuple[Item, Item]]:
    """Return questions with and without their accents; those without any are left out.

    Args:
        questions: A text about each document, by source.
        dice: Chooses the questions.
    """
    items = []
    for source, text in questions.items():
        letters = unicodedata.normalize("NFD", text)
        plain = "".join(letter for letter in letters if not unicodedata.combining(letter))
        if plain != text:
            items.append((Item(question=text, source=source), Item(question=plain, source=source)))
    return dice.sample(items, min(QUESTIONS, len(items)))


def mistype(word: str, alphabet: str, dice: random.Random) -> str:
    """Return a word with one random edit, in letters of its script."""
    letters = [letter for letter in alphabet if _script(letter) == _script(word[0])]
    while True:
        at, letter = dice.randrange(len(word)), dice.choice(letters)
        edited = dice.choice(
            [
                word[:at] + word[at + 1 :],
                word[:at] + letter + word[at:],
                word[:at] + letter + word[at + 1 :],
                word[:at] + word[at + 1 : at + 2] + word[at] + word[at + 2 :],
            ]
        )
        if edited != word:
            return edited


def _script(letter: str) -> str:
    return unicodedata.name(letter).partition(" ")[0]


def ask_with_typos(
    questions: Mapping[str, str], *, pairs: bool, alphabet: str, dice: random.Random
) -> list[tuple[Item, Item]]:
    """Return questions without and with a typo.

    Args:
        questions: A text about each document, by source.
        pairs: Whether a question is the two longest words of the text, and not all of it.
        alphabet: Letters to insert.
        dice: Chooses questions, words and edits.
    """
    items = []
    for source, text in questions.items():
        words = _WORD.findall(text)
        if len(words) < 2:
            continue
        question = " ".join(sorted(words, key=len)[-2:]) if pairs else text
        word = dice.choice(_WORD.findall(question))
        typo = question.replace(word, mistype(word, alphabet, dice), 1)
        items.append((Item(question=question, source=source), Item(question=typo, source=source)))
    return dice.sample(items, min(QUESTIONS, len(items)))


def success(tenant: Tenant, items: Sequence[Item]) -> dict[str, float]:
    """Return the shares of questions with their document first and among the first five."""
    sources = [[hit.source for hit in tenant.search(item.question, 5, syntax="plain").hits] for item in items]
    return {
        f"s@{k}": round(sum(item.source in hits[:k] for item, hits in zip(items, sources, strict=True)) / len(items), 3)
        for k in (1, 5)
    }


def unchanged(tenant: Tenant, exact: Tenant, items: Sequence[Item]) -> float:
    """Return the share of questions that both answer with the same hits and scores."""
    same = 0
    for item in items:
        hits, others = (
            [(hit.chunk_id, hit.score) for hit in scope.search(item.question, 10, syntax="plain").hits]
            for scope in (tenant, exact)
        )
        same += hits == others
    return round(same / len(items), 3)


def _alphabet(texts: Mapping[str, str]) -> str:
    """Return the letters of the texts; rare ones are of other languages."""
    letters = Counter(letter for text in texts.values() for letter in text.lower() if letter.isalpha())
    return "".join(sorted(letter for letter, count in letters.items() if count >= _LETTER_SHARE * letters.total()))


def measure(
    scripts: Mapping[str, Mapping[str, str]],
    languages: Mapping[str, Mapping[str, str]],
    titles: Mapping[str, tuple[str, str]],
) -> dict[str, list[dict[str, Any]]]:
    """Ingest the texts and ask the questions of each kind.

    Args:
        scripts: Texts in scripts without spaces, by language and source.
        languages: Texts in other languages, by language and source.
        titles: Titles and texts of English documents, by source.
    """
    overrides = {**MODEL, "rag.retrieval.semantic_weight": 0.0, "database.data_dir": str(temporary_folder())}
    model = HashingEmbedder()
    rows: dict[str, list[dict[str, Any]]] = {"scripts": [], "accents": [], "typos": []}
    with Engine(Settings.load(overrides=overrides), embedder=model) as engine:
        for language, texts in scripts.items():
            tenant = engine.tenant("bench", collection=language.lower())
            _ingest(tenant, texts, None)
            dice = random.Random(language)
            for runs in (1, 2):
                letters = SCRIPTS[language] if runs == 1 else max(2, SCRIPTS[language] - 1)
                items = ask_for_runs(texts, letters, runs=runs, dice=dice)
                kind = f"{language}, {runs} of {letters} letters"
                rows["scripts"].append(
                    {"": kind, "documents": len(texts), "questions": len(items), **success(tenant, items)}
                )
        question_sets: dict[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
            language: ({key: text for key, text in texts.items() if len(text.split()) in _WORDS}, texts)
            for language, texts in languages.items()
        }
        if titles:
            question_sets["titles"] = (
                {key: title for key, (title, _) in titles.items() if title},
                {key: text for key, (_, text) in titles.items()},
            )
        for language, (_, texts) in question_sets.items():
            _ingest(engine.tenant("bench", collection=language), texts, LANGUAGES.get(language, "english"))
        exact_settings = Settings.load(overrides={**overrides, "rag.retrieval.fuzzy": False})
        with Engine(exact_settings, embedder=model) as other:
            for language, (questions, texts) in question_sets.items():
                pairs = ask_without_accents(questions, random.Random(language))
                if len(pairs) > QUESTIONS // 2:
                    rows["accents"].append(_measure_accents(engine, language, len(texts), pairs))
                rows["typos"] += _measure_typos(engine, other, language, questions, texts)
    return rows


def _measure_accents(
    engine: Engine, language: str, documents: int, pairs: Sequence[tuple[Item, Item]]
) -> dict[str, Any]:
    tenant = engine.tenant("bench", collection=language)
    plain = success(tenant, [item for _, item in pairs])
    return {
        "": language,
        "documents": documents,
        "questions": len(pairs),
        "written s@5": success(tenant, [item for item, _ in pairs])["s@5"],
        "plain s@1": plain["s@1"],
        "plain s@5": plain["s@5"],
    }


def _measure_typos(
    engine: Engine, other: Engine, language: str, questions: Mapping[str, str], texts: Mapping[str, str]
) -> list[dict[str, Any]]:
    tenant, exact = (opened.tenant("bench", collection=language) for opened in (engine, other))
    dice, rows = random.Random(language), []
    for pairs in (False, True):
        items = ask_with_typos(questions, pairs=pairs, alphabet=_alphabet(texts), dice=dice)
        right, wrong = [item for item, _ in items], [item for _, item in items]
        rows.append(
            {
                "": f"{language}, {'two words' if pairs else 'all words'}",
                "documents": len(texts),
                "questions": len(items),
                "without s@5": success(tenant, right)["s@5"],
                "exact s@5": success(exact, wrong)["s@5"],
                "typo s@1": (fuzzy := success(tenant, wrong))["s@1"],
                "typo s@5": fuzzy["s@5"],
                "unchanged": unchanged(tenant, exact, right),
            }
        )
    return rows


def _ingest(tenant: Tenant, texts: Mapping[str, str], language: str | None) -> None:
    report = tenant.ingest(
        SourceDocument(source=source, data=text.encode(), language=language) for source, text in texts.items()
    )
    if report.failed:
        raise SystemExit(f"{len(report.failed)} documents failed, the first: {report.failed[0]}")


def _quick() -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Return a few texts of each kind, without a download."""
    parts = re.split(r"\n{2,}", (EXAMPLES / "knowledge_base" / "example_sql.md").read_text(encoding="utf-8"))
    sentences = {"zh_Hans": ["模型的训练需要大量的数据和时间。", "每天晚上系统会自动备份数据库。"]}
    return (
        {name: {f"{name}/{at}": text for at, text in enumerate(texts)} for name, texts in sentences.items()},
        {"en": {f"en/{at}": text for at, text in enumerate(parts)}},
    )


def _print(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = [name for name in rows[0] if name]
    print(f"\n{'':<28}" + "".join(f"{column:>13}" for column in columns))
    for row in rows:
        print(f"{row['']:<28}" + "".join(f"{row[column]:>13,}" for column in columns))


def main() -> None:
    """Run the benchmark."""
    parser = command(__doc__, "known_items.json")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="a set whose titles are questions too")
    arguments = parse(parser)
    folder = arguments.data or (DATASETS / "cranfield" if (DATASETS / "cranfield").is_dir() else None)
    if arguments.quick:
        scripts, languages = _quick()
        results = measure(scripts, languages, {})
    else:
        messages = read_messages([*SCRIPTS, *LANGUAGES])
        results = measure(
            {language: messages[language] for language in SCRIPTS},
            {language: messages[language] for language in LANGUAGES},
            load(folder).documents if folder else {},
        )
    for rows in filter(None, results.values()):
        _print(rows)
    write_results(arguments.json, results)


if __name__ == "__main__":
    main()
