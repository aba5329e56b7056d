"""What the compiled kernels promise beyond the conformance suite: bits, accuracy, interruption, checked addresses."""

from __future__ import annotations

import ast
import math
import os
import platform
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import orthornn
from orthornn import activations, compact_wy
from orthornn.errors import ArgumentError
from orthornn.kernels import compact_wy_rnn, dense_rnn
from orthornn.kernels.backends import CPP
from orthornn.kernels.backends.cpp import backend as cpp_backend
from orthornn.kernels.backends.cpp import extension
from orthornn.kernels.call import Call, Options
from orthornn.layout import SequenceLayout
from support.cases import Case

pytestmark = pytest.mark.skipif(extension.missing() is not None, reason=str(extension.missing()))


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.skipif("ATEN_CPU_CAPABILITY" in os.environ, reason="torch was told to see less")
def test_every_instruction_set_that_torch_finds_is_there():
    """So that the tests of an instruction set are skipped for want of a processor alone."""
    widest = {"AVX512": {"portable", "avx2", "avx512"}, "AVX2": {"portable", "avx2"}}
    expected = widest.get(torch.backends.cpu.get_cpu_capability(), {"portable"})
    assert expected <= set(extension.native.supported_isas())


@pytest.mark.sampled(57)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch", [2, 3, 4, 5, 13, 61])
@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_states_and_chain_have_the_same_bits_on_any_number_of_threads(isa, threads, kind, batch, packed):
    case = Case(kind, "modrelu", n=50, m=9, steps=6, batch=batch, packed=packed, inputs=None, bias=False).draw()
    runs = []
    for count in (1, 2, 4):
        threads(count)
        tensors = case.to(torch.float32)
        out = case.call(tensors, "cpp")
        runs.append([out, *torch.autograd.grad(out.square().sum(), [tensors["x"], tensors["h0"]])])
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 3), (torch.float64, 3)])
def test_tanh_is_off_by_at_most_three_units_in_the_last_place(isa, dtype, bound):
    """phi alone: W = 0. The oracle is tanh in float64, or for float64 in extended precision by mpmath's definition."""
    mpmath = pytest.importorskip("mpmath")
    grid = torch.cat(
        [
            torch.linspace(-20, 20, 4001, dtype=torch.float64),
            torch.logspace(-300 if dtype == torch.float64 else -36, 1.3, 2000, dtype=torch.float64),
        ]
    ).to(dtype)
    n = grid.numel()
    options = Options("compact_wy", activations.get("tanh"))
    none = (grid.new_zeros(n, 0), grid.new_zeros(0, 0))
    call = Call(
        grid.view(1, 1, n),
        None,
        None,
        grid.new_zeros(1, n),
        none[0],
        None,
        None,
        None,
        None,
        SequenceLayout(1, 1),
        options,
        factors=none,
    )
    out = CPP.forward(call, False)[0].all.flatten()
    with mpmath.workprec(120):
        exact = [mpmath.tanh(mpmath.mpf(float(x))) for x in grid]
        spacing = torch.nextafter(out.abs(), torch.full_like(out, 2)) - out.abs()
        off = max(float(abs(mpmath.mpf(float(y)) - x) / float(s)) for x, y, s in zip(exact, out, spacing))
    assert off <= bound


def test_a_state_that_falls_into_denormal_numbers_is_zero(threads):
    """After a burst a state of 1 is halved at each step: it is a normal number or zero, on all threads, and exact before."""
    threads(2)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormal numbers")
    torch.set_flush_denormal(False)
    x = torch.zeros(160, 64, 16)
    x[0] = 1
    out = dense_rnn(x, torch.zeros(64, 16), 0.5 * torch.eye(16), "identity", backend="cpp")
    exact = 0.5 ** torch.arange(160, dtype=torch.float64)
    exact[exact < torch.finfo(torch.float32).tiny] = 0
    assert torch.equal(out.double(), exact.view(-1, 1, 1).expand_as(out))
    assert (torch.full((1,), 1e-40) * 0.5).item() > 0  # the mode of the caller is as before


