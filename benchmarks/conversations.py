"""Measure how much of the prompts of a conversation begins as an earlier prompt of it.

    python -m benchmarks.conversations [--history-tokens N …] [--json FILE] [--quick]

It asks the conversations of MT-RAG that have at least nine questions, up to ten of each, over the passages of its set.
A scripted model makes the search of a question from it and the one before it, and answers with a sentence of each of
two passages. It counts the characters of each prompt, and how many of them an earlier prompt of the conversation begins
with: what a server with a cache of prefixes need not read again. No server adds its own answers to the prefix.
"""

import json
import re
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.answering.sets import load_sets
from benchmarks.command import DATASETS, EXAMPLES, command, parse, temporary_folder, write_results
from benchmarks.quick import embedder
from kosmos_rag import Engine, Settings, Tenant
from kosmos_rag.core.config.rag import AnswerSettings
from kosmos_rag.core.protocols import Message
from kosmos_rag.core.types import Turn

TURNS = 10
LEAST_TURNS = 9
_WORD = re.compile(r"\w{4,}")
_BLOCK = re.compile(r"^(\[\d+\]) .*\n((?:(?!\[\d+\] |END DOCUMENTS).*\n?)+)", re.MULTILINE)


class ScriptedModel:
    """Answers from the passages of a prompt by common words, and counts what it reads."""

    name = "scripted"

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.read = 0
        self.cached = 0

    def stream(self, messages: Sequence[Message], *, max_tokens: int) -> Generator[str, None, None]:  # noqa: ARG002
        """Yield the answer to a prompt, or the rewritten question of a conversation."""
        question = messages[-1].text.rpartition("uestion: ")[2]
        if "Last question: " in messages[-1].text:
            questions = re.findall(r"^(?:User|Last question): (.+)$", messages[-1].text, re.MULTILINE)
            yield " ".join(questions[-2:])
            return
        self._count("\0".join(f"{message.role}\n{message.text}" for message in messages))
        yield _quote(messages, set(_WORD.findall(question.lower())))

    def start_conversation(self) -> None:
        """Forget the prompts of another conversation."""
        self.prompts.clear()

    def _count(self, prompt: str) -> None:
        self.read += len(prompt)
        self.cached += max((_count_common(prompt, other) for other in self.prompts), default=0)
        self.prompts.append(prompt)


def _count_common(first: str, second: str) -> int:
    """Return with how many equal characters two texts begin."""
    return next((at for at, (left, right) in enumerate(zip(first, second, strict=False)) if left != right), len(second))


def _quote(messages: Sequence[Message], words: set[str]) -> str:
    """Return the sentence with most words of each of the two passages with most words."""
    text = "\n".join(message.text for message in messages if message.role == "user")
    passages = [(marker, block) for marker, block in _BLOCK.findall(text)]
    passages.sort(key=lambda passage: -len(words & set(_WORD.findall(passage[1].lower()))))
    quotes = []
    for marker, block in passages[:2]:
        sentences = re.split(r"(?<=[.!?])\s+", " ".join(block.split()))
        best = max(sentences, key=lambda sentence: len(words & set(_WORD.findall(sentence.lower()))))
        quotes.append(f"{best} {marker}")
    return " ".join(quotes)


def _load_conversations(quick: bool) -> list[list[str]]:
    if quick:
        return [["How is churn calculated?", "Who owns churn?", "How is MRR calculated?", "And who owns it?"]]
    lines = (DATASETS / "mtragun" / "turns.jsonl").read_text(encoding="utf-8").splitlines()
    conversations = [
        [" ".join(message["text"].split()) for message in json.loads(line)["input"] if message["speaker"] == "user"]
        for line in lines
    ]
    return [questions[:TURNS] for questions in conversations if len(questions) >= LEAST_TURNS]


def _ask(tenant: Tenant, model: ScriptedModel, conversations: Sequence[Sequence[str]]) -> None:
    for questions in conversations:
        model.start_conversation()
        history: list[Turn] = []
        for question in questions:
            history.append(tenant.answer(question, history=history).turn)


def main() -> None:
    """Run the benchmark."""
    default = AnswerSettings().history_tokens
    parser = command(__doc__, "conversations.json")
    parser.add_argument("--history-tokens", type=int, nargs="+", default=[0, default // 2, default, default * 2])
    arguments = parse(parser, history_tokens=[0, default])
    if not arguments.quick and not (DATASETS / "mtragun").is_dir():
        print(f"left out: there is no folder {DATASETS / 'mtragun'}")
        return
    conversations = _load_conversations(arguments.quick)
    folder = temporary_folder()
    results: dict[int, dict[str, Any]] = {}
    for history_tokens in arguments.history_tokens:
        results[history_tokens] = _measure(folder, conversations, history_tokens, quick=arguments.quick)
        print(f"{history_tokens} tokens: {results[history_tokens]}", flush=True)
    write_results(arguments.json, results)


def _measure(
    folder: Path, conversations: Sequence[Sequence[str]], history_tokens: int, *, quick: bool
) -> dict[str, Any]:
    changes = {
        "database.data_dir": str(folder / "database"),
        "rag.answer.mode": "generative",
        "rag.answer.threshold": 0.0,
        "rag.answer.history_turns": TURNS,
        "rag.answer.history_tokens": history_tokens,
    }
    settings = Settings.load(EXAMPLES / "minilm.yaml", overrides=changes)
    model = ScriptedModel()
    with Engine(settings, embedder=embedder(settings, quick=quick), language_model=model) as engine:
        tenant = engine.tenant("conversations")
        for answer_set in load_sets(("examples" if quick else "mtragun",)):
            tenant.ingest(answer_set.documents)
        _ask(tenant, model, conversations)
    prompts = sum(map(len, conversations))
    return {
        "conversations": len(conversations),
        "prompts": prompts,
        "characters a prompt": round(model.read / prompts),
        "cached prefix": round(model.cached / model.read, 3),
        "not cached, a prompt": round((model.read - model.cached) / prompts),
    }


if __name__ == "__main__":
    main()
