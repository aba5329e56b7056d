"""Downloads by HTTP, from a server on this machine that may fail in every way that servers do."""

from __future__ import annotations

import hashlib
import os
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orthornn.errors import DataError
from orthornn_evidence.files.download import Bar, fetch_missing

pytest.importorskip("pooch")
pytest.importorskip("requests")

CONTENT = bytes(range(256)) * 4096
WHOLE = len(CONTENT)


class Handler(BaseHTTPRequestHandler):
    def __init__(self, sent, *arguments):
        self.sent = sent
        super().__init__(*arguments)

    def do_GET(self):
        if self.path != "/a.bin":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: self.sent])  # less than was announced, if the connection breaks

    def log_message(self, *arguments):
        pass


@pytest.fixture
def serve(monkeypatch):
    """serve(sent): the address of a server that sends so many bytes of the file."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    servers = []

    def start(sent=WHOLE):
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, sent))
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def sources(url, name="a.bin", content=CONTENT):
    return {name: (f"{url}/{name}", "sha256:" + hashlib.sha256(content).hexdigest())}


def test_a_file_comes_whole(serve, tmp_path):
    fetch_missing(tmp_path / "here", sources(serve()))
    assert os.listdir(tmp_path / "here") == ["a.bin"]
    assert (tmp_path / "here" / "a.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("sent", "name", "content", "message"),
    [
        (WHOLE, "b.bin", CONTENT, "404"),
        (WHOLE, "a.bin", b"another", "hash"),
        (1000, "a.bin", CONTENT, r"\d+ bytes"),
        (0, "a.bin", CONTENT, "."),
    ],
    ids=["missing", "another file", "broken off", "nothing"],
)
def test_what_fails_is_said_and_leaves_nothing(serve, tmp_path, sent, name, content, message):
    url = serve(sent)
    with pytest.raises(
        DataError, match=rf"(?s)Expected to fetch {url}/{name}, but got: .*{message}.*Fetch {name} by other"
    ):
        fetch_missing(tmp_path / "here", sources(url, name, content))
    assert not (tmp_path / "here").exists() or os.listdir(tmp_path / "here") == []


def test_no_server_and_no_such_host(serve, tmp_path):
    url = serve()
    serve_nowhere = url.rsplit(":", 1)[0] + ":1"
    for nowhere in (serve_nowhere, "http://no-such-host.invalid"):
        with pytest.raises(DataError, match="Expected to fetch http") as failure:
            fetch_missing(tmp_path / "here", sources(nowhere))
        assert len(str(failure.value).splitlines()) == 1


def test_an_interrupt_leaves_nothing(serve, tmp_path, monkeypatch):
    def stop(bar, count):
        raise KeyboardInterrupt

    monkeypatch.setattr(Bar, "update", stop)
    with pytest.raises(KeyboardInterrupt):
        fetch_missing(tmp_path / "here", sources(serve()))
    assert os.listdir(tmp_path / "here") == []
