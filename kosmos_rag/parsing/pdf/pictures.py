"""Parse pictures by OCR, as pages of a PDF."""

import io
from dataclasses import replace

from kosmos_rag.core.errors import ParseError
from kosmos_rag.core.extras import missing_extra
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.limits import OutputLimits
from kosmos_rag.parsing.pdf.document import parse_pdf


def parse_picture(data: bytes, limits: OutputLimits, *, media_type: str, ocr: bool) -> ParsedDocument:
    """Parse a picture by OCR; each picture of a TIFF is a page.

    Args:
        data: PNG, JPEG, TIFF or WebP.
        limits: limits of the result.
        media_type: that of the data, which the result has too.
        ocr: whether to read it.

    Raises:
        ParseError: `unsupported` without OCR, `no_text`, `corrupt` or `too_large`.
    """
    if not ocr:
        raise missing_extra(
            "ocr",
            "a picture is read by ingestion.parsing.ocr = true, which",
            "rapidocr",
            error=lambda message: ParseError("unsupported", message),
        )
    parsed = parse_pdf(_write_pdf(data, limits), limits, ocr=True)
    return replace(parsed, media_type=media_type)


def _write_pdf(data: bytes, limits: OutputLimits) -> bytes:
    """Write the pictures of a file as pages, as viewers turn them."""
    from PIL import Image, ImageOps, ImageSequence, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data)) as picture:
            limits.check_pages(getattr(picture, "n_frames", 1))
            pages = []
            for frame in ImageSequence.Iterator(picture):
                page = ImageOps.exif_transpose(frame).convert("RGB")
                page.thumbnail((bounds.MAX_PICTURE_HEIGHT, bounds.MAX_PICTURE_HEIGHT))
                pages.append(page)
    except Image.DecompressionBombError as error:
        raise ParseError("too_large", f"the picture is too large ({error}); make it smaller") from error
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise ParseError("corrupt", f"the picture cannot be read ({error}); save it again") from error
    out = io.BytesIO()
    pages[0].save(out, "PDF", save_all=True, append_images=pages[1:])
    return out.getvalue()
