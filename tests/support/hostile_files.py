"""Data files of every kind, their mutants, and files made to harm whoever opens them."""

from __future__ import annotations

import gzip
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from orthornn.errors import DataError
from orthornn.learn.files.audio import read_audio
from orthornn.learn.files.columns import read_columns
from orthornn.learn.files.row_numbers import numbers_rows
from support.made_sounds import wav

LARGEST = 64 << 20  # bytes that reading a file of a few kilobytes may take


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy_of(header: str, body: bytes = b"") -> bytes:
    """A .npy file with this header, right or wrong."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def npz(compressed: bool = True, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **arrays)
    return file.getvalue()


def zipped(*entries: tuple[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return file.getvalue()


def wave_of(channels: int, rate: int, width: int, align: int, data: bytes, promised: int | None = None) -> bytes:
    """A WAV file whose header says this, right or wrong."""
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, rate * align & 0xFFFFFFFF, align, width)
    body = form + struct.pack("<4sI", b"data", len(data) if promised is None else promised) + data
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def parquet(folder: Path) -> bytes:
    import pyarrow
    from pyarrow import parquet

    table = {"id": ["a", "a", "b"], "x": [1.0, None, 3.0], "n": [1, 2, 3], "on": [True, False, None]}
    parquet.write_table(pyarrow.table(table), folder / "made.parquet")
    return (folder / "made.parquet").read_bytes()


def feather(folder: Path) -> bytes:
    import pyarrow
    from pyarrow import feather

    table = {"id": ["a", "a", "b"], "x": [1.0, None, 3.0], "n": [1, 2, 3], "on": [True, False, None]}
    feather.write_feather(pyarrow.table(table), folder / "made.feather")
    return (folder / "made.feather").read_bytes()


def sound(folder: Path, kind: str, subtype: str | None = None) -> bytes:
    import soundfile

    soundfile.write(folder / f"made.{kind}", np.sin(np.arange(600) / 9), 8000, subtype=subtype)
    return (folder / f"made.{kind}").read_bytes()


X = np.random.default_rng(1).standard_normal((4, 5, 2))
TS = "@dimensions 2\n@equalLength false\n@classLabel true up down\n@data\n"
GOOD: dict[str, Callable[[Path], bytes]] = {
    "csv": lambda folder: b'id,x,when,on\na,1.5,2020-01-02,true\n"b,c",,2020-01-03T10:00:00+01:00,false\nb,3e-2,,\n',
    "tsv": lambda folder: b'id\tx\ty\na\t1.234,5\t2024-01-01\n"b"\t0,25\t\nc\t\tN/A\n',
    "csv.gz": lambda folder: gzip.compress(b"id,x,y\na,1.5,2\nb,2.5,3\n" * 9),
    "feather": feather,
    "ts": lambda folder: (TS + "1,2.5,?:4,5,6:up\n-1,2:3,4e2:down\n").encode(),
    "npy": lambda folder: npy(X),
    "npz": lambda folder: npz(x=X, y=np.arange(4), lengths=np.array([1, 5, 2, 3]), mask=np.ones((4, 5), bool)),
    "stored.npz": lambda folder: npz(False, a=np.arange(9), b=np.array(["u", "v", "w"] * 3)),
    "parquet": parquet,
    "wav": lambda folder: wav(0, 300, channels=2),
    "24.wav": lambda folder: sound(folder, "wav", "PCM_24"),
    "law.wav": lambda folder: sound(folder, "wav", "ULAW"),
    "flac": lambda folder: sound(folder, "flac"),
    "ogg": lambda folder: sound(folder, "ogg"),
}


def read(path: Path) -> object:
    """The content of a data file, as a task reads it."""
    if path.suffix in (".wav", ".flac", ".ogg"):
        return read_audio(path)
    columns = read_columns(path)
    for name in columns.columns:
        for use in (columns.kind, lambda name: numbers_rows(name, columns.columns[name])):
            use(name)
        for words in (columns.numbers, columns.labels, columns.order):
            try:
                words(name, "inputs")
            except DataError:
                continue
    return columns


def outcome(path: Path, read: Callable[[Path], object] = read) -> str:
    """ "read" or "refused"; any other error, and more memory than LARGEST, is a failure."""
    tracemalloc.start()
    try:
        read(path)
        return "read"
    except DataError as error:
        message = str(error)
        assert path.name in message
        assert len(message) < 1500
        return "refused"
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < LARGEST, f"{path}: {peak} bytes"


def mutants(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Truncated, with bytes changed, with numbers made huge, with a part cut out, doubled or replaced by noise."""
    random = np.random.default_rng(seed)
    for number in range(count):
        data, place = bytearray(content), int(random.integers(len(content)))
        kind = number % 7
        if kind == 0:
            data = data[:place]
        elif kind == 1:
            data[place] ^= int(random.integers(1, 256))
        elif kind == 2:
            for at in random.integers(len(content), size=int(random.integers(2, 9))):
                data[at] = int(random.integers(256))
        elif kind == 3:
            size = int(random.choice([1, 2, 4, 8]))
            data[place : place + size] = random.choice([b"\xff", b"\x00", b"\x7f", b"9"]) * size
        elif kind == 4:
            del data[place : place + int(random.integers(1, 50))]
        elif kind == 5:
            data[place:place] = data[place : place + int(random.integers(1, 50))]
        else:
            data[place:place] = random.bytes(int(random.integers(1, 30)))
        yield bytes(data)


