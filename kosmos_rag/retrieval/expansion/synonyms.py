"""Synonyms from a YAML file of entries."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import yaml

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import ConfigError, first_line
from kosmos_rag.core.types import is_text
from kosmos_rag.retrieval.expansion.words import normalize_words

try:
    from yaml import CBaseLoader as _Loader
except ImportError:  # PyYAML was built without its C parser, which is six times as fast
    from yaml import BaseLoader as _Loader  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A synonym rule: any of its terms adds all its synonyms."""

    terms: tuple[str, ...]
    synonyms: tuple[str, ...]


class _Fault(Exception):
    """A fault at one position of the file, with its remedy."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        self.line = node.start_mark.line + 1
        super().__init__(message)


def read_rules(path: Path) -> list[Rule]:
    """Read the entries of a synonym file, in order.

    An empty file has none.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or an entry does not fit docs/expansion.md.
    """
    try:
        return list(_rules(_compose(path)))
    except _Fault as fault:
        raise ConfigError(one_line(f"synonyms file {path}, line {fault.line}: {fault}")) from None


def _compose(path: Path) -> yaml.Node | None:
    """Parse the file to YAML nodes.

    Unlike values, nodes have line numbers, and `no` and `2024` remain text.
    """
    try:
        return yaml.compose(path.read_bytes(), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        message = f"synonyms file {path}{line} is not YAML: {error.problem}: correct the YAML there"
    except (yaml.YAMLError, RecursionError) as error:
        message = f"synonyms file {path} is not YAML: {first_line(error)}: write it as UTF-8 text"
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        message = f"synonyms file {path} cannot be read: {reason}: correct rag.expansion.synonyms, or set it to null"
    raise ConfigError(one_line(message))


def _rules(root: yaml.Node | None) -> Iterator[Rule]:
    if root is None or not root.value:
        return
    if not isinstance(root, yaml.SequenceNode):
        raise _Fault(root, f"{_describe(root)} is not a list of entries: begin each entry with a hyphen")
    for entry in root.value:
        rule = _rule(entry)
        if len({tuple(normalize_words(term)) for term in rule.terms + rule.synonyms}) < 2:
            raise _Fault(entry, f"{show(rule.terms)} has no synonym: add one, or remove the entry")
        yield rule


def _rule(entry: yaml.Node) -> Rule:
    if isinstance(entry, yaml.SequenceNode):
        terms = _terms(entry)
        return Rule(terms=terms, synonyms=terms)
    if not isinstance(entry, yaml.MappingNode):
        raise _Fault(entry, f"{_describe(entry)} is not an entry: write [one word, another], or {{from: […], to: […]}}")
    if sorted(str(key.value) for key, _ in entry.value) != ["from", "to"]:
        raise _Fault(entry, "the keys of this entry are not from and to: write {from: […], to: […]}, each once")
    sides = {key.value: _terms(side) for key, side in entry.value}
    return Rule(terms=sides["from"], synonyms=sides["to"])


def _terms(node: yaml.Node) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode):
        raise _Fault(node, f"{_describe(node)} is not a list of words: put it in brackets")
    if not node.value:
        raise _Fault(node, "this list is empty: write words into it, or remove the entry")
    return tuple(_term(item) for item in node.value)


def _term(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or not is_text(node.value):
        raise _Fault(node, f"{_describe(node)} is not text: write a word or a phrase")
    if not normalize_words(node.value):
        raise _Fault(node, f"{_describe(node)} has no word: write one, or remove it")
    return " ".join(node.value.split())


def _describe(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return show(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


_Words = tuple[str, ...]


# Compared by identity: there is one for each sequence of words.
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Term:
    number: int
    """Its place in the file, where it first comes."""
    text: str
    words: _Words


class Synonyms:
    """Synonym rules, matched by the words of a text. Thread-safe, immutable."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._terms: dict[_Words, _Term] = {}
        # One tuple serves all words of a rule: a copy for each would make a long entry take its square.
        self._synonyms: dict[_Words, list[tuple[_Term, ...]]] = {}
        for rule in rules:
            terms = [self._term(text) for text in rule.terms]
            synonyms = tuple(self._term(text) for text in rule.synonyms)
            for term in terms:
                self._synonyms.setdefault(term.words, []).append(synonyms)
        self._lengths = _phrase_lengths(self._synonyms)

    @classmethod
    def load(cls, path: Path) -> "Synonyms":
        """Read a file of synonyms, as docs/expansion.md describes it. Raises ConfigError."""
        return cls(read_rules(path))

    def expand(self, text: str) -> tuple[str, ...]:
        """Return the synonyms of a text that it does not contain.

        In the order of the file, each once. One step: the synonyms of a synonym are not added.
        """
        text_words = normalize_words(text)
        line, vocabulary = _pad(text_words), set(text_words)
        synonyms = {term for phrase in self._phrases(text_words) for terms in self._synonyms[phrase] for term in terms}
        additions = (term for term in synonyms if term.words[0] not in vocabulary or _pad(term.words) not in line)
        return tuple(term.text for term in sorted(additions, key=attrgetter("number")))

    def _term(self, text: str) -> _Term:
        term_words = tuple(normalize_words(text))
        return self._terms.setdefault(term_words, _Term(number=len(self._terms), text=text, words=term_words))

    def _phrases(self, text_words: list[str]) -> Iterator[_Words]:
        """Yield the longest known phrases, left to right, without overlap.

        So `hot dog` does not match the entry of `dog`.
        """
        at = 0
        while at < len(text_words):
            candidates = (tuple(text_words[at : at + length]) for length in self._lengths.get(text_words[at], ()))
            phrase = next((phrase for phrase in candidates if phrase in self._synonyms), None)
            if phrase is None:
                at += 1
            else:
                yield phrase
                at += len(phrase)


def _phrase_lengths(phrases: Iterable[_Words]) -> dict[str, list[int]]:
    """Return the lengths of the phrases by first word, longest first."""
    lengths: dict[str, set[int]] = defaultdict(set)
    for phrase in phrases:
        lengths[phrase[0]].add(len(phrase))
    return {word: sorted(lengths_of_word, reverse=True) for word, lengths_of_word in lengths.items()}


def _pad(text_words: Iterable[str]) -> str:
    """Join words with padding, for search of whole words."""
    return f" {' '.join(text_words)} "
