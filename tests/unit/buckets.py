"""An S3 server on loopback with one bucket, and a switch by which it refuses what is written there."""

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from pyarrow import fs
from werkzeug.serving import WSGIRequestHandler, make_server

HOST = "127.0.0.1"
# Nobody asks a cloud for credentials, and none of the developer's own are used.
RIGHTS = {
    "AWS_ACCESS_KEY_ID": "loadgen-tests",
    "AWS_SECRET_ACCESS_KEY": "canary-of-the-bucket",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


class Quiet(WSGIRequestHandler):
    def log_request(self, *_: object) -> None:
        """A line for each request would hide what a test says."""


@dataclass
class Bucket:
    """`uri`: a folder in it. What is written to paths that `refused` names is answered 403.

    What is written to paths with `holds` in them is not answered until `go_on`; `held` says that something is.
    """

    uri: str = ""
    refused: Callable[[str], bool] = lambda path: False
    holds: str | None = None
    held: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def download(self, folder: str) -> None:
        """Copy all that is below the address into a folder of this disk."""
        system, path = fs.FileSystem.from_uri(self.uri)
        fs.copy_files(path, folder, source_filesystem=system, destination_filesystem=fs.LocalFileSystem())


@contextlib.contextmanager
def bucket() -> Iterator[Bucket]:
    """A new bucket for the block."""
    one, moto = Bucket(), DomainDispatcherApplication(create_backend_app)

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        writes, path = environ["REQUEST_METHOD"] in ("PUT", "POST"), environ["PATH_INFO"]
        if writes and one.holds and one.holds in path:
            one.held.set()
            one.go_on.wait()
        if writes and one.refused(path):
            start("403 Forbidden", [("Content-Length", "0")])
            return []
        return moto(environ, start)  # type: ignore[no-any-return]

    server = make_server(HOST, 0, answer, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in RIGHTS.items():
                patch.setenv(variable, value)
            name, place = f"results-{secrets.token_hex(4)}", f"{HOST}:{server.server_port}"
            fs.S3FileSystem(endpoint_override=place, scheme="http", allow_bucket_creation=True).create_dir(name)
            one.uri = f"s3://{name}/loadgen?endpoint_override={place}&scheme=http&region=us-east-1"
            yield one
    finally:
        one.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
