"""Downloads, from addresses on this disk: the code that fetches, checks and complains is the real one."""

from __future__ import annotations

import hashlib
import io
import shutil
import tarfile

import pytest

from orthornn.errors import DataError, MissingPackageError
from orthornn_evidence.files import download
from orthornn_evidence.files.download import fetch_missing
from orthornn_evidence.tasks import PixelMNIST, Speech
from orthornn_evidence.tasks import speech as speech_module
from support.made_sounds import wav

pytest.importorskip("pooch")


@pytest.fixture(autouse=True)
def from_disk(monkeypatch):
    """pooch hands address and place to a downloader; this one copies, and tells the bar."""

    def copy(url, output, _pooch, bar):
        content = open(url.removeprefix("file://"), "rb").read()  # noqa: SIM115
        bar.total = len(content)
        bar.reset()
        bar.update(len(content))
        output.write(content) if hasattr(output, "write") else open(output, "wb").write(content)  # noqa: SIM115
        bar.close()

    monkeypatch.setattr(
        download, "downloader", lambda pooch, bar: lambda url, output, pooch: copy(url, output, pooch, bar)
    )


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "there" / "a.bin"
    path.parent.mkdir()
    path.write_bytes(b"content")
    return path


def test_a_missing_file_is_fetched_once(source, tmp_path, capsys):
    known = "sha256:" + hashlib.sha256(b"content").hexdigest()
    for _ in range(2):
        fetch_missing(tmp_path / "here", {"a.bin": (f"file://{source}", known)})
        assert (tmp_path / "here" / "a.bin").read_bytes() == b"content"
        source.unlink(missing_ok=True)
    assert f"fetching file://{source}" in capsys.readouterr().err


def test_the_bar_shows_megabytes_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    bar = download.Bar("a.bin")
    bar.total = 4_000_000
    bar.update(1_000_000)
    bar.close()
    assert "a.bin [########                      ] 1.0 of 4.0 MB" in capsys.readouterr().err


def test_another_file_than_expected_is_not_kept(source, tmp_path):
    with pytest.raises(DataError, match=r"Expected to fetch file://.*put it into .*--data FOLDER"):
        fetch_missing(tmp_path / "here", {"a.bin": (f"file://{source}", "sha256:" + "0" * 64)})
    assert not (tmp_path / "here" / "a.bin").exists()
    source.unlink()
    with pytest.raises(DataError, match="Expected to fetch"):
        fetch_missing(tmp_path / "here", {"a.bin": (f"file://{source}", "sha256:" + "0" * 64)})


def test_without_pooch_it_says_what_to_install(source, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(MissingPackageError, match=r"the package pooch for downloads, .* Install the extra data"):
        fetch_missing(tmp_path / "here", {"a.bin": (f"file://{source}", "sha256:" + "0" * 64)})


def test_pixel_mnist_asks_for_the_four_files_it_checks(tmp_path, monkeypatch):
    asked = {}
    monkeypatch.setattr(
        "orthornn_evidence.tasks.pixel_mnist.fetch_missing", lambda folder, sources: asked.update(sources)
    )
    with pytest.raises(DataError, match="or fetch them into it with download=True, --download"):
        PixelMNIST(data=str(tmp_path), download=True).objective().trivial_loss  # noqa: B018
    assert len(asked) == 4
    assert all(url.endswith(name) and known.startswith("sha256:") for name, (url, known) in asked.items())


def test_librispeech_is_unpacked_a_folder_a_speaker(tmp_path, monkeypatch):
    soundfile = pytest.importorskip("soundfile")
    archive = tmp_path / "test-clean.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for speaker in range(4):
            content = io.BytesIO()
            samples, rate = soundfile.read(io.BytesIO(wav(speaker, 800)))
            soundfile.write(content, samples, rate, format="FLAC")
            info = tarfile.TarInfo(f"LibriSpeech/test-clean/{speaker}/7/{speaker}-7.flac")
            info.size = len(content.getvalue())
            tar.addfile(info, io.BytesIO(content.getvalue()))
    known = "sha256:" + hashlib.sha256(archive.read_bytes()).hexdigest()
    monkeypatch.setattr(speech_module, "LIBRISPEECH", {"test-clean.tar.gz": (f"file://{archive}", known)})
    folder = tmp_path / "speech"
    task = Speech(data=str(folder), download=True)
    assert len(task._train.names) == 2
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["0", "1", "2", "3"]
    shutil.rmtree(folder / "0")
    assert len(Speech(data=str(folder), download=True)._train.names) == 1  # what is there is not fetched again
