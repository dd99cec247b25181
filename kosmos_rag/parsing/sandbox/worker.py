"""The work of a child: parse one file, and reply."""

import socket
from dataclasses import replace

from kosmos_rag.core.errors import ParseError, first_line
from kosmos_rag.core.telemetry import usage
from kosmos_rag.core.types import ParsedDocument
from kosmos_rag.parsing import parse
from kosmos_rag.parsing.pdf.document import render_page
from kosmos_rag.parsing.sandbox.limits import limit_resources
from kosmos_rag.parsing.sandbox.protocol import (
    Failure,
    ParseRequest,
    build_document,
    encode_reply,
    receive_frame,
    receive_request,
    send_frame,
)


class _OcrSeconds:
    """Adds up how long OCR takes, for the reply."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def record(self, quantity: usage.Quantity, amount: float, model: str | None) -> None:  # noqa: ARG002
        self.seconds += amount if quantity is usage.Quantity.OCR_SECONDS else 0.0


def work(connection: socket.socket) -> None:
    """Receive a request, apply its limits, and send the reply.

    Raises MemoryError where the limits do not suffice.
    """
    request = receive_request(connection)
    limit_resources(memory_bytes=request.memory_bytes, cpu_s=request.cpu_s)
    data = bytes(receive_frame(connection, request.memory_bytes))
    result = _result(request, data)
    reply = result if isinstance(result, bytes) else encode_reply(result)
    if len(reply) > request.largest_reply:
        reply = encode_reply(Failure(code="too_large", message="the result is too large; split the file"))
    send_frame(connection, reply)


def _result(request: ParseRequest, data: bytes) -> ParsedDocument | Failure | bytes:
    try:
        if request.page:
            return render_page(data, request.page, passwords=request.passwords)
        ocr = _OcrSeconds()
        with usage.charge_to(ocr.record):
            parsed = parse(
                build_document(request, data),
                request.output,
                ocr=request.ocr,
                hidden_cells=request.hidden_cells,
                passwords=request.passwords,
            )
        return replace(parsed, ocr_seconds=ocr.seconds)
    except ParseError as error:
        return Failure(code=error.code, message=str(error))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 — a fault of ours in one parser must reach the report, as that file's
        message = f"the parser failed ({type(error).__name__}: {first_line(error)}); report this file as a bug"
        return Failure(code="crashed", message=message)
