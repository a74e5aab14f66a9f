"""Servers that answer as Ray's ports were recorded to: whatever they are asked, in pieces, and the connection stays."""

import contextlib
import socket
import threading
from collections.abc import Iterator

HOST = "127.0.0.1"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
# What gRPC's own server writes behind its settings: the end of a call with its status, as it was recorded.
STATUS = b"\0\0\x2d\1\5\0\0\0\1\x88@\x0ccontent-type\x10application/grpc@\x0bgrpc-status"
OPEN, UNAUTHENTICATED = b"\x010", b"\x0216"  # that status
JOBS = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
REFUSED = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"


@contextlib.contextmanager
def answering(*pieces: bytes, pause_s: float = 0.0, asked: list[bytes] | None = None, port: int = 0) -> Iterator[int]:
    """The port of a server that answers with these pieces, and writes down what it is asked; 0: any free port."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    told = connection.recv(65536)
                    if asked is not None:
                        asked.append(told)
                    for piece in pieces:
                        over.wait(pause_s)
                        connection.sendall(piece)
                    connection.recv(65536)

    with socket.create_server((HOST, port)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
