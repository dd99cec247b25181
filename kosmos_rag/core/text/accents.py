"""Words without their accents, as many people type them.

A chunk has such a word in both forms, so `cafe` finds `café`. Stemming and stop words know the form with accents only,
so this form is kept, and stop words have no other.
"""

import re
import unicodedata

_BLOCKS = (range(0xC0, 0x250), range(0x370, 0x400), range(0x1E00, 0x2000))
"""Latin and Greek letters with accents, by code point."""
_BASE_LETTERS: dict[int, str | int] = {
    point: base
    for block in _BLOCKS
    for point in block
    if (base := unicodedata.normalize("NFD", chr(point))[0]) != chr(point) and base.isalpha()
}
_BASE_LETTERS |= str.maketrans("øØđĐłŁ\u0131ёЁ", "oOdDlLi\u0435\u0415")
_BASE_LETTERS |= {ord("ß"): "ss", ord("æ"): "ae", ord("Æ"): "AE", ord("œ"): "oe", ord("Œ"): "OE"}
"""Letters without accents, by code point. Of Cyrillic only `ё`: `й` is a letter of its own."""
_ACCENT = re.compile(f"[{''.join(map(chr, _BASE_LETTERS))}]")
_WORD = re.compile(r"[^\W\d_]+")
_STOP_WORDS = frozenset(
    """amíg arról aslında até avrà avrò aztán azután azért bazı belül birkaç birşey bár både båe daß där då egyéb egész
    eivät első elég elő először előtt estará estarán estarás estaré estaréis estaría estaríais estaríamos estarían
    estarías estivéramos estivéssemos estuviéramos estuviésemos está estábamos estáis están estás estávamos estão
    esté estéis estén estés että ezért eûmes eût eûtes eğer farà farò felé från fuéramos fuésemos fôramos fôssemos
    för før fûmes fût fûtes für habrá habrán habrás habré habréis habría habríais habríamos habrían habrías habéis
    había habíais habíamos habían habías hayáis heidän heidät heillä heiltä heissä heistä heitä hiç hjå houverá
    houverão houveríamos houvéramos houvéssemos hubiéramos hubiésemos há hão hän häneen hänelle hänellä häneltä
    hänen hänessä hänestä hänet häntä här ismét için já jó jól keillä keiltä keinä keissä keistä keitä kenellä
    keneltä kenenä kenessä kenestä keressünk keresztül ketkä ketä kívül können könnte között közül legalább magát
    meidän meidät meillä meiltä meissä meistä meitä mikä millä miltä minkä minä missä mistä mitkä mitä miért már más
    másik még même mí mía mías míg mío míos mü mı nasıl niillä niiltä niinä niissä niistä niitä niçin não näiden
    näihin näiksi näille näillä näiltä näinä näissä näistä näitä nämä när nå någon något några når néha néhány
    nélkül nós også perché più på qué rá saját sarà sarò sekä será serán serás serão seré seréis sería seríais
    seríamos serían serías seáis siinä siitä sillä siltä sinä sitä själv sjøl starà starò számára são så sådan
    sådana sådant sånn sí só tallä talán también também tehát teidän teidät teillä teiltä teissä teistä teitä tendrá
    tendrán tendrás tendré tendréis tendría tendríais tendríamos tendrían tendrías tengáis tenéis tenía teníais
    teníamos tenían tenías terá terão teríamos tivéramos tivéssemos tovább továbbá tuotä tuviéramos tuviésemos tähän
    täksi tälle tältä tämä tämän tänä tässä tästä tätä tém tínhamos több tú tüm utolsó után utána való varför você
    vocês vår våra vårt være været vært während würde würden à às által általában át än är å åt çok çünkü è él én
    éppen éramos és étaient étais était étant étante étantes étants étiez étions été étée étées étés êtes így össze
    över úgy új újabb újra über ő ők őket şey şu""".split()  # noqa: SIM905, RUF001 — a list of these would be a page
)
"""Those of PostgreSQL's languages that have accents."""


def fold_accents(text: str) -> str:
    """Return a text without accents: `café` becomes `cafe`, `Straße` `Strasse`.

    Source: the ASCIIFoldingFilter of Lucene.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text).translate(_BASE_LETTERS)


def accented_words(text: str) -> str:
    """Return the words of a text that have accents, without these.

    Stop words are left out.
    """
    if text.isascii() or _ACCENT.search(text := unicodedata.normalize("NFC", text)) is None:
        return ""
    words = [word for word in _WORD.findall(text) if not word.isascii() and word.lower() not in _STOP_WORDS]
    return " ".join([folded for word in words if (folded := word.translate(_BASE_LETTERS)) != word])