def test_a_gradient_that_falls_into_denormal_numbers_is_zero(threads):
    """On its way back a gradient of 1e-20 is halved at each step: it is a normal number or zero, on all threads."""
    threads(2)
    halves = torch.full((120, 64, 16), 0.5)
    for activation, x in (("leaky_relu", -halves), ("identity", halves)):
        W = torch.eye(16) * (5.0 if activation == "leaky_relu" else 0.5)  # the slope is 1/10
        inputs = x.clone().requires_grad_()
        out = dense_rnn(inputs, torch.zeros(64, 16), W, activation, output="last", backend="cpp")
        out.backward(torch.full((64, 16), 1e-20))
        size = inputs.grad.abs()
        assert (size[-40] > torch.finfo(torch.float32).tiny).all()
        assert (size[0] == 0).all()
        assert not ((size > 0) & (size < torch.finfo(torch.float32).tiny)).any()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers that send signals")
def test_signal_handlers_compute_with_denormal_numbers():
    """A backward pass counts them as zero; a handler that runs meanwhile is code like any other."""
    x = torch.randn(20000, 1, 256, requires_grad=True)
    out = dense_rnn(x, torch.zeros(1, 256), torch.eye(256), "relu", backend="cpp")
    smallest, seen = 5e-324, []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(smallest * len("1")))
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
    try:
        while len(seen) < 3:
            torch.autograd.grad(out.sum(), x, retain_graph=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen == [smallest] * len(seen)


AFTER_FORK = """
    import os, signal, torch
    from orthornn.kernels import dense_rnn

    torch.set_num_threads(3)
    x, h0 = torch.ones(9, 8, 6), torch.zeros(8, 6)
    if "torch" in {users}:
        torch.ones(1 << 20).exp()
    if "orthornn" in {users}:
        dense_rnn(x, h0, torch.eye(6), "tanh", backend="cpp")
    child = os.fork()
    found = dense_rnn(x, h0, torch.eye(6), "tanh", backend="cpp")
    if not child:
        signal.alarm(60)  # ends a process that waits for threads that are not there
        torch.save(dense_rnn(x, h0, torch.eye(6), "tanh", backend="cpp"), {path!r})
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert torch.equal(torch.load({path!r}), found)
"""


@pytest.mark.sampled(1)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("users", [(), ("torch",), ("orthornn",), ("torch", "orthornn")], ids="-".join)
def test_a_process_that_fork_makes_does_not_wait_for_threads_that_it_has_not(users, tmp_path):
    """As a worker of multiprocessing is made: libgomp still has the list of its parent's threads."""
    program = textwrap.dedent(AFTER_FORK).format(users=users, path=str(tmp_path / "found.pt"))
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_keyboard_interrupt_ends_a_long_sequence():
    """The one call takes minutes, so that it is interrupted if this ends at all; SIGINT may be ignored here (nohup)."""
    program = textwrap.dedent("""
        import signal, torch
        from orthornn.kernels import dense_rnn
        signal.signal(signal.SIGINT, signal.default_int_handler)
        torch.set_num_threads(1)
        x, h0, W = torch.zeros(20_000_000, 1, 1), torch.zeros(1, 512), torch.eye(512)
        V = torch.zeros(512, 1)
        try:
            print("started", flush=True)
            dense_rnn(x, h0, W, "tanh", weight_ih=V, output="last", backend="cpp")
            print("returned")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "started\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=600)
        finally:
            process.kill()  # else leaving the block would wait for it
    assert out == "interrupted\n"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("batch", [1, 7, 13])
@pytest.mark.parametrize("activation", ["identity", "modrelu", "leaky_relu", "oplu", "relu", "scaled_tanh"])
@pytest.mark.parametrize("kind", ["dense", "packed"])
def test_without_a_derivative_the_bits_are_the_same_and_nothing_is_kept(monkeypatch, kind, activation, batch, packed):
    taken = []
    empty = cpp_backend.empty
    monkeypatch.setattr(cpp_backend, "empty", lambda like, shape: taken.append(shape) or empty(like, shape))
    for output in ("all", "last"):
        case = Case(kind, activation, n=34, m=5, steps=9, batch=batch, packed=packed, output=output).draw()
        tensors = case.to(torch.float32)
        with_graph = case.call(tensors, "cpp")
        assert with_graph.requires_grad
        del taken[:]
        with torch.no_grad():
            assert torch.equal(case.call(tensors, "cpp"), with_graph)
        assert taken == ([] if output == "last" else [with_graph.shape])


@pytest.mark.skipif(not os.path.exists("/sys/kernel/mm/transparent_hugepage"), reason="the system has no large pages")
def test_large_states_lie_on_large_pages():
    T, n = 9000, 512  # 18 MB
    states = dense_rnn(torch.zeros(T, 1, n), torch.zeros(1, n), torch.eye(n), "relu", backend="cpp")
    middle, inside = states.data_ptr() + states.nbytes // 2, False
    with open("/proc/self/smaps") as maps:
        for line in maps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                start, end = (int(address, 16) for address in line.split()[0].split("-"))
                inside = start <= middle < end
            elif inside and line.startswith("VmFlags:"):
                assert "hg" in line.split()
                return
    raise AssertionError("no mapping holds the states")


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc"
    or any(name.startswith(("MALLOC_", "LD_PRELOAD", "GLIBC_")) for name in os.environ),
    reason="memory is not the GNU C library's, or it was told otherwise",
)
def test_an_update_does_not_get_its_memory_from_the_system_each_time():
    """Page faults of an update whose arrays are of up to 0.5 MB each, 2.5 MB in all, in a process of its own."""
    code = """
        import resource
        import torch
        from orthornn import Householder, OrthogonalRNN

        layer, x = OrthogonalRNN(3, 256, parametrization=Householder(255), form="compact_wy"), torch.ones(20, 1, 3)

        def updates(count):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(count):
                layer.zero_grad()
                layer(x)[0].sum().backward()
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

        updates(5)
        print(updates(20) / 20)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 100  # 600 where the memory is returned and taken back


def test_an_unknown_instruction_set_is_an_error(monkeypatch):
    monkeypatch.setenv("ORTHORNN_ISA", "mmx")
    with pytest.raises(RuntimeError, match="Expected ORTHORNN_ISA to be portable, avx2 or avx512, but got 'mmx'"):
        extension.native.isa()


def test_tokens_outside_the_vocabulary_are_an_index_error():
    case = Case(inputs=0, activation="identity").draw()
    tensors = case.to(torch.float32)
    tensors["x"] = tensors["x"].clone()
    tensors["x"][1, 0] = 4
    with pytest.raises(IndexError, match=r"okens .*in \[0, 4\).* got .*4"):
        case.call(tensors, "cpp")


def test_addresses_and_sizes_are_checked():
    state, W = torch.zeros(4, 3), torch.zeros(3, 3)
    good = dict(
        element_size=4,
        T=4,
        B=1,
        N=3,
        R=4,
        batch_sizes=0,
        resets=0,
        W=W.data_ptr(),
        U=0,
        S=0,
        c=0,
        s=0,
        M=0,
        rotations=0,
        activation=0,
        slope=0.0,
        parameter=0,
        input_kind=0,
        x=state.data_ptr(),
        weight_ih=0,
        bias=0,
        I=0,
        h0=0,
        restart=0,
        states=state.data_ptr(),
        saved=0,
        last=0,
        h_tilde=0,
        threads=1,
    )
    null = "Expected parameter, but got a null address"
    for change, message in (
        ({"x": 0}, "Expected x, but got a null address"),
        ({"states": state.data_ptr() + 2}, "Expected states aligned to 4 bytes"),
        ({"R": 5}, r"Expected R to be T \* B = 4, but got 5"),
        ({"N": 0}, "Expected N of at least 1, but got 0"),
        ({"N": 2**41}, r"Expected N of at least 1 and at most 2\^40, but got 2199023255552"),
        ({"T": 2**32, "B": 2**32, "R": 0}, r"Expected T \* B of at most 2\^40, but got T = 4294967296 and"),
        ({"activation": 9}, f"Expected an activation code from 0 to {len(activations.ACTIVATIONS) - 1}, but got 9"),
        *(({"activation": phi.code}, null) for phi in activations.ACTIVATIONS.values() if phi.parameter == "unit"),
        ({"activation": 7}, "Expected an even N for an activation with a parameter per pair, but got 3"),
        ({"activation": 7, "N": 2, "R": 4}, null),
        ({"element_size": 2}, "Expected an element size of 4 or 8, but got 2"),
        ({"c": state.data_ptr()}, "Expected c and s together"),
    ):
        with pytest.raises(ValueError, match=message):
            extension.native.forward(**{**good, **change})
    with pytest.raises(TypeError):
        extension.native.forward(**{**good, "x": "a string"})
    made = {**good, "W": W, "x": torch.ones(4, 3), "states": state, "h0": None}  # tensors are asked where they lie
    extension.native.forward(**made)
    assert torch.equal(state, torch.ones(4, 3))


@pytest.mark.parametrize("backend", ["cpp", "reference"])
@pytest.mark.parametrize("power", [-90, 600, 1023])
def test_the_length_of_a_reflector_changes_nothing_but_its_gradient(backend, power):
    """W is the same to the bit, and dL/du goes with 1/|u|, up to the largest numbers of float64."""
    n, m = 23, 3
    x, h0 = torch.randn(5, 2, n, dtype=torch.float64), torch.randn(2, n, dtype=torch.float64)
    packed = compact_wy.pack(torch.rand(n, m, dtype=torch.float64) - 0.5)
    # The factor keeps what is divided by |u| out of the denormal numbers.
    grad = 2.0**100 * torch.randn(5, 2, n, dtype=torch.float64)

    def states_and_gradient(reflectors):
        reflectors = reflectors.clone().requires_grad_()
        states = compact_wy_rnn(x, h0, reflectors, None, "tanh", backend=backend)
        return states, torch.autograd.grad(states, reflectors, grad)[0]

    states, gradient = states_and_gradient(packed)
    same, scaled = states_and_gradient(packed * 2.0**power)
    assert torch.equal(same, states)
    torch.testing.assert_close(scaled * 2.0**power, gradient, rtol=1e-12, atol=1e-12 * float(gradient.abs().max()))


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_reflector_that_is_not_finite_spoils_every_unit(isa, bad):
    reflectors = torch.randn(64)
    reflectors[1] = bad
    for backend in ("cpp", "reference"):
        states = compact_wy_rnn(
            torch.randn(1, 2, 64), torch.randn(2, 64), reflectors, None, "identity", backend=backend
        )
        assert states.isnan().all()


def test_the_stub_is_what_nanobind_makes_of_the_bindings(tmp_path):
    stubgen = pytest.importorskip("nanobind.stubgen")
    made = tmp_path / "_native.pyi"
    stubgen.main(["--quiet", "--exclude-values", "--module", "orthornn._native", "--output-file", str(made)])
    stored = Path(orthornn.__file__).with_name("_native.pyi")
    said = "src/orthornn/_native.pyi is not that of csrc/bindings.cpp. Run `make stub`."
    assert ast.dump(ast.parse(made.read_text())) == ast.dump(ast.parse(stored.read_text())), said


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_tanh_keeps_the_sign_of_zero(dtype):
    states = dense_rnn(
        torch.zeros(1, 1, 3, dtype=dtype), torch.zeros(1, 3, dtype=dtype), torch.eye(3, dtype=dtype), "tanh"
    )
    assert not states.any()
    assert not torch.signbit(states).any()


def test_an_input_weight_of_another_width_is_refused_and_not_read_past_its_end():
    rnn = orthornn.OrthogonalRNN(2, 8)
    rnn.weight_ih_l0 = torch.nn.Parameter(torch.randn(8, 4))
    with pytest.raises(ArgumentError, match="Expected weight_ih to fit"):
        rnn(torch.randn(2048, 1, 2))
    call = Call(
        torch.zeros(4, 1, 8), None, None, torch.zeros(1, 8), torch.zeros(7, 3), None, None, None, None, None, None
    )
    layout = SequenceLayout(4, 1)
    options = Options("compact_wy", activations.ACTIVATIONS["tanh"], None, False, "cpp", None)
    with pytest.raises(ArgumentError, match="Expected weight to fit"):
        CPP.forward(call._replace(layout=layout, options=options), False)


def test_the_threads_are_torch_s_whoever_loaded_a_runtime_first():
    """scikit-learn's wheels bring one of their own."""
    pytest.importorskip("sklearn")
    code = (
        "import torch; from orthornn.kernels.backends.cpp import extension; print(extension.native.threading_runtime())"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", first + code], check=True, capture_output=True, text=True).stdout
        for first in ("", "import sklearn.linear_model; ")
    ]
    assert outputs[0] == outputs[1]
