from __future__ import annotations

import io
import os
import struct
import warnings

import numpy as np
import pytest

from orthornn.errors import DataError, OrthornnWarning
from orthornn.learn.files.audio import read_audio, resample, write_wav
from orthornn.learn.files.sound_folder import SoundFormat, read_sounds
from support.made_sounds import wav


def test_what_is_written_is_read_back(tmp_path):
    sound = np.array([0, 0.5, -1, 32767 / 32768, 2, -2], np.float32)
    write_wav(tmp_path / "a.wav", sound, 11025)
    found, rate = read_audio(tmp_path / "a.wav")
    assert rate == 11025
    assert found.tolist() == [0, 0.5, -1, 32767 / 32768, 32767 / 32768, -1]
    assert read_audio(tmp_path / "a.wav", first=2, count=3)[0].tolist() == found[2:5].tolist()


@pytest.mark.parametrize(("suffix", "kind"), [("flac", "FLAC"), ("wav", "NIST"), ("wav", "WAV")])
def test_other_formats_hold_the_same_samples(tmp_path, suffix, kind):
    soundfile = pytest.importorskip("soundfile")
    sound = np.random.default_rng(0).integers(-3000, 3000, 500).astype(np.int16)
    subtype = "PCM_24" if kind == "WAV" else "PCM_16"
    soundfile.write(tmp_path / f"a.{suffix}", sound.astype(np.float64) / 32768, 16000, format=kind, subtype=subtype)
    found, rate = read_audio(tmp_path / f"a.{suffix}")
    assert rate == 16000
    assert np.array_equal(np.rint(found * 32768), sound)


def test_channels_are_averaged(tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(0, 100, channels=2))
    raw = np.frombuffer(wav(0, 100, channels=2)[44:], "<i2").reshape(-1, 2)
    assert np.array_equal(read_audio(tmp_path / "a.wav")[0], (raw.astype(np.float32).mean(1) / 32768))


