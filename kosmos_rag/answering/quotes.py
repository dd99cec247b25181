"""Whether a quote still stands in its document."""

from kosmos_rag.errors import RequestError
from kosmos_rag.records import Citation, QuoteStatus, sha256_of


def quote_status(citation: Citation, quote: str, text: str) -> QuoteStatus:
    """Tell what became of a cited quote in a version of its document, of which `text` is the whole text.

    Raises RequestError where the quote is not the one that was cited.
    """
    if sha256_of(quote) != citation.quote_sha256:
        raise RequestError(
            f"the quote {quote[:40]!r} is not the one that {citation.marker} cites: give the cited text, unchanged"
        )
    places = _places(quote, text)
    if not places:
        return QuoteStatus(state="gone", start=None, end=None, copies=0)
    start = min(places, key=lambda place: abs(place - citation.start))
    return QuoteStatus(
        state="unchanged" if start == citation.start else "moved",
        start=start,
        end=start + len(quote),
        copies=len(places),
    )


def _places(quote: str, text: str) -> list[int]:
    places: list[int] = []
    place = text.find(quote)
    while place >= 0:
        places.append(place)
        place = text.find(quote, place + len(quote))
    return places
