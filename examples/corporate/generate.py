"""Write the corporate sample: 92 documents of five departments, about 1,470 paragraphs, as PDF and plain text.

    python examples/corporate/generate.py FOLDER

The documents are the same each time, byte for byte. They are made from the topics in the file next to this one. PDF
needs fpdf2, which the extra `dev` installs.
"""

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

PARAGRAPHS = {"hr": 167, "it": 261, "finance": 246, "security": 324, "general": 469}
"""How many each department's documents have together."""

_PEOPLE = (
    *("Amara Osei", "Jonas Lindqvist", "Priya Raman", "Tomas Novak", "Lucia Ferreira", "Henrik Dahl", "Mei Tanaka"),
    "Omar Haddad",
)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November"),
    "December",
)
_BEFORE = {
    "Purpose": (
        "This document says what the company expects where {about} is concerned, and who decides in cases of doubt.",
        "The aim of this document is that {about} is handled in the same way at all {sites} sites.",
        "Questions about {about} used to be answered case by case. This document replaces those answers.",
    ),
    "Scope": (
        "It applies to all employees, to temporary staff and to the {count} affiliated companies since {month} {year}.",
        "It holds for everyone with a contract of the company, and for suppliers who work on its premises.",
        "Staff in Hamburg, Lisbon and Dublin are covered; the joint venture in Oslo has rules of its own for {about}.",
    ),
    "Definitions": (
        "In what follows, the owner is {person}, and the register is the list of cases in the area {code}.",
        "A working day is Monday to Friday except for public holidays. Periods for {about} are counted in such days.",
    ),
    "Responsibilities": (
        "{person} is responsible for {about} and reports to the management every {count} weeks.",
        "Heads of department see to it that their teams know these rules. {person} keeps the overview for {about}.",
        "Responsible for {about} is the team of {person}, with {count} members in two offices.",
    ),
}
_AFTER = {
    "Exceptions": (
        "Exceptions are granted in writing for at most {weeks} weeks, and are recorded under the code {code}.",
        "Whoever needs an exception for {about} describes the reason on form {code}; {person} decides.",
    ),
    "Records": (
        "Records about {about} are filed in the area {code}, where they can be read by the owner and the auditors.",
        "The register of {about} held {cases} entries at the end of {year}; each names its author and its date.",
    ),
    "Reporting": (
        "Once a quarter {person} sums up {about} in a report of {count} pages, the last one in {month} {year}.",
        "Figures about {about} are part of the management report; in {year} there were {cases} cases.",
    ),
    "Breaches of the Rules": (
        "Breaches are talked over with the manager first. A repeated breach within {weeks} weeks goes to {person}.",
        "Who disregards these rules on {about} must expect measures under labour law, in proportion to what happened.",
    ),
    "Cooperation with Other Teams": (
        "The teams meet every {count} weeks, so that {about} and neighbouring subjects do not contradict each other.",
        "Where {about} touches the work of other teams, {person} asks them for their consent beforehand.",
    ),
    "Frequently Asked Questions": (
        "Is there a short version? Yes, a leaflet about {about} with the number {code} lies at the reception.",
        "Whom do I ask first? Your manager, and then {person}, who answers questions about {about} on working days.",
    ),
    "Translation": (
        "The English version of this document is binding. {person} sees to the German and Portuguese ones.",
        "A translation is available under the number {code}. Where texts on {about} differ, the English one holds.",
    ),
    "Related Documents": (
        "See also the documents {code} and {code2}, which hold forms and examples for {about}.",
        "Forms for {about} are kept in the collection {code}; older versions are in the archive under {code2}.",
    ),
    "Review": (
        "This document is reviewed every {months} months, next in {month} {year2}.",
        "{person} checks once a year whether the rules for {about} are still right, last in {month} {year}.",
    ),
    "Contact": (
        "Questions about {about} are answered by {person}, extension {cases}, on working days.",
        "Write to the mailbox of the owner, {person}, and name the number {code} of this document.",
    ),
}
_MORE = (
    "The rules on {heading} were agreed with the works council in {month} {year} and change with its consent only.",
    "In {year} there were {cases} cases where {heading} mattered; {person} found no need for a change in them.",
    "Examples for {heading} are on page {count} of the leaflet {code}, with the questions that are asked most.",
    "If these rules on {heading} cannot be followed, say so to {person} at once and not afterwards.",
    "Managers explain {heading} to new members of their team within {weeks} weeks and note it in the register.",
)


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document of the sample: its place and its sections, each with paragraphs."""

    department: str
    name: str
    title: str
    sections: Sequence[tuple[str, Sequence[str]]]


def documents() -> Iterator[Document]:
    """Compose the documents, the same ones each time."""
    topics: dict[str, dict[str, list[Any]]] = yaml.safe_load(Path(__file__).with_name("topics.yaml").read_text("utf-8"))
    for department, documents in topics.items():
        for number, (name, (title, about, facts)) in enumerate(documents.items()):
            share, rest = divmod(PARAGRAPHS[department], len(documents))
            dice = random.Random(f"{department}/{name}")  # noqa: S311 — a sample, no secret
            sections = _sections(dice, about, facts, share + (number < rest))
            yield Document(department=department, name=name, title=title, sections=sections)


def _sections(
    dice: random.Random, about: str, facts: dict[str, str], paragraphs: int
) -> list[tuple[str, tuple[str, ...]]]:
    """Put general sections around the document's own, as many as the number of paragraphs asks for."""
    headings = set(dice.sample([*_BEFORE, *_AFTER], k=paragraphs - 2 * len(facts)))

    def general(texts: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, tuple[str, ...]]]:
        for heading, variants in texts.items():
            if heading in headings:
                yield heading, (_fill(dice, dice.choice(variants), about=about),)

    more = dice.sample(_MORE, k=len(facts))
    mine = [
        (heading, (fact, _fill(dice, text, heading=heading.lower())))
        for (heading, fact), text in zip(facts.items(), more, strict=True)
    ]
    return [*general(_BEFORE), *mine, *general(_AFTER)]


