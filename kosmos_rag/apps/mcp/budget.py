"""Fit results into the token budget of an agent.

A budget is of the whole result, as the JSON text that an agent reads, in tokens of the embedding model.
"""

import json
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kosmos_rag.core.types import hash_text

Form = Callable[[], dict[str, Any]]
"""Makes a shorter form of a result."""
Shorten = Callable[[dict[str, Any]], Sequence[Form]]
"""Returns shorter forms of a result, the longest first, each made when it is called."""


def fit(result: dict[str, Any], max_tokens: int, count: Callable[[str], int], shorten: Shorten) -> dict[str, Any]:
    """Return the longest form of a result within a budget.

    The member `truncated` is added.

    Where even the shortest form is longer than the budget, that one is returned.

    Args:
        result: The result; its `truncated` may already be true.
        count: Counts the tokens of a text.
        shorten: Returns the shorter forms.
    """

    def size(form: dict[str, Any]) -> int:
        return count(json.dumps(form, ensure_ascii=False, separators=(",", ":")))

    complete = {**result, "truncated": result.get("truncated", False)}
    if size(complete) <= max_tokens:
        return complete
    forms = shorten(complete)
    if not forms:
        return complete
    first = bisect_left(range(len(forms)), True, key=lambda index: size(forms[index]()) <= max_tokens)
    return {**forms[min(first, len(forms) - 1)](), "truncated": True}


def shorten_search(result: dict[str, Any]) -> list[Form]:
    """Drop the last hits of a search."""

    hits = result["hits"]
    return [partial(dict, result, hits=hits[:count], returned=count) for count in reversed(range(len(hits)))]


def shorten_context(result: dict[str, Any]) -> list[Form]:
    """Drop the last passages of a context, in `passages` and in `text`."""
    passages, ends = result["passages"], _block_ends(result)

    def keep(count: int) -> Form:
        shown_passages = passages[:count]
        omitted = dict(result["omitted"])
        omitted["budget"] = omitted.get("budget", 0) + sum(len(passage["chunk_ids"]) for passage in passages[count:])
        return lambda: (
            result
            | {
                "passages": shown_passages,
                "text": result["text"][: ends[count - 1]] if count else "",
                "tokens": sum(passage["tokens"] for passage in shown_passages),
                "omitted": omitted,
            }
        )

    return [keep(count) for count in reversed(range(len(passages)))]


def shorten_answer(result: dict[str, Any]) -> list[Form]:
    """Drop evidence, then the check, then the quotes.

    Evidence that no sentence cites goes first.
    """
    context = result["context"]
    cited = {sentence["citation"]["index"] for sentence in result["sentences"]}
    passages = context["passages"]
    others = [passage for passage in passages if passage["citation"]["index"] not in cited]
    remaining = [
        [passage for passage in passages if passage not in others[count:]] for count in reversed(range(len(others)))
    ]
    forms: list[Form] = [
        partial(dict, result, context=context | {"passages": shown_passages}) for shown_passages in [*remaining, []]
    ]
    bare = forms[-1]()
    return [*forms, partial(dict, bare, report=None), partial(dict, bare, report=None, sentences=[])]


def shorten_document(result: dict[str, Any]) -> list[Form]:
    """Drop the last lines of a text.

    `next_offset` is the first one of them. Where one line is too long, the text ends within it.
    """
    lines, first = result["text"].split("\n"), result["lines"][0]

    def keep(count: int, chars: int | None = None) -> dict[str, Any]:
        text = "\n".join(lines[:count])[:chars]
        return result | {
            "text": text,
            "quote_sha256": hash_text(text),
            "lines": [first, first + count - 1],
            "next_offset": first + count if first + count <= result["total_lines"] else None,
            "line_truncated": chars is not None,
            "pages": None,
        }

    by_lines = [partial(keep, count) for count in reversed(range(1, len(lines)))]
    cut = [partial(keep, 1, len(lines[0]) >> halved) for halved in range(1, len(lines[0]).bit_length() + 1)]
    return [*by_lines, *cut]


def _block_ends(context: dict[str, Any]) -> list[int]:
    """Return where each passage ends in the text of a context.

    Blocks are separated by a blank line, begin with the marker, and end with the text of the passage.
    """
    text, ends = context["text"], list[int]()
    end = len(text)
    for passage in reversed(context["passages"]):
        ends.append(end)
        start = text.rfind(f"\n\n{passage['citation']['marker']} ", 0, max(0, end - len(passage["text"])))
        end = max(start, 0)
    return ends[::-1]
