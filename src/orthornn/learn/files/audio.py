"""Sound files in and out: 16-bit WAV by the standard library, everything else by libsndfile (package soundfile)."""

from __future__ import annotations

import io
import struct
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._files import READ, system_errors, write_bytes
from ..._optional_packages import import_optional
from ..._warnings import warn
from ...errors import DataError
from .inflate import check_inflated, largest
from .sound_sizes import sizes_of

SUFFIXES = (".wav", ".flac", ".ogg")
_FASTEST = 1_000_000  # Hz
_SAMPLE = 4  # bytes
_LISTED = 5  # in a message
_BLOCK = 1 << 16  # samples that are read at once
_ENDLESS = 1 << 62  # samples: libsndfile has more than these where a header does not tell
# Formats whose headers tell whether a file is whole, by libsndfile's names; MP3 is a stream. It knows more of them.
_FORMATS = ("WAV", "WAVEX", "RF64", "FLAC", "OGG", "NIST", "AIFF", "AU", "W64", "MP3")


def read_audio(
    source: Path | bytes, name: str = "", first: int = 0, count: int = -1, ends: list[str] | None = None
) -> tuple[np.ndarray, int]:
    """Return (samples (n,) float32 in [-1, 1), rate in Hz); channels are averaged.

    source: a path, or the bytes of a file that `name` tells of. first, count: which samples; all unless given.
    ends: To which the name is appended of a sound whose end is not known, see `warn_of_ends`. None: it warns.
    Raises DataError if it is missing, truncated or no sound file, or ends before the samples that were asked for.
    """
    name = name or str(source)
    if isinstance(source, Path):
        if source.exists() and not source.is_file():  # a pipe would be waited for
            raise DataError(f"Expected {name} to be a sound file, but got a pipe, a device or a folder. Remove it.")
        with system_errors(f"to read {name}", READ):
            content = source.read_bytes()
    else:
        content = source
    sizes = sizes_of(content)
    content = sizes.content
    if sizes.truncated and sizes.samples is None and count < 0:
        raise _truncated(name, "its header promises more bytes than are there")
    if not sizes.marked and count < 0:
        _note_end(name, ends)
    if sizes.more:
        warn(
            f"{name} has {sizes.more} bytes behind the samples that its header promises, which are not read. Its writer may "
            f"have been stopped, or it is two files in one. To silence this, save it again."
        )
    if content[:4] == b"RIFF":
        found = _read_wave(content, name, first, count)
        if found is not None:
            return found
    soundfile = import_optional("soundfile", "speech", "sound files other than 16-bit WAV")
    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            rate = file.samplerate
            _check_format(name, file)
            if file.frames > _ENDLESS:
                samples = _read_stream(name, file, len(content), soundfile.LibsndfileError)
                if count < 0:
                    _note_end(name, ends)
                _check_range(name, first, count, len(samples))
                samples = samples[first : None if count < 0 else first + count]
                wanted = len(samples)
            else:
                total = file.frames if sizes.samples is None else sizes.samples
                _check_range(name, first, count, total)
                wanted = total - first if count < 0 else count
                if first + wanted > file.frames:
                    _check_whole(name, max(0, file.frames - first), wanted)
                advice = "Divide the sound into shorter files, or fetch it again."
                check_inflated(name, len(content), wanted * file.channels * _SAMPLE, advice)
                if first:  # some formats can only be read from their beginning
                    file.seek(first)
                samples = _read_samples(file, wanted)
    except DataError:
        raise
    except Exception as error:  # libsndfile's own, and those of numbers in a header that no array fits
        reason = getattr(error, "error_string", error)
        if content[:4] in (b"fLaC", b"OggS"):
            raise _truncated(name, f"libsndfile has: {reason}", "or damaged") from error
        raise DataError(
            f"Expected WAV, FLAC, OGG or NIST SPHERE, but {name} is not a readable sound file: "
            f"{reason} (it begins with {content[:4].hex(' ') or 'nothing'}). If it was "
            f"downloaded, fetch it again."
        ) from error
    _check_whole(name, len(samples), wanted)
    if not np.isfinite(samples).all():
        raise DataError(
            f"Expected finite samples in {name}, but got {int((~np.isfinite(samples)).sum())} that are NaN or infinite. "
            f"Export the sound again, as 16-bit WAV."
        )
    return samples, _check_rate(name, rate)


def _note_end(name: str, ends: list[str] | None) -> None:
    if ends is None:
        warn_of_ends([name])
    else:
        ends.append(name)


def warn_of_ends(names: Sequence[str]) -> None:
    """Warn about sounds whose files do not record their end, so a truncated file cannot be detected."""
    if not names:
        return
    several, more = len(names) > 1, len(names) > _LISTED
    warn(
        f"{', '.join(sorted(names)[:_LISTED])}{', ...' * more}: {'these sounds do' if several else 'this sound does'} not "
        f"say where {'they end' if several else 'it ends'}, as a WAV or FLAC file that was written to a pipe, or an Ogg file "
        f"without its last page: {'each' if several else 'it'} may be the beginning of a longer one. To silence this, save "
        f"{'them' if several else 'it'} again, with the sizes."
    )


