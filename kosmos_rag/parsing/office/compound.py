"""Read the directory of compound files (MS-CFB), in which Office wrote before 2007 and Outlook writes."""

import io

SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def list_root_streams(data: bytes) -> frozenset[str]:
    """Return the names of the streams that belong to the file itself.

    Those of embedded files are left out. The result is empty for a file that is broken or no compound file.
    """
    if not data.startswith(SIGNATURE):
        return frozenset()
    import olefile

    try:
        with olefile.OleFileIO(io.BytesIO(data)) as file:
            return frozenset(entry.name for entry in file.root.kids if entry.entry_type == olefile.STGTY_STREAM)
    except Exception:  # noqa: BLE001 — a broken file raises any of many; without streams it is refused
        return frozenset()
