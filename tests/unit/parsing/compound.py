"""Write compound files (MS-CFB) of small streams, as Outlook and Office 97 make them."""

import struct
from collections.abc import Mapping
from itertools import chain

_FREE, _END, _FAT = 0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD
_SECTOR, _SMALL = 512, 64
Storage = Mapping[str, "bytes | Storage"]


def compound_file(content: Storage) -> bytes:
    """Return a compound file of storages and streams below 4,096 bytes."""
    entries: list[list[object]] = [["Root Entry", 5, _FREE, _FREE, 0, 0]]
    small, chains = bytearray(), list[int]()
    pending = [(0, content)]
    while pending:
        parent, members = pending.pop()
        before = None
        for name, member in members.items():
            entry = len(entries)
            if before is None:
                entries[parent][3] = entry
            else:
                entries[before][2] = entry
            if isinstance(member, bytes):
                start = len(small) // _SMALL if member else _END
                count = -(-len(member) // _SMALL)
                chains += [*range(len(chains) + 1, len(chains) + count), _END] if count else []
                small += member.ljust(count * _SMALL, b"\0")
                entries.append([name, 2, _FREE, _FREE, start, len(member)])
            else:
                entries.append([name, 1, _FREE, _FREE, 0, 0])
                pending.append((entry, member))
            before = entry
    directory = b"".join(map(_entry, entries))
    parts = [directory, struct.pack(f"<{len(chains)}I", *chains), bytes(small)]
    sectors = [-(-len(part) // _SECTOR) for part in parts]
    starts = [1, 1 + sectors[0], 1 + sectors[0] + sectors[1]]
    entries[0][4:] = [starts[2], len(small)]
    parts[0] = b"".join(map(_entry, entries))
    links = [[*range(start + 1, start + count), _END] for start, count in zip(starts, sectors, strict=True) if count]
    fat = [_FAT, *chain.from_iterable(links)]
    assert len(fat) <= _SECTOR // 4
    header = struct.pack(
        "<8s16x5H6x9I",
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0x3E, 3, 0xFFFE, 9, 6, 0, 1, starts[0], 0, 4096,
        starts[1], sectors[1], _END, 0,
    )  # fmt: skip
    header += struct.pack("<109I", 0, *[_FREE] * 108)
    padded = [
        part.ljust(count * _SECTOR, b"\xff" if part is parts[1] else b"\0")
        for part, count in zip(parts, sectors, strict=True)
    ]
    table = struct.pack(f"<{_SECTOR // 4}I", *fat, *[_FREE] * (_SECTOR // 4 - len(fat)))
    return b"".join([header, table, *padded])


def _entry(fields: list[object]) -> bytes:
    name, kind, right, child, start, size = fields
    encoded = f"{name}\0".encode("utf-16-le")
    return struct.pack("<64sHBBIII36xIQ", encoded, len(encoded), kind, 1, _FREE, right, child, start, size)