def write_wav(path: Path, samples: np.ndarray, rate: int) -> None:
    """Write 16-bit mono atomically; samples beyond [-1, 1) are cut."""
    cut = np.clip(np.rint(np.asarray(samples, np.float64) * 32768), -32768, 32767).astype("<i2")
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(cut.tobytes())
    write_bytes(path, content.getvalue())


def resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Return samples at another rate by a polyphase filter (scipy's resample_poly)."""
    if rate == wanted:
        return samples
    signal = import_optional("scipy.signal", "data", "sounds of another sampling rate")
    common = np.gcd(rate, wanted)
    return signal.resample_poly(samples.astype(np.float64), wanted // common, rate // common).astype(np.float32)


def _read_wave(content: bytes, name: str, first: int, count: int) -> tuple[np.ndarray, int] | None:
    """Do the same as read_audio, or return None for a WAV that the standard library cannot read."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            channels, total = file.getnchannels(), file.getnframes()
            if file.getsampwidth() != 2:
                return None
            _check_range(name, first, count, total)
            file.setpos(first)
            wanted = total - first if count < 0 else count
            raw = file.readframes(wanted)
            rate = file.getframerate()
    except EOFError as error:
        raise DataError(
            f"Expected a whole header, but {name} is truncated: it ends early. Fetch the file again."
        ) from error
    except (wave.Error, ArithmeticError, RuntimeError, struct.error):
        return None
    _check_rate(name, rate)
    _check_whole(name, len(raw) // (2 * channels), wanted)
    return np.frombuffer(raw, "<i2").reshape(-1, channels).mean(1, dtype=np.float32) / np.float32(32768), rate


def _read_samples(file: Any, wanted: int) -> np.ndarray:
    """Return the next samples (n,), or fewer if the file ends: in blocks, since a damaged header may promise too
    many.
    """
    pieces = [np.empty(0, np.float32)]
    while wanted:
        piece = file.read(min(wanted, _BLOCK), dtype="float32", always_2d=True).mean(1)
        if not len(piece):
            break
        pieces.append(piece)
        wanted -= len(piece)
    return np.concatenate(pieces)


def _read_stream(name: str, file: Any, size: int, error_of_library: type[Exception]) -> np.ndarray:
    """Return the samples (n,) of a file whose header does not tell how many there are, up to its end.

    size: Bytes of the file.
    """
    pieces, total, ended = [], 0, False
    while not ended:
        piece = np.full((_BLOCK, file.channels), np.nan, np.float32)
        try:
            file.read(out=piece)
        except error_of_library as error:  # behind the last sample it looks for the place to go on from, in vain
            if "seek" not in str(error):
                raise
            ended = True
        there = int(np.isfinite(piece).all(1).sum())  # whole numbers become samples, so that NaN is where none was
        ended = ended or there < _BLOCK
        total += there * file.channels * _SAMPLE
        if total > largest(size):
            check_inflated(name, size, total, "Divide the sound into shorter files, or fetch it again.")
        pieces.append(piece[:there].mean(1))
    return np.concatenate(pieces)


def _check_format(name: str, file: Any) -> None:
    """Raise DataError for a format whose files cannot be seen to be whole, or one whose header has another size."""
    if file.format not in _FORMATS:
        raise DataError(
            f"Expected WAV, FLAC, OGG or NIST SPHERE, but {name} is {file.format_info}. Convert it to one of them."
        )
    if file.format in ("AIFF", "AU", "W64") and "(should be" in file.extra_info:
        raise _truncated(name, "its header promises another length")


def _truncated(name: str, reason: str, more: str = "") -> DataError:
    return DataError(
        f"Expected a whole sound file, but {name} is truncated{more and ' '}{more}: {reason}. Fetch the file again."
    )


def _check_rate(name: str, rate: int) -> int:
    if not 1 <= rate <= _FASTEST:
        raise DataError(
            f"Expected a sampling rate between 1 and {_FASTEST} Hz in {name}, but got {rate}. Fetch the file again."
        )
    return rate


def _check_range(name: str, first: int, count: int, total: int) -> None:
    if not total:
        raise DataError(f"Expected a sound, but {name} has no samples. Leave it out.")
    if first + max(count, 1) > total:
        raise DataError(
            f"Expected {max(count, 1)} samples from sample {first} on, but {name} has {total} samples. Choose an "
            f"earlier start."
        )


def _check_whole(name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise DataError(
            f"Expected the {wanted} samples that the header of {name} promises, but got {found}: it is "
            f"truncated. Fetch the file "
            f"again."
        )