BROKEN = {
    "the 1200 samples that the header of .* promises, but got 400": lambda content: content[: 44 + 800],
    "is truncated: it ends early": lambda content: content[:20],
    "not a readable sound file": lambda content: b"nothing of the kind",
    "begins with nothing": lambda content: b"",
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_bad_file_is_one_clear_error(tmp_path, message):
    pytest.importorskip("soundfile")
    path = tmp_path / "a.wav"
    path.write_bytes(BROKEN[message](wav(0)))
    with pytest.raises(DataError, match=message) as caught:
        read_audio(path)
    assert "a.wav" in str(caught.value)
    with pytest.raises(DataError, match="Expected to read"):
        read_audio(tmp_path / "none.wav")
    path.write_bytes(wav(0))
    with pytest.raises(DataError, match=r"Expected 800 samples from sample 401 on, but .* has 1200 samples"):
        read_audio(path, first=401, count=800)


NOISE = np.random.default_rng(5).uniform(-0.5, 0.5, (1501, 1))
KINDS = {
    **{f"wav-{kind}": ("WAV", kind) for kind in ("PCM_16", "PCM_24", "PCM_32", "PCM_U8", "FLOAT", "DOUBLE")},
    **{f"wav-{kind}": ("WAV", kind) for kind in ("ULAW", "ALAW", "IMA_ADPCM", "MS_ADPCM", "GSM610")},
    **{f"{kind}-24": (kind, "PCM_24") for kind in ("WAVEX", "RF64", "FLAC", "AIFF", "AU", "W64")},
    "nist-16": ("NIST", "PCM_16"),
    "nist-law": ("NIST", "ULAW"),
    "flac-16": ("FLAC", "PCM_16"),
    "ogg-vorbis": ("OGG", "VORBIS"),
    "ogg-opus": ("OGG", "OPUS"),
}
OTHERS = {"caf": ("CAF", "PCM_16")}


def sound_of(kind: str, samples: np.ndarray = NOISE, endian: str = "FILE") -> bytes:
    """A file of a format and a subtype of libsndfile, at 16 kHz."""
    soundfile = pytest.importorskip("soundfile")
    file = io.BytesIO()
    container, subtype = {**KINDS, **OTHERS}[kind]
    soundfile.write(file, samples, 16000, format=container, subtype=subtype, endian=endian)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore:.*does not say where it ends")
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_never_read_as_a_shorter_sound(kind):
    """Wherever it ends; the last byte may be padding."""
    whole = sound_of(kind, NOISE if kind == "wav-GSM610" else np.repeat(NOISE, 2, 1))
    found = read_audio(whole, "a.wav")[0]
    assert len(found) >= len(NOISE)
    for cut in (*np.linspace(1, len(whole) - 40, 40, dtype=int), len(whole) - 3, len(whole) - 2):
        with pytest.raises(DataError, match=r"a\.wav"):
            read_audio(whole[:cut], "a.wav")


@pytest.mark.parametrize("kind", ["wav-PCM_16", "wav-PCM_24", "wav-FLOAT", "wav-ULAW", "nist-16", "RF64-24"])
def test_the_samples_before_a_cut_can_be_asked_for(kind):
    whole = sound_of(kind)
    cut = whole[: len(whole) * 2 // 3]
    expected = read_audio(whole)[0][100:300]
    assert read_audio(cut, first=100, count=200)[0].tolist() == expected.tolist()
    with pytest.raises(
        DataError, match=r"the 1000 samples that the header of a\.wav promises, but got \d+: it is trunc"
    ):
        read_audio(cut, "a.wav", first=500, count=1000)
    with pytest.raises(DataError, match="has 1501 samples"):
        read_audio(cut, first=500, count=1002)


def test_an_ogg_file_without_its_last_pages_is_told():
    whole = sound_of("ogg-vorbis", np.random.default_rng(6).uniform(-1, 1, (80_000, 1)))
    pages = [place for place in range(len(whole)) if whole[place : place + 4] == b"OggS"]
    assert len(pages) > 4
    with pytest.warns(OrthornnWarning, match=r"a\.ogg: this sound does not say where it ends"):
        assert len(read_audio(whole[: pages[-1]], "a.ogg")[0]) < 80_000
    with pytest.raises(DataError, match=r"a\.ogg is truncated"):
        read_audio(whole[: pages[-1] + 100], "a.ogg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_audio(whole, "a.ogg")[0]) == 80_000


def streamed(content: bytes, size: int, riff: int | None = None) -> bytes:
    """A WAV file with these sizes in its header, as a program leaves them that writes to a pipe, or is killed."""
    order, place, changed = ">" if content[:4] == b"RIFX" else "<", content.index(b"data"), bytearray(content)
    struct.pack_into(f"{order}I", changed, 4, size if riff is None else riff)
    struct.pack_into(f"{order}I", changed, place + 4, size)
    return bytes(changed)


STREAMS = {
    "zero": (0, None),
    "killed": (0, 36),
    "ffmpeg": (0xFFFFFFFF, None),
    "espeak": (0x7FFFF000, 0x7FFFF024),
    "lame": (0x7FFFFFFF, None),
    "arecord": (0x80000000, 0x80000024),
    "headers": (0x7FFFFFFF - 44, 0x7FFFFFFF - 8),
}


@pytest.mark.filterwarnings("ignore:.*does not say where it ends")
@pytest.mark.parametrize("sizes", STREAMS)
@pytest.mark.parametrize("kind", ["wav-PCM_16", "wav-PCM_24", "wav-PCM_U8", "wav-FLOAT", "wav-ALAW", "WAVEX-24"])
def test_a_wav_file_of_a_stream_is_read_to_its_end(kind, sizes):
    for sound in (NOISE, np.repeat(NOISE, 2, 1)):
        whole = sound_of(kind, sound)
        start = whole.index(b"data") + 8
        whole = whole[: start + struct.unpack_from("<I", whole, start - 4)[0]]  # without chunks behind, and padding
        expected, rate = read_audio(whole)
        for more in (b"", b"\0"):  # a frame that was not written to its end is none
            found, its_rate = read_audio(streamed(whole, *STREAMS[sizes]) + more * (sound.shape[1] > 1))
            assert its_rate == rate
            assert found.tolist() == expected.tolist()
        assert read_audio(streamed(whole, *STREAMS[sizes]), first=7, count=50)[0].tolist() == expected[7:57].tolist()


@pytest.mark.filterwarnings("ignore:.*does not say where it ends")
def test_big_endian_and_64_bit_sizes_of_streams():
    whole = sound_of("wav-PCM_24", endian="BIG")
    assert whole.startswith(b"RIFX")
    expected = read_audio(whole)[0].tolist()
    assert read_audio(streamed(whole, 0xFFFFFFFF))[0].tolist() == expected
    whole = sound_of("RF64-24")
    place = whole.index(b"ds64") + 8
    for size in (0, 2**64 - 1):
        found = whole[:place] + struct.pack("<QQ", size, size) + whole[place + 16 :]
        assert read_audio(found)[0].tolist() == expected


@pytest.mark.filterwarnings("ignore:.*does not say where it ends")
@pytest.mark.parametrize("count", [1501, 1 << 16, 3 * (1 << 16) + 1])
def test_flac_of_a_stream_is_read_to_its_end(count):
    sound = np.random.default_rng(7).uniform(-0.5, 0.5, (count, 2))
    whole = sound_of("FLAC-24", sound)
    stream = bytearray(whole)
    stream[8 + 13] &= 0xF0  # the lowest 36 bits of these 5 bytes: how many samples there are; 0 if unknown
    stream[8 + 14 : 8 + 18] = bytes(4)
    expected = read_audio(whole)[0]
    assert np.array_equal(read_audio(bytes(stream))[0], expected)
    assert np.array_equal(read_audio(bytes(stream), first=3, count=700)[0], expected[3:703])
    with pytest.raises(DataError, match=rf"a\.flac has {count} samples"):
        read_audio(bytes(stream), "a.flac", first=3, count=count)
    with pytest.raises(DataError, match=r"a\.flac is truncated or damaged"):
        read_audio(bytes(stream[: len(stream) * 3 // 5]), "a.flac")


def test_a_recording_whose_header_does_not_say_where_it_ends_is_told(tmp_path):
    """It may have been cut anywhere, and nothing in the file would show it."""
    whole = sound_of("wav-PCM_16")
    place = whole.index(b"data") + 8
    flac = bytearray(sound_of("FLAC-24", NOISE))
    flac[8 + 13] &= 0xF0
    flac[8 + 14 : 8 + 18] = bytes(4)
    cut = {sizes: streamed(whole, *STREAMS[sizes])[: place + 2000] for sizes in STREAMS}
    for name, content in {**cut, "flac": bytes(flac)}.items():
        with pytest.warns(
            OrthornnWarning, match="a: this sound does not say where it ends, as a WAV or FLAC file that"
        ):
            read_audio(content, "a")
        (tmp_path / f"{name}.{'flac' if name == 'flac' else 'wav'}").write_bytes(content)
    with pytest.warns(OrthornnWarning) as told:
        read_sounds(tmp_path, SoundFormat())
    assert [str(warning.message).partition(",")[0] for warning in told] == [f"{tmp_path / 'arecord.wav'}"]
    assert ", ...: these sounds do not say where they end" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_audio(cut["zero"], "a", first=3, count=700)  # which are there
        read_audio(whole, "a")


@pytest.mark.parametrize("kind", ["wav-PCM_16", "wav-PCM_24"])
@pytest.mark.parametrize("behind", [b"", b"LIST\4\0\0\0INFO", b"LIST\3\0\0\0abc\0id3 \0\0\0\0"])
def test_an_empty_sound_is_none_whatever_chunks_are_behind_it(kind, behind):
    whole = sound_of(kind)
    empty = streamed(whole[: whole.index(b"data") + 8], 0, 28 + len(behind)) + behind
    with pytest.raises(DataError, match=r"a\.wav has no samples"):
        read_audio(empty, "a.wav")


@pytest.mark.parametrize("kind", ["wav-PCM_16", "wav-PCM_24"])
def test_the_size_of_the_samples_counts_and_not_that_of_the_file(kind):
    whole = sound_of(kind)
    size = struct.unpack_from("<I", whole, whole.index(b"data") + 4)[0]
    for riff in (0, 36, size, 0xFFFFFFFF):
        assert read_audio(streamed(whole, size, riff))[0].tolist() == read_audio(whole)[0].tolist()


@pytest.mark.parametrize("kind", ["wav-PCM_16", "wav-PCM_24", "wav-PCM_U8"])
def test_samples_behind_those_that_the_header_promises_are_told(kind):
    """Of a recorder that was stopped after it had written its sizes once; and of two files in one."""
    whole, (expected, _) = sound_of(kind), read_audio(sound_of(kind))
    frame = struct.unpack_from("<H", whole, 32)[0]
    early = streamed(whole, 700 * frame)
    for content, count in ((early, 700), (whole + whole[200:], 1501)):
        with pytest.warns(OrthornnWarning, match=r"a\.wav has \d+ bytes behind the samples that its header promises"):
            assert read_audio(content, "a.wav")[0].tolist() == expected[:count].tolist()
    known = (
        b"LIST\4\0\0\0INFO",
        b"id3 \3\0\0\0abc",
        bytes(512),
        b"TAG" + bytes(range(125)),
        b"ID3\4" + bytes(range(99)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for behind in known:
            assert read_audio(whole + behind)[0].tolist() == expected.tolist()


def test_a_format_that_does_not_tell_whether_a_file_is_whole_is_refused():
    with pytest.raises(DataError, match=r"Expected WAV, FLAC, OGG or NIST SPHERE, but a\.wav is CAF .*Convert it"):
        read_audio(sound_of("caf"), "a.wav")


def test_half_the_rate_keeps_a_slow_tone():
    pytest.importorskip("scipy")
    tone = np.sin(2 * np.pi * 300 * np.arange(4000) / 16000).astype(np.float32)
    found = resample(tone, 16000, 8000)
    expected = np.sin(2 * np.pi * 300 * np.arange(2000) / 8000)
    # scipy's default filter has a ripple below 1 % far below the cut-off, away from the ends
    assert np.abs(found - expected)[100:-100].max() < 0.01


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.wav")
    with pytest.raises(DataError, match=r"Expected .*a.wav to be a sound file, but got a pipe, a device or a folder"):
        read_audio(tmp_path / "a.wav")


def test_a_sound_is_written_whole_and_through_no_link(tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a.wav").symlink_to(tmp_path / "mine")
    write_wav(tmp_path / "a.wav", np.zeros(5), 8000)
    assert (tmp_path / "mine").read_text() == "mine"
    before = (tmp_path / "a.wav").read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_wav(tmp_path / "a.wav", np.ones(7), 8000)
    assert (tmp_path / "a.wav").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.wav", "mine"]
