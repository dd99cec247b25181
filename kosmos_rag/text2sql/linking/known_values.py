"""Known values of columns, found in questions with or without typos."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from kosmos_rag.core.extras import require_extra
from kosmos_rag.text2sql.catalog.model import ColumnSchema
from kosmos_rag.text2sql.linking.words import STOP_WORDS

_WORD = re.compile(r"\w[\w'-]*")
_MIN_LETTERS = 4
"""Letters of a word that may have a typo."""
_MIN_LETTERS_ALONE = 5
"""Those of a value of one word: shorter ones are one letter from many words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueMatch:
    """A known value in a question."""

    text: str
    """What the question says, in lower case."""
    value: str
    """The value, as `normalize_value` writes it."""

    @property
    def exact(self) -> bool:
        """Whether the question says the value without a typo."""
        return self.text == self.value


def normalize_value(value: str) -> str:
    """Return the words of a value in lower case, without other characters."""
    return " ".join(_WORD.findall(value.lower()))


def known_texts(column: ColumnSchema) -> dict[str, str]:
    """Return the texts in questions that mean a value of a column, each with the value.

    A code is meant by its meaning; `in` is no code of Indiana.
    """
    texts = {normalize_value(meaning): code for code, meaning in column.labels}
    for value in (*column.enum, *column.samples):
        texts.setdefault(normalize_value(value), value)
    return {text: value for text, value in texts.items() if text and text not in STOP_WORDS}


class KnownValues:
    """An index of values by their words. Thread-safe, immutable."""

    def __init__(self, values: Iterable[str]) -> None:
        """Index the values.

        Args:
            values: Values as `normalize_value` writes them.
        """
        self._values = frozenset(filter(None, values))
        self._max_words = max((value.count(" ") + 1 for value in self._values), default=0)
        self._words = {word for value in self._values for word in value.split()}
        # Two words that are one edit apart have a text in common once a letter of each is deleted.
        self._by_deletion: dict[str, list[str]] = defaultdict(list)
        for word in self._words:
            for text in _deletions(word) if len(word) >= _MIN_LETTERS else ():
                self._by_deletion[text].append(word)

    def find(self, question: str, *, is_name: Callable[[str], bool] = lambda _: False) -> tuple[ValueMatch, ...]:
        """Return the values that a question says.

        Longer ones come first, those with typos last. A typo is one letter more, less or other, or two letters in the
        other order, once in a word.

        Args:
            is_name: Whether a word is a name of the schema or a common word; alone, it is no value with a typo.
        """
        words = _WORD.findall(question.lower())
        matches: dict[str, ValueMatch] = {}
        covered: set[int] = set()
        for span in self._spans(words):
            text = " ".join(words[span.start : span.stop])
            if text in self._values:
                matches.setdefault(text, ValueMatch(text=text, value=text))
                covered.update(span)
        for span in self._spans(words):
            text = " ".join(words[span.start : span.stop])
            if covered.isdisjoint(span) and (value := self._misspelt(words[span.start : span.stop], is_name)):
                matches.setdefault(value, ValueMatch(text=text, value=value))
                covered.update(span)
        return tuple(matches.values())

    def _spans(self, words: Sequence[str]) -> Iterator[range]:
        for size in range(min(self._max_words, len(words)), 0, -1):
            yield from (range(at, at + size) for at in range(len(words) - size + 1))

    def _misspelt(self, words: Sequence[str], is_name: Callable[[str], bool]) -> str | None:
        if len(words) == 1 and (len(words[0]) < _MIN_LETTERS_ALONE or is_name(words[0])):
            return None
        candidates: list[list[str]] = []
        for word in words:
            near = [word] if word in self._words else self._near(word)
            if not near:
                return None
            candidates.append(near)
        return next((value for parts in product(*candidates) if (value := " ".join(parts)) in self._values), None)

    def _near(self, word: str) -> list[str]:
        """Return the words of values that are one edit from a word."""
        if len(word) < _MIN_LETTERS:
            return []
        require_extra("schema", "schema linking", "rapidfuzz")
        from rapidfuzz.distance import OSA

        candidates = {other for text in _deletions(word) for other in self._by_deletion.get(text, ())}
        return sorted(other for other in candidates if OSA.distance(word, other, score_cutoff=1) <= 1)


def _deletions(word: str) -> set[str]:
    """Return a word, and the word without each letter."""
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}
