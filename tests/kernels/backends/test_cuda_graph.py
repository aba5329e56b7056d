"""The graph backend's cache without a GPU: what is captured again, and in which order replays run."""

from __future__ import annotations

import contextlib
import types

import pytest
import torch

from orthornn.kernels.backends import cuda_graph, tf32

CAPTURED = cuda_graph._Captured


@pytest.fixture
def captures(monkeypatch):
    """Stand-ins for streams, events and captures; a list of what happened."""
    happened: list[str] = []

    class Event:
        def record(self, stream):
            happened.append("record")

        def synchronize(self):
            happened.append("synchronize")

    class Captured:
        def __init__(self, function, tensors, stream):
            happened.append("capture")
            self.function = function

        def replay(self, tensors):
            happened.append("replay")
            return self.function(*tensors)

    stream = types.SimpleNamespace(wait_event=lambda event: happened.append("wait"))
    for name, stand_in in {
        "device": lambda device: contextlib.nullcontext(),
        "is_current_stream_capturing": lambda: False,
        "current_stream": lambda: stream,
        "Stream": lambda: None,
        "Event": Event,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(cuda_graph, "_Captured", Captured)
    monkeypatch.setattr(cuda_graph, "_graphs", type(cuda_graph._graphs)())
    monkeypatch.setattr(cuda_graph, "_devices", {})
    return happened


def run(key: str = "key", size: int = 3) -> None:
    x = torch.arange(size)
    assert torch.equal(cuda_graph.run(lambda t: t + 1, (x,), key), x + 1)


def test_a_shape_is_captured_once(captures):
    run(), run(), run("another"), run(size=4)
    assert captures.count("capture") == 3


def test_replays_wait_for_one_another(captures):
    """A graph has one set of inputs, and two streams could replay it at once."""
    run(), run()
    assert captures == ["wait", "capture", "replay", "record", "wait", "replay", "record"]


def test_arithmetic_belongs_to_a_capture(captures):
    """cuBLAS is asked for tf32, or not, when a graph is captured, and replays do what was asked for then."""
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high", "highest"):
            torch.set_float32_matmul_precision(precision)
            run()
    finally:
        torch.set_float32_matmul_precision(before)
    assert captures.count("capture") == 2


def test_the_oldest_graph_is_dropped_when_no_replay_runs(captures):
    for k in range(cuda_graph.CAPTURED + 2):
        run(str(k))
    assert len(cuda_graph._graphs) == cuda_graph.CAPTURED
    assert captures.count("synchronize") == 2
    captures.clear()
    run(str(cuda_graph.CAPTURED + 1)), run("0")
    assert captures.count("capture") == 1


def test_inside_a_capture_of_the_user_it_runs_as_it_is(captures, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run()
    assert captures == []


def test_a_graph_captured_without_gradients_serves_a_training(captures, monkeypatch):
    """A validation before the first update may run in torch.inference_mode, whose tensors nothing else may write to."""
    stream = types.SimpleNamespace(wait_event=lambda event: None, wait_stream=lambda other: None)
    for name, stand_in in {
        "current_stream": lambda: stream,
        "Stream": lambda: stream,
        "stream": lambda given: contextlib.nullcontext(),
        "CUDAGraph": lambda: types.SimpleNamespace(replay=lambda: None),
        "graph": lambda *given, **options: contextlib.nullcontext(),
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    monkeypatch.setattr(cuda_graph, "_Captured", CAPTURED)
    x = torch.ones(3)
    with torch.inference_mode():
        cuda_graph.run(lambda t: (t + 1,), (x,), "key")
    (result,) = cuda_graph.run(lambda t: (t + 1,), (x,), "key")
    assert torch.equal(result, x + 1)
    assert not result.is_inference()


def test_tf32_is_read_where_torch_has_a_setting_per_backend():
    """Once torch.backends.cuda.matmul.fp32_precision is set, torch.get_float32_matmul_precision is an error."""
    before = torch.get_float32_matmul_precision()
    assert tf32.allowed() is (before != "highest")
    try:
        torch.set_float32_matmul_precision("high")
        assert tf32.allowed()
        if hasattr(torch.backends, "fp32_precision"):
            torch.set_float32_matmul_precision("highest")
            torch.backends.cuda.matmul.fp32_precision = "tf32"
            assert tf32.allowed()
            torch.backends.cuda.matmul.fp32_precision = "ieee"
            assert not tf32.allowed()
    finally:
        torch.set_float32_matmul_precision(before)
