"""A server of the S3 protocol."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serve_s3() -> Iterator[str]:
    """Yield the address of a server that takes any keys. It has the buckets of earlier servers of the process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moto's own
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
