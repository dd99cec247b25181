"""Reads a multipart form of one file as a stream.

No process holds all of the file.
"""

from collections.abc import AsyncIterator

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from kosmos_rag.core.errors import RequestError
from kosmos_rag.core.types import is_text

_MAX_FIELD_BYTES = 65_536
_MAX_PARTS = 100
_FILE = "file"


class FileForm:
    """A form with one file, in the field `file`, and short fields.

    The other fields are complete when the file has been read, whatever their order.
    """

    def __init__(self, content_type: str, body: AsyncIterator[bytes]) -> None:
        """Prepare to read a form.

        Raises RequestError for a body that is none.
        """
        kind, options = parse_options_header(content_type)
        boundary = options.get(b"boundary")
        if kind != b"multipart/form-data" or not boundary:
            raise RequestError("the body is no multipart form; send the file as the field `file` of a form")
        self._body = body
        self._fields: dict[str, list[str]] = {}
        self._filename: str | None = None
        self._parts = 0
        self._header, self._header_value, self._disposition = b"", b"", b""
        self._name: str | None = None
        """Name of the present field; None within the file."""
        self._value = bytearray()
        self._data: list[bytes] = []
        self._ended = False
        self._parser = self._create_parser(boundary)

    @property
    def filename(self) -> str:
        """Name of the file. Raises RequestError where the form has none."""
        if not self._filename:
            raise RequestError("the form has no file with a name; send it as the field `file`")
        return self._filename

    async def file(self) -> AsyncIterator[bytes]:
        """Yield the bytes of the file while they arrive.

        Raises RequestError on a malformed form.
        """
        async for data in self._body:
            try:
                self._parser.write(data)
            except FormParserError as error:
                raise RequestError(f"the form is malformed ({error}); send it again") from error
            for piece in self._data:
                yield piece
            self._data.clear()
        if not self._ended:
            raise RequestError("the form ends before its last part does; send it again")

    def fields(self, *names: str) -> dict[str, list[str]]:
        """Return the short fields.

        Raises RequestError for one that is not among `names`.
        """
        if unknown := sorted(self._fields.keys() - set(names)):
            raise RequestError(f"there is no field {unknown[0][:60]!r}; use file, {', '.join(names)}")
        return self._fields

    def _create_parser(self, boundary: bytes) -> MultipartParser:
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": self._add_header_name,
                    "on_header_value": self._add_header_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._end_headers,
                    "on_part_data": self._add_data,
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise RequestError(f"the boundary of the form is malformed ({error}); let the client choose it") from error

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise RequestError(f"the form has more than {_MAX_PARTS} parts; send one file and its fields")
        self._disposition, self._value = b"", bytearray()

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header, self._header_value = b"", b""

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = _decode(options.get(b"name", b""))
        self._name = None if name == _FILE else name
        if name != _FILE:
            return
        if self._filename is not None:
            raise RequestError("the form has more than one file; send one in each request")
        self._filename = _decode(options.get(b"filename", b""))

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._name is None:
            self._data.append(data[start:end])
            return
        self._value += data[start:end]
        if len(self._value) > _MAX_FIELD_BYTES:
            raise RequestError(f"the field {self._name[:60]!r} is longer than {_MAX_FIELD_BYTES:,} bytes; shorten it")

    def _end_part(self) -> None:
        if self._name is not None:
            self._fields.setdefault(self._name, []).append(_decode(bytes(self._value)))

    def _end(self) -> None:
        self._ended = True


def _decode(value: bytes) -> str:
    text = value.decode("utf-8", "replace")
    if not is_text(text):
        raise RequestError(f"{text[:60]!r} has a NUL; remove it")
    return text
