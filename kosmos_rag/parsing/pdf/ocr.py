"""Read scanned pages by RapidOCR, with the PP-OCR models on ONNX Runtime.

The models are in its wheel.

https://github.com/RapidAI/RapidOCR; docs/decisions/0015-ocr.md has the reasons.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kosmos_rag.core.extras import require_extra
from kosmos_rag.core.telemetry import usage
from kosmos_rag.parsing import bounds
from kosmos_rag.parsing.pdf.graphics import Box
from kosmos_rag.parsing.pdf.page import PageContent, PageFrame
from kosmos_rag.parsing.pdf.text_layer import Run


def require_ocr() -> None:
    """Raise ConfigError if the packages for OCR are not installed."""
    require_extra(
        "ocr",
        "ingestion.parsing.ocr = true",
        "rapidocr",
        "onnxruntime",
        alternative="set ingestion.parsing.ocr to false",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Box:
    """Adjacent words, in pixels of the picture."""

    text: str
    left: float
    right: float
    middle: float
    height: float


class PageReader:
    """Reads pictures of pages.

    The models are loaded with the first. One thread at a time may use it.
    """

    def __init__(self) -> None:
        self._engine: Any = None

    def read(self, page: Any) -> PageContent:
        """Return the recognised lines of a page, top to bottom."""
        width, height = page.get_size()
        scale = bounds.MAX_RECOGNIZED_SIDE / max(width, height)
        started_at = time.perf_counter()
        boxes = self._boxes(page.render(scale=scale).to_numpy())
        usage.record(usage.Quantity.OCR_SECONDS, time.perf_counter() - started_at)
        if not boxes:
            return PageContent()
        size = statistics.median(box.height for box in boxes)
        runs = [
            Run(
                " ".join(box.text for box in row),
                row[0].left / scale,
                row[-1].right / scale,
                height - row[0].middle / scale,
                # What is recognised says little of the letters' sizes, and would make headings of chance.
                round(size / scale, 1),
                bold=False,
            )
            for row in _rows(boxes, size / 2)
        ]
        frame = PageFrame(Box(0.0, 0.0, width, height))  # the picture is turned as viewers show the page
        return PageContent(lines=[[run] for run in runs], top=height, scanned=True, frame=frame)

    def _boxes(self, picture: Any) -> list[_Box]:
        if self._engine is None:
            self._engine = _load()
        recognised = self._engine(picture)
        if recognised.boxes is None:
            return []
        words = zip(recognised.boxes, map(str.strip, recognised.txts), strict=True)
        return [_box(text, corners) for corners, text in words if text]


def _box(text: str, corners: Any) -> _Box:
    xs, ys = zip(*((float(x), float(y)) for x, y in corners), strict=True)
    return _Box(text=text, left=min(xs), right=max(xs), middle=(min(ys) + max(ys)) / 2, height=max(ys) - min(ys))


def _rows(boxes: Sequence[_Box], tolerance: float) -> list[list[_Box]]:
    """Group boxes into rows, top to bottom, left to right."""
    rows: list[list[_Box]] = []
    for box in sorted(boxes, key=lambda box: box.middle):
        if rows and box.middle - rows[-1][0].middle <= tolerance:
            rows[-1].append(box)
        else:
            rows.append([box])
    return [sorted(row, key=lambda box: box.left) for row in rows]


def _load() -> Any:
    import cv2
    from rapidocr import RapidOCR

    # One thread: others of this process parse at the same time, and each thread takes address space of the limit.
    cv2.setNumThreads(1)
    threads = {f"EngineConfig.onnxruntime.{pool}_op_num_threads": 1 for pool in ("intra", "inter")}
    return RapidOCR(params={"Global.log_level": "critical", "Global.use_cls": False, **threads})
