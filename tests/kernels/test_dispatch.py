"""Which form and which backend run a call."""

import warnings

import pytest
import torch

from orthornn.errors import ArgumentError, BackendError, OrthornnWarning
from orthornn.kernels import compact_wy_rnn, dense_rnn, dispatch
from orthornn.kernels.backends import BACKENDS, CPP, REFERENCE
from orthornn.kernels.backends.cuda import nvrtc
from orthornn.kernels.call import Size
from orthornn.kernels.cost_model import cheaper_form, response_pays
from orthornn.kernels.dispatch import available, choose, choose_compiled


@pytest.mark.parametrize(
    ("n", "m", "form"),
    [(256, 32, "compact_wy"), (256, 114, "compact_wy"), (256, 116, "dense"), (256, 128, "dense"), (1, 1, "dense")],
)
def test_the_form_with_fewer_multiply_adds(n, m, form):
    assert cheaper_form(n, m) == form


@pytest.mark.parametrize("n", [64, 512])
def test_a_matrix_is_built_for_enough_rows_only(n):
    for m, batch in [(n, 1), (n, 8), (n // 2 + 10, 50)]:
        forms = [cheaper_form(n, m, (batch, batch * T)) for T in (1, 10, 100, 10_000, 100_000)]
        assert forms[0] == "compact_wy"
        assert forms[-1] == "dense"
        assert forms == sorted(forms)  # the longer call is the one that pays
    assert cheaper_form(n, n // 4, (50, 10**6)) == "compact_wy"


@pytest.mark.parametrize("m", [0, 16, 128, None])
def test_the_response_serves_many_long_sequences_only(m):
    def pays(batch, steps, inputs=1, trained=True):
        return response_pays(128, m, inputs, batch, steps, trained)

    assert pays(50, 784)
    assert not pays(50, 3)
    assert not pays(5, 10**6)  # 3 sequences in place of 5 are no gain
    assert not pays(50, 784, inputs=24)
    shortest = next(T for T in range(1, 784) if pays(50, T))
    assert not pays(50, shortest, trained=False)


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_every_backend_is_listed_and_the_specification_is_the_last_resort(device):
    """A backend that is added is tested where it can run, since the tests take theirs from this list."""
    names = list(available(torch.device(device)))
    assert set(names) == set(BACKENDS)
    if device == "cpu":
        assert names[:2] == ["cpp", "reference"]
    else:
        assert set(names[names.index("reference") :]) <= {"reference", "cpp"}


def test_a_backend_that_is_added_is_listed(monkeypatch):
    monkeypatch.setitem(BACKENDS, "another", REFERENCE)
    assert "another" in available(torch.device("cpu"))


@pytest.mark.parametrize("name", ["referense", "triton"])
def test_an_unknown_backend(name):
    with pytest.raises(ArgumentError, match=f"'cuda', 'graph', 'reference', but got '{name}'"):
        choose(name, torch.device("cpu"))


def test_missing_kernels_are_said_once_at_first_use(monkeypatch):
    monkeypatch.setattr(CPP, "unavailable", lambda device: "the compiled extension is missing")
    dispatch._warn_of_reference.cache_clear()
    cpu, size = torch.device("cpu"), Size(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose("auto", cpu) == "reference"  # a question, not a use
        assert choose("reference", cpu, size=size) == "reference"  # as asked for
    with pytest.warns(OrthornnWarning, match=r"extension is missing.*200 times slower.*filterwarnings"):
        assert choose("auto", cpu, size=size) == "reference"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose("auto", cpu, size=size) == "reference"
    dispatch._warn_of_reference.cache_clear()


def test_what_is_chosen_on_a_gpu(monkeypatch):
    monkeypatch.setattr(nvrtc, "missing", lambda device: None)
    rotations = Size(1024, steps=784, rotations=True)
    chosen = {
        "cuda": [
            *(Size(170), Size(256, 32, 128, 784), Size(1024, 32), Size(512, batch=50), Size(512, 512), rotations),
            *(Size(170, resets=True), rotations._replace(resets=True)),
        ],
        "graph": [Size(1024, steps=784, batch=128), Size(512, steps=784, paired=True), Size(1024, 512, steps=784)],
        "reference": [
            Size(1024, steps=3),
            Size(1024, steps=784, ragged=True),
            Size(9, 0),
            rotations._replace(ragged=True),
        ],
    }
    for name, sizes in chosen.items():
        for size in sizes:
            assert choose("auto", torch.device("cuda"), torch.float32, size) == name
            assert name in dispatch.describe(torch.device("cuda"), size)
    assert choose("auto", torch.device("cuda"), torch.float64, Size(170)) == "reference"
    with pytest.raises(BackendError, match="float32"):
        choose("cuda", torch.device("cuda"), torch.float64, Size(170))
    with pytest.raises(BackendError, match="N=1024"):
        choose("cuda", torch.device("cuda"), torch.float32, Size(1024))


def test_a_backend_has_its_own_description():
    assert BACKENDS["graph"].describe(Size(512)) == "graph: one cuBLAS product per step, in a CUDA graph"
    assert [BACKENDS[name].describe(Size(5)) for name in ("cpp", "reference")] == ["cpp", "reference"]
    assert BACKENDS["cuda"].describe(Size(170)).startswith("cuda: ")


@pytest.mark.parametrize("otherwise", ["reference", "chunked"])
def test_recurrences_that_only_the_cpu_has_compiled(monkeypatch, otherwise):
    cpu, elsewhere = torch.device("cpu"), torch.device("meta")
    for name in ("auto", "cpp"):
        assert choose_compiled(name, cpu, otherwise) == "cpp"
    assert choose_compiled("auto", elsewhere, otherwise) == otherwise
    assert (
        choose_compiled("reference", elsewhere, otherwise)
        == choose_compiled("reference", cpu, otherwise)
        == "reference"
    )
    with pytest.raises(BackendError, match=r"run on meta, but got 'cpp': it runs only on the CPU\. Use backend='auto'"):
        choose_compiled("cpp", elsewhere, otherwise)
    monkeypatch.setattr(CPP, "unavailable", lambda device: "the compiled extension is missing")
    assert choose_compiled("auto", cpu, otherwise) == otherwise
    with pytest.raises(BackendError, match="extension is missing"):
        choose_compiled("cpp", cpu, otherwise)


def test_rotations_on_a_gpu_without_kernels_run_by_the_reference(monkeypatch):
    size = Size(1024, steps=784, rotations=True)
    monkeypatch.setattr(nvrtc, "missing", lambda device: "it is missing")
    assert choose("auto", torch.device("cuda"), torch.float32, size) == "reference"  # a graph has no rotations
    assert choose("auto", torch.device("cuda"), torch.float32, size._replace(rotations=False)) == "graph"


def test_gpu_backends_on_a_cpu_say_why_not():
    x, h0 = torch.zeros(3, 2, 4), torch.zeros(2, 4)
    for backend in ("cuda", "graph"):
        with pytest.raises(BackendError, match=backend):
            dense_rnn(x, h0, torch.eye(4), "tanh", backend=backend)
        with pytest.raises(BackendError, match=backend):
            compact_wy_rnn(x, h0, torch.ones(4, 1), None, "tanh", backend=backend)
