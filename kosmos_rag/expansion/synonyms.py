"""Synonyms: words and phrases to look for beside those that a text says."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from kosmos_rag.expansion.synonyms_file import Rule, read_rules
from kosmos_rag.expansion.words import words

_Words = tuple[str, ...]


# Compared by identity: there is one for each sequence of words.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Term:
    number: int
    """Its place in the file, where it first comes."""
    text: str
    words: _Words


class Synonyms:
    """Rules of synonyms, found by the words that a text says. Thread-safe: it never changes."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._terms: dict[_Words, _Term] = {}
        # One tuple serves all words of a rule: a copy for each would make a long entry take its square.
        self._sought: dict[_Words, list[tuple[_Term, ...]]] = {}
        for rule in rules:
            asked = [self._term(text) for text in rule.asked]
            sought = tuple(self._term(text) for text in rule.sought)
            for term in asked:
                self._sought.setdefault(term.words, []).append(sought)
        self._lengths = _lengths_by_first_word(self._sought)

    @classmethod
    def load(cls, path: Path) -> "Synonyms":
        """Read a file of synonyms, as docs/expansion.md describes it. Raises ConfigError."""
        return cls(read_rules(path))

    def expand(self, text: str) -> tuple[str, ...]:
        """Return what to look for beside the text's own words: in the file's order, each once, none that it says.

        One step: the synonyms of a synonym are not looked for.
        """
        said = words(text)
        line, vocabulary = _line(said), set(said)
        sought = {term for phrase in self._phrases(said) for terms in self._sought[phrase] for term in terms}
        new = (term for term in sought if term.words[0] not in vocabulary or _line(term.words) not in line)
        return tuple(term.text for term in sorted(new, key=attrgetter("number")))

    def _term(self, text: str) -> _Term:
        found = tuple(words(text))
        return self._terms.setdefault(found, _Term(number=len(self._terms), text=text, words=found))

    def _phrases(self, said: list[str]) -> Iterator[_Words]:
        """Find the phrases asked for: from left to right the longest each time, and the next after its end.

        So the words of a phrase are not taken singly: `hot dog` does not lead to what `dog` means.
        """
        at = 0
        while at < len(said):
            candidates = (tuple(said[at : at + length]) for length in self._lengths.get(said[at], ()))
            longest = next((phrase for phrase in candidates if phrase in self._sought), None)
            if longest is None:
                at += 1
            else:
                yield longest
                at += len(longest)


def _lengths_by_first_word(phrases: Iterable[_Words]) -> dict[str, list[int]]:
    """Return how many words the phrases have that begin with each word, the most first."""
    lengths: dict[str, set[int]] = defaultdict(set)
    for phrase in phrases:
        lengths[phrase[0]].add(len(phrase))
    return {word: sorted(found, reverse=True) for word, found in lengths.items()}


def _line(said: Iterable[str]) -> str:
    """Join words so that whole words, and only those, are found in it."""
    return f" {' '.join(said)} "