def _fill(dice: random.Random, template: str, **fields: str) -> str:
    def code() -> str:
        return f"{dice.choice('ABDFKMPRT')}{dice.choice('CELNSW')}-{dice.randint(100, 999)}"

    values: dict[str, str | int] = {
        "person": dice.choice(_PEOPLE),
        "month": dice.choice(_MONTHS),
        "year": dice.randint(2021, 2025),
        "year2": dice.randint(2026, 2028),
        "sites": dice.randint(3, 7),
        "count": dice.randint(2, 9),
        "weeks": dice.randint(2, 12),
        "months": dice.choice([6, 12, 18, 24]),
        "cases": dice.randint(11, 980),
        "code": code(),
        "code2": code(),
    }
    text = template.format(**values, **fields)
    return text[0].upper() + text[1:]


def write_text(document: Document) -> bytes:
    """Write a document as plain text, its headings in one of three styles."""
    style = random.Random(document.name).choice(["capitals", "title case", "numbered"])  # noqa: S311 — a sample, no secret
    blocks = [document.title.upper() if style == "capitals" else document.title]
    for number, (heading, paragraphs) in enumerate(document.sections, start=1):
        title = {"capitals": heading.upper(), "title case": heading, "numbered": f"{number}. {heading}"}[style]
        blocks += [title, *paragraphs]
    return ("\n\n".join(blocks) + "\n").encode()


def write_pdf(document: Document) -> bytes:
    """Write a document as PDF: headings by their letters, and in every other one as an outline too."""
    try:
        import fpdf
    except ImportError:
        sys.exit("the PDF files of the sample need fpdf2: install kosmos-rag[dev]")
    pdf = fpdf.FPDF()
    pdf.set_creation_date(datetime(2026, 1, 1, tzinfo=UTC))
    pdf.set_title(document.title)
    pdf.add_page()
    outlined = random.Random(document.name).random() < 0.5  # noqa: S311 — a sample, no secret

    def put(text: str, size: int, style: str = "", *, space: int) -> None:
        pdf.set_font("helvetica", style=style, size=size)
        pdf.multi_cell(0, text=text, new_x="LMARGIN", new_y="NEXT")
        pdf.ln(space)

    put(document.title, 18, space=5)
    for heading, paragraphs in document.sections:
        if outlined:
            pdf.start_section(heading)
        put(heading, 13, "B", space=3)
        for paragraph in paragraphs:
            put(paragraph, 11, space=4)
    return bytes(pdf.output())


def write(folder: Path) -> list[Path]:
    """Write all documents below a folder, a folder for each department; half of them are PDF. Returns their paths."""
    paths = []
    for number, document in enumerate(documents()):
        suffix, render = (".pdf", write_pdf) if number % 2 else (".txt", write_text)
        path = folder / document.department / f"{document.name}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(render(document))
        paths.append(path)
    return paths


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} FOLDER")
    print(f"{len(write(Path(sys.argv[1])))} documents in {sys.argv[1]}")
