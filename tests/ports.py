"""Ports of this machine that no server has."""

import socket


def find_free_port() -> int:
    """Return a port of the loopback address. Another process may take it before the caller does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
