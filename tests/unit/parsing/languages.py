"""Texts of languages.txt in legacy encodings: a sentence, all sentences, and the sentences as a list."""

from pathlib import Path
from typing import NamedTuple

_LINES = Path(__file__).with_name("languages.txt").read_text().splitlines()[1:]


class Sample(NamedTuple):
    """A text in a legacy encoding."""

    label: str
    text: str
    data: bytes


def samples(part: str) -> list[Sample]:
    """Return the samples of `development` or `held-out`."""
    result = []
    for line in _LINES:
        of_part, language, encodings, text = line.split(" | ")
        sentences = text.replace("。", "。. ").replace("? ", "?. ").split(". ")
        numbered = "".join(f"{number}. {sentence}\n" for number, sentence in enumerate(sentences, start=1))
        kinds = {"sentence": f"{sentences[0]}.", "text": text, "list": numbered}
        for encoding in encodings.split() if of_part == part else ():
            for kind, content in kinds.items():
                # Some texts have a character that the encoding lacks.
                data = content.encode(encoding, "ignore")
                result.append(Sample(f"{language} {encoding} {kind}", data.decode(encoding), data))
    return result
