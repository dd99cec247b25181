"""Edit distance between words, and the words at distance one."""

from collections.abc import Iterator

_ASCII = "abcdefghijklmnopqrstuvwxyz"
_LATIN = f"{_ASCII}äöüßáàâçéèêíñóôúåæø"
_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєґ"
_GREEK = "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ"


def single_edits(word: str) -> Iterator[str]:
    """Yield the words at edit distance one.

    The letters are of the alphabet of the word. An edit deletes, inserts or substitutes a letter, or swaps two adjacent
    ones. Words may repeat. Source: Damerau, "A technique for computer detection and correction of spelling errors"
    (1964).
    """
    latin = _ASCII if word.isascii() else _LATIN
    alphabet = next((letters for letters in (_CYRILLIC, _GREEK) if not set(letters).isdisjoint(word)), latin)
    for at in range(len(word) + 1):
        head, tail = word[:at], word[at:]
        for letter in alphabet:
            yield head + letter + tail
            if tail and letter != tail[0]:
                yield head + letter + tail[1:]
        if tail:
            yield head + tail[1:]
        if len(tail) > 1 and tail[0] != tail[1]:
            yield head + tail[1] + tail[0] + tail[2:]


def edit_distance(first: str, second: str, limit: int) -> int:
    """Return the optimal string alignment distance, up to a limit.

    Args:
        first: A word.
        second: Another one.
        limit: Largest distance that is computed; `limit` + 1 means all larger ones.
    """
    if abs(len(first) - len(second)) > limit:
        return limit + 1
    before: list[int] = []
    last = list(range(len(second) + 1))
    for row, letter in enumerate(first, start=1):
        current = [row]
        for column, other in enumerate(second, start=1):
            cost = min(last[column] + 1, current[-1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == second[column - 2] and first[row - 2] == other:
                cost = min(cost, before[column - 2] + 1)
            current.append(cost)
        if min(current) > limit:
            return limit + 1
        before, last = last, current
    return min(last[-1], limit + 1)
