"""Downloads from a server of our own: kept once, refused when they are not what was asked for."""

import hashlib
import http.server
import threading
from collections import Counter
from pathlib import Path

import pytest

from bayesdiv.app.data.downloads import data_folder, fetch
from bayesdiv.app.data.splits import DataError

CONTENT = bytes(range(256)) * 1000
MD5 = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Server:
    """Files by path over HTTP; counts what is asked for, and can hang up in the middle."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()
        self.broken_off = False
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked[self.path] += 1
                content = server.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if server.broken_off else content)

            def log_message(self, *_: object) -> None:
                pass

        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
            self._http.server_close()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    started = Server()
    started.files["/rows.bin"] = CONTENT
    yield started
    started.stop()


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("BAYESDIV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kept(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


@pytest.mark.parametrize("file_hash", [MD5, SHA256, None])
def test_a_file_comes_once_and_then_from_the_cache(server, cache, file_hash):
    first = fetch(f"{server.address}/rows.bin", file_hash, "some/rows.bin")
    again = fetch(f"{server.address}/rows.bin", file_hash, "some/rows.bin")
    assert first == again == cache / "some" / "rows.bin"
    assert first.read_bytes() == CONTENT
    assert server.asked == {"/rows.bin": 1}
    assert kept(cache) == ["some/rows.bin"]


def test_a_file_in_the_cache_needs_no_connection(server, cache):
    fetch(f"{server.address}/rows.bin", SHA256, "rows.bin")
    server.stop()
    assert fetch(f"{server.address}/rows.bin", SHA256, "rows.bin").read_bytes() == CONTENT


def test_a_file_with_another_hash_is_refused_and_not_kept(server, cache):
    server.files["/rows.bin"] = CONTENT[:-1] + b"!"
    with pytest.raises(DataError) as caught:
        fetch(f"{server.address}/rows.bin", SHA256, "rows.bin")
    assert str(caught.value) == (
        f"rows.bin from {server.address}/rows.bin must have the hash {SHA256}, got another: the "
        "download is damaged or the file has changed, and nothing was kept"
    )
    assert kept(cache) == []


def test_a_file_that_was_damaged_in_the_cache_comes_again(server, cache):
    path = fetch(f"{server.address}/rows.bin", MD5, "rows.bin")
    path.write_bytes(b"damaged")
    assert fetch(f"{server.address}/rows.bin", MD5, "rows.bin").read_bytes() == CONTENT
    assert server.asked == {"/rows.bin": 2}


def test_a_download_that_breaks_off_is_refused_and_not_kept(server, cache):
    server.broken_off = True
    with pytest.raises(DataError, match="got no answer: check the connection"):
        fetch(f"{server.address}/rows.bin", None, "rows.bin")
    assert kept(cache) == []


def test_an_address_that_has_no_such_file_is_told_with_its_answer(server, cache):
    with pytest.raises(DataError, match="got the answer 404: check the connection, or set"):
        fetch(f"{server.address}/other.bin", None, "other.bin")


def test_without_a_connection_one_sentence_says_what_to_do(cache):
    with pytest.raises(DataError) as caught:
        fetch("http://127.0.0.1:9/rows.bin", SHA256, "rows.bin")
    assert str(caught.value) == (
        "rows.bin must come from http://127.0.0.1:9/rows.bin, got no answer: check the "
        "connection, or set BAYESDIV_DATA to a folder that holds the files"
    )


def test_a_cache_that_cannot_be_written_is_told(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("BAYESDIV_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set BAYESDIV_CACHE to another one"):
        fetch(f"{server.address}/rows.bin", None, "rows.bin")


def test_a_bar_shows_the_download_on_stderr_and_none_a_file_in_the_cache(
    server, cache, capsys, monkeypatch
):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    fetch(f"{server.address}/rows.bin", None, "rows.bin")
    out, shown = capsys.readouterr()
    assert "100%" in shown
    assert "256k" in shown  # bytes
    fetch(f"{server.address}/rows.bin", None, "rows.bin")
    assert out + "".join(capsys.readouterr()) == ""


def test_a_log_file_gets_no_bar_and_no_word_of_pooch(server, cache, capsys):
    fetch(f"{server.address}/rows.bin", None, "rows.bin")
    assert "".join(capsys.readouterr()) == ""


def test_the_data_folder_is_the_one_that_the_variable_names(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESDIV_DATA", str(tmp_path))
    assert data_folder() == tmp_path


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_there_is_no_data_folder(monkeypatch, value):
    monkeypatch.delenv("BAYESDIV_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("BAYESDIV_DATA", value)
    assert data_folder() is None


def test_a_data_folder_that_does_not_exist_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESDIV_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match=r"must name a folder that exists, got .*none"):
        data_folder()
