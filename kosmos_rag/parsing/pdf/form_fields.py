"""Read the values of form fields and the texts of annotations of a page."""

import ctypes
from collections.abc import Iterator
from typing import Any

from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.graphics import load_pdfium


def read_values(page: Any, forms: Any) -> Iterator[str]:
    """Yield `name: value` of form fields, and texts of annotations."""
    raw = load_pdfium()
    remaining = bounds.MAX_FIELD_CHARS
    for index in range(min(raw.FPDFPage_GetAnnotCount(page.raw), bounds.MAX_ANNOTATIONS)):
        annotation = raw.FPDFPage_GetAnnot(page.raw, index)
        if not annotation:
            continue
        try:
            value = _value(annotation, forms)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
        remaining -= len(value)
        if remaining < 0:
            return
        if value.strip():
            yield value


def _value(annotation: Any, forms: Any) -> str:
    raw = load_pdfium()
    kind = raw.FPDFAnnot_GetSubtype(annotation)
    if kind == raw.FPDF_ANNOT_WIDGET:
        return _field(annotation, forms) if forms is not None else ""
    # The contents of a link describe it to who does not see it; they are not on the page.
    is_hidden = kind in (raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_LINK)
    return "" if is_hidden else _wide(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")


def _field(annotation: Any, forms: Any) -> str:
    raw = load_pdfium()
    kind = raw.FPDFAnnot_GetFormFieldType(forms, annotation)
    if kind in (raw.FPDF_FORMFIELD_PUSHBUTTON, raw.FPDF_FORMFIELD_SIGNATURE):
        return ""
    if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
        if not raw.FPDFAnnot_IsChecked(forms, annotation):
            return ""
        value = _wide(raw.FPDFAnnot_GetFormFieldExportValue, forms, annotation) or "yes"
    else:
        value = _wide(raw.FPDFAnnot_GetFormFieldValue, forms, annotation)
    names = (raw.FPDFAnnot_GetFormFieldAlternateName, raw.FPDFAnnot_GetFormFieldName)
    name = next((text for read in names if (text := _wide(read, forms, annotation).strip())), "")
    return f"{name}: {value}" if name and value.strip() else value


def _wide(read: Any, *arguments: Any) -> str:
    """Return a text that PDFium writes into a buffer as UTF-16."""
    size = read(*arguments, None, 0)
    if not 2 < size <= 2 * (bounds.MAX_FIELD_CHARS + 1):
        return ""
    buffer = (ctypes.c_ushort * (size // 2 + 1))()
    read(*arguments, buffer, size)
    return bytes(buffer)[: size - 2].decode("utf-16-le", "replace")
