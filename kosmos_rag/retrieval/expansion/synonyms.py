"""The file of synonyms: a YAML list of entries, read into rules."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import yaml

from kosmos_rag.core.config.display import one_line, show
from kosmos_rag.core.errors import ConfigError, first_line
from kosmos_rag.core.types import is_text
from kosmos_rag.retrieval.expansion.words import normalized_words

try:
    from yaml import CBaseLoader as _Loader
except ImportError:  # PyYAML was built without its C parser, which is six times as fast
    from yaml import BaseLoader as _Loader  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Where a text says one of `asked`, all of `sought` are looked for as well."""

    asked: tuple[str, ...]
    sought: tuple[str, ...]


class _Fault(Exception):
    """What is wrong at one place of the file, and what to do."""

    def __init__(self, node: yaml.Node, message: str) -> None:
        self.line = node.start_mark.line + 1
        super().__init__(message)


def read_rules(path: Path) -> list[Rule]:
    """Read the entries of a file in their order.

    An empty file has none. Raises ConfigError where the file cannot be read, is not YAML, or an entry is not as
    docs/expansion.md has it.
    """
    try:
        return list(_rules(_compose(path)))
    except _Fault as fault:
        raise ConfigError(one_line(f"synonyms file {path}, line {fault.line}: {fault}")) from None


def _compose(path: Path) -> yaml.Node | None:
    """Return the file's nodes: unlike values, they know their lines, and `no` and `2024` are still text."""
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
        raise _Fault(root, f"{_shown(root)} is not a list of entries: begin each entry with a hyphen")
    for entry in root.value:
        rule = _rule(entry)
        if len({tuple(normalized_words(term)) for term in rule.asked + rule.sought}) < 2:
            raise _Fault(entry, f"{show(rule.asked)} has no other word beside it: add one, or remove the entry")
        yield rule


def _rule(entry: yaml.Node) -> Rule:
    if isinstance(entry, yaml.SequenceNode):
        terms = _terms(entry)
        return Rule(asked=terms, sought=terms)
    if not isinstance(entry, yaml.MappingNode):
        raise _Fault(entry, f"{_shown(entry)} is not an entry: write [one word, another], or {{from: […], to: […]}}")
    if sorted(str(key.value) for key, _ in entry.value) != ["from", "to"]:
        raise _Fault(entry, "the keys of this entry are not from and to: write {from: […], to: […]}, each once")
    sides = {key.value: _terms(side) for key, side in entry.value}
    return Rule(asked=sides["from"], sought=sides["to"])


def _terms(node: yaml.Node) -> tuple[str, ...]:
    if not isinstance(node, yaml.SequenceNode):
        raise _Fault(node, f"{_shown(node)} is not a list of words: put it in brackets")
    if not node.value:
        raise _Fault(node, "this list is empty: write words into it, or remove the entry")
    return tuple(_term(item) for item in node.value)


def _term(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode) or not is_text(node.value):
        raise _Fault(node, f"{_shown(node)} is not text: write a word or a phrase")
    if not normalized_words(node.value):
        raise _Fault(node, f"{_shown(node)} holds no word: write one, or remove it")
    return " ".join(node.value.split())


def _shown(node: yaml.Node) -> str:
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
    """Rules of synonyms, found by the words that a text says.

    Thread-safe: it never changes.
    """

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
        said = normalized_words(text)
        line, vocabulary = _line(said), set(said)
        sought = {term for phrase in self._phrases(said) for terms in self._sought[phrase] for term in terms}
        new = (term for term in sought if term.words[0] not in vocabulary or _line(term.words) not in line)
        return tuple(term.text for term in sorted(new, key=attrgetter("number")))

    def _term(self, text: str) -> _Term:
        found = tuple(normalized_words(text))
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
