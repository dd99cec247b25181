"""A relay in front of a server: a test takes the server away from its clients without stopping it for the others."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo


class Relay:
    """Forwards connections of a local port to a server, until it is cut or silenced."""

    def __init__(self, conninfo: str) -> None:
        with psycopg.connect(conninfo) as connection:
            host, port = connection.info.host, connection.info.port
        self._target: str | tuple[str, int] = (host, port)
        if host.startswith("/"):
            self._target = str(Path(host) / f".s.PGSQL.{port}")
        self._listener: socket.socket | None = None
        self._sockets: list[socket.socket] = []
        self._silent = threading.Event()
        self.port = 0
        self.accepted = 0
        self.restore()

    def conninfo(self, conninfo: str) -> str:
        """The connection string by way of the relay."""
        return make_conninfo(conninfo, host="127.0.0.1", port=self.port)

    def restore(self) -> None:
        """Take connections, at the same port as before."""
        self._silent.clear()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """Close all connections and refuse new ones, as a machine whose server has ended."""
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for member in self._sockets:
            with suppress(OSError):
                member.shutdown(socket.SHUT_RDWR)
            member.close()
        self._sockets.clear()

    def silence(self) -> None:
        """Forward nothing any more: connections are taken and stay open, and nobody answers."""
        self._silent.set()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.accepted += 1
                self._sockets.append(client)
                if self._silent.is_set():
                    continue
                server = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
                server.connect(self._target)
                self._sockets.append(server)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._silent.is_set():
                    target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(conninfo: str) -> Iterator[Relay]:
    """Relay connections to the server of a connection string for the time of a block."""
    opened = Relay(conninfo)
    try:
        yield opened
    finally:
        opened.cut()