def promising(content: bytes, size: int) -> bytes:
    """An archive whose table of contents promises this size for its first entry."""
    at = content.index(b"PK\x01\x02") + 24
    return content[:at] + struct.pack("<I", size) + content[at + 4 :]


def _many_rows(folder: Path) -> bytes:
    """A Parquet file of a few kilobytes with 40 million rows."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({name: pyarrow.nulls(40 << 20) for name in "abcd"})
    parquet.write_table(table, folder / "rows.parquet", compression="zstd")
    return (folder / "rows.parquet").read_bytes()


def _sound_of(values: Sequence[float]) -> bytes:
    """A WAV file of these samples as float32."""
    data = np.array(values, "<f4").tobytes()
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 1, 8000, 32000, 4, 32)
    body = form + struct.pack("<4sI", b"data", len(data)) + data
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def _of_arrow(folder: Path, **columns: object) -> bytes:
    """A Parquet file of these columns; "period": numbers that pandas knows as months."""
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table(columns)
    if "period" in columns:
        about = {"ARROW:extension:name": "pandas.period", "ARROW:extension:metadata": '{"freq": "M"}'}
        place = table.schema.get_field_index("period")
        table = table.cast(table.schema.set(place, table.schema.field(place).with_metadata(about)))
    parquet.write_table(table, folder / "of_arrow.parquet")
    return (folder / "of_arrow.parquet").read_bytes()


F8 = "{'descr': '<f8', 'fortran_order': False, 'shape': "
# file name: its content, and a part of the message; None where the file is read
HOSTILE: dict[str, tuple[Callable[[Path], bytes], str | None]] = {
    "huge.npy": (lambda folder: npy_of(f"{F8}(1000000000000,), }}"), "promises 1000000000000 entries"),
    "huge_product.npy": (lambda folder: npy_of(f"{F8}({10**9}, {10**9}, {10**9}), }}"), "entries of 8 bytes"),
    "digits.npy": (lambda folder: npy_of(f"{F8}({'9' * 4000},), }}"), "entries of 8 bytes|header"),
    "negative.npy": (lambda folder: npy_of(f"{F8}(-1,), }}", bytes(80)), "promises -1 entries"),
    "no_bytes.npy": (lambda folder: npy_of("{'descr': '<U0', 'fortran_order': False, 'shape': (10**9,), }"), "header"),
    "empty_text.npy": (
        lambda folder: npy_of("{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000,), }"),
        "that are numbers, text or dates",
    ),
    "objects.npy": (
        lambda folder: npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"cos\n"),
        "entries",
    ),
    "records.npy": (lambda folder: npy(np.zeros(3, [("a", "f8"), ("b", "i4")])), "that are numbers, text or dates"),
    "call.npy": (lambda folder: npy_of(f"{F8}(__import__('os').getpid(),), }}"), "header"),
    "deep.npy": (lambda folder: npy_of("(" * 9000), "header"),
    "long.npy": (lambda folder: npy(X) + b"more", "bytes follow"),
    "flat.npy": (lambda folder: npy(np.float64(3)), "of shape \\(time,\\)"),
    "none.npy": (lambda folder: npy(np.zeros((0, 3))), "no rows"),
    "no_columns.npy": (lambda folder: npy(np.zeros((3, 0))), "no rows"),
    "small.npz": (lambda folder: promising(npz(x=np.zeros((50, 100, 20))), 200), "Bad CRC-32|bytes follow"),
    "bomb.npz": (lambda folder: promising(npz(x=X), 3 << 30), "at most 1073741824 bytes when decompressed"),
    "twice.npz": (lambda folder: zipped(("x.npy", npy(X)), ("x.npy", npy(2 * X))), "is duplicated"),
    "other.npz": (
        lambda folder: zipped(("x.npy", npy(X)), ("readme.txt", b"hello")),
        "'readme.txt', which is no array",
    ),
    "unknown.npz": (lambda folder: npz(x=X, weights=np.ones(4)), "Expected only x, y, lengths, mask"),
    "half_lengths.npz": (lambda folder: npz(x=X, lengths=np.array([1, 2.5, 2, 2])), "whole numbers .* but got 2.5"),
    "nan_lengths.npz": (lambda folder: npz(x=X, lengths=np.array([1, np.nan, 2, 2])), "whole numbers .* but got nan"),
    "long_lengths.npz": (lambda folder: npz(x=X, lengths=np.array([1, 6, 2, 2])), "between 1 and 5"),
    "no_lengths.npz": (lambda folder: npz(x=X, lengths=np.array([1, 0, 2, 2])), "but got 0 for sequence 1"),
    "true_lengths.npz": (lambda folder: npz(x=X, lengths=np.ones(4, bool)), "Expected whole numbers .* got bool"),
    "not_utf8.npz": (lambda folder: npz(a=np.array([b"\xff"])), "not UTF-8"),
    "digits.csv": (lambda folder: b"key,x\n" + b"9" * 5000 + b",1\n7,2\n", None),
    "field.csv": (lambda folder: b'x,y\n"' + b"9" * 200_000 + b'",1\n', "larger than field limit"),
    "utf16.csv": (lambda folder: "x,y\n1,2\n".encode("utf-16"), "a CSV file in UTF-8, but .*UTF-16"),
    "gap.csv": (lambda folder: b"x,y\n1,2\n\n3,4\n", "line 3, has 0"),
    "channels.wav": (lambda folder: wave_of(0, 8000, 16, 0, bytes(8)), "sound file"),
    "rate.wav": (lambda folder: wave_of(1, 0, 16, 2, bytes(8)), "rate between 1 and|sound file"),
    "fast.wav": (lambda folder: wave_of(1, 2**32 - 1, 16, 2, bytes(8)), "rate between 1 and|sound file"),
    "width.wav": (lambda folder: wave_of(1, 8000, 0, 0, bytes(8)), "sound file"),
    "long.wav": (lambda folder: wave_of(1, 8000, 16, 2, bytes(8), 3 << 30), "truncated|sound file"),
    "long_24_bits.wav": (lambda folder: wave_of(1, 8000, 24, 3, bytes(9), 3 << 30), "truncated|sound file"),
    "long_law.wav": (lambda folder: wave_of(1, 8000, 4, 3, bytes(9), 3 << 30), "truncated|sound file"),
    "chunks.wav": (lambda folder: b"RIFF\0\0\0\0WAVE" + b"junk\0\0\0\0" * 200_000, "sound file"),
    "pages.ogg": (lambda folder: b"OggS" + bytes(22) + b"\xff" + b"\xff" * 200, "truncated"),
    "stream.wav": (lambda folder: wave_of(1, 8000, 16, 2, bytes(8), 2**32 - 1), None),
    "many_channels.wav": (lambda folder: wave_of(65535, 8000, 16, 65535 * 2 & 0xFFFF, bytes(8)), "Expected|sound file"),
    "nan.wav": (lambda folder: _sound_of([0.5, float("nan")] * 9), "finite samples in .* but got 9"),
    "infinite.wav": (lambda folder: _sound_of([0.5, float("inf")]), "finite samples in .* but got 1 "),
    "float.wav": (lambda folder: _sound_of([0.5, -0.5] * 9), None),
    "deep_chunk.wav": (lambda folder: wav(0)[:12] + b"LIST" + struct.pack("<I", 2**32 - 16) + wav(0), "sound file"),
    "one.ts": (lambda folder: (TS.replace("2", "1\n@univariate true") + "1,2:3,4:up\n").encode(), "1 channels"),
    "univariate.ts": (lambda folder: b"@univariate true\n@data\n1,2:3,4\n", "one channel in .* but got 2"),
    "separators.ts": (lambda folder: (TS + "1,2:3,4:up\x0b1,2:3,4:down\n").encode(), "Expected"),
    "cut.ts": (lambda folder: (TS + "1,2:3,4:up\n1,2:3,4").encode(), "channels|class"),
    "promise.ts": (lambda folder: (TS.replace("2", "9" * 4000) + "1,2:3,4:up\n").encode(), "channels in"),
    "nested.parquet": (lambda folder: _of_arrow(folder, a=[[1, 2], [3]], b=[{"c": 1}, {"c": 2}], x=[1, 2]), None),
    "period.parquet": (lambda folder: _of_arrow(folder, period=[600, 601], x=[1, 2]), "but got pandas.period"),
    "rows.parquet": (_many_rows, "at most 1073741824 bytes when decompressed"),
}
