"""A trained network as plain numbers: the computation of the generated C, in float64.

A layer with N units (2N for a complex state, [Re h; Im h]) and inputs x is

    h_t = phi(W h_{t-1} + V x_t + b),    or W h_{t-1} + phi(V x_t + b) if its transition is linear,

with W in one of four forms, which include the gain:

form           W h                                                      numbers         multiply-adds
dense          W h                                                      N^2             N^2
reflections    H_1 (H_2 ( ... H_M (c * h + s * swap(h)))),              NM - M(M-1)/2   2NM - M(M-1) (+ 2N)
               H_j = I - tau_j u_j u_j'                                  (+ M, + 2N)
rotations      c * h + s * swap(h)                                       2N              2N
hadamard       P (I x H_K) D h, signs D (parametrizations/hadamard.py)    N bits          N log2 K + N additions

Reflections are applied one after the other: this needs no memory besides the state, and neither T nor its inverse, so M
reflectors are N M numbers and not N M + M^2/2.

A linear layer with an orthogonal W runs as rotations in the basis Q of W's planes (orthornn/rotation_basis.py): its
state is Q'h, Q' is multiplied into V and b, and Q into the weights that read the state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..._checks import check_choice
from ..._warnings import warn
from ...activations import Activation, get
from ...compact_wy import factors
from ...errors import ArgumentError, ArgumentTypeError, NonFiniteError, ShapeError
from ...modules import OrthogonalBlocks, OrthogonalRNN, OrthogonalRNNCell
from ...parametrizations.hadamard import BoundHadamard
from ...parametrizations.parametrization import signs_of
from ...rotation_basis import decompose
from ..network import check_steps_are_equal
from .blocks import FoldedBlock, affine, fold_block
from .reading import PARTS, Reading, reading_of

CForm = Literal["auto", "dense", "reflections", "rotations", "hadamard"]
FORMS: tuple[str, ...] = get_args(CForm)
Array = np.ndarray
_GELU_SLOPE = 1.13  # the largest slope of gelu


@dataclass(frozen=True)
class Base:
    """c * h + s * swap(h); c, s: (N,)."""

    c: Array
    s: Array


@dataclass(frozen=True)
class Transform:
    """scale P (I x H_K) D; signs: (N,), the diagonal of D, -1 or 1. block: K."""

    signs: Array
    block: int
    scale: float

    def sums(self, h: Array) -> Array:
        """Return P (I x H_K) D h for rows h (..., N): sums of entries with signs, in the dtype of h."""
        n = h.shape[-1]
        h = (h * self.signs.astype(h.dtype)).reshape(*h.shape[:-1], n // self.block, self.block)
        h = np.swapaxes(h, -1, -2).reshape(*h.shape[:-2], n)
        stride = n // self.block
        while stride < n:
            pairs = h.reshape(*h.shape[:-1], n // (2 * stride), 2, stride)
            first, second = pairs[..., 0, :], pairs[..., 1, :]
            h = np.stack([first + second, first - second], -2).reshape(h.shape)
            stride *= 2
        return h


@dataclass(frozen=True)
class FoldedLayer:
    """One layer.

    Attributes:
        form: "dense", "reflections", "rotations" or "hadamard".
        W: (N, N), for "dense".
        U: (N, M) reflectors of norm sqrt(2), or zero, for "reflections"; the last one is applied first.
        trapezoid: Whether the first j entries of column j are zero.
        base: The base of "reflections" and "rotations"; None for the identity.
        transform: For "hadamard".
        V: (N, K). b: (N,) or None. parameter: Parameter of phi, or None. h0: (N,).
        linear: Whether the transition is outside of phi.
    """

    form: str
    V: Array
    b: Array | None
    h0: Array
    phi: Activation
    parameter: Array | None
    linear: bool
    W: Array | None = None
    U: Array | None = None
    trapezoid: bool = False
    base: Base | None = None
    transform: Transform | None = None

    @property
    def size(self) -> int:
        """N, the size of the real state."""
        return len(self.h0)

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the transition, per step."""
        if self.form == "hadamard" and self.transform is not None:
            return self.size * self.transform.block.bit_length()
        return form_multiply_adds(self.form, self.size, self.U, self.base, self.trapezoid)

    def matrix(self) -> Array:
        """Return W (N, N) in the basis of the state."""
        return self.carry(np.eye(self.size)).T

    def carry(self, h: Array) -> Array:
        """Return W h for rows h (..., N)."""
        if self.W is not None:
            return h @ self.W.T
        if self.transform is not None:
            return self.transform.scale * self.transform.sums(h)
        for part in self.on_the_way(h):
            h = part
        return h

    def projected(self, x: Array, tokens: bool = False) -> Array:
        """Return V x + b for rows x (..., K), or tokens (...,)."""
        a = self.V.T[x] if tokens else x @ self.V.T
        return a if self.b is None else a + self.b

    def on_the_way(self, h: Array) -> Iterator[Array]:
        """Yield the rows h (..., N) after the base and after each reflection, W h last; yield nothing if W is
        dense or a transform."""
        if self.base is not None:
            h = self.base.c * h + self.base.s * swapped(h)
            yield h
        if self.U is not None:
            for u in self.U.T[::-1]:
                h = h - u * (h @ u)[..., None]
                yield h


@dataclass(frozen=True)
class FoldedNetwork:
    """Layers, preprocessing of the input, and readout.

    Attributes:
        input_size: I.
        tokens: Whether the input is a class 0..I-1.
        input_scale, input_offset: (I,), the first layer reads x * scale + offset; None if it reads x.
        Y, d: The readout y = Y h + d; Y is None if y is the state of the last layer.
        H, e: A perceptron as readout, y = Y gelu(H h + e) + d; else None.
        last: Whether the network was trained to be read after the last step only.
        labels: Names of the outputs of a classifier, or None.
        order: The order in which the steps of a sequence are read, or None.
        threshold: Smallest probability of the second of two classes for which it is predicted; None for 1/2.
        has_head: Whether Y is a readout, not only a change of basis.
        columns: Names of the inputs, or None.
        sample_rate: Sample rate of the training sounds, in Hz, or None.
        sound: The features of sound that make up a step, from description.json; None if a step is a sample.
        blocks: The parts of OrthogonalBlocks next to each layer; empty for other networks.
        reading: The input of the readout besides the last output.
        outputs: Names of the outputs that are values, or None.
        vectors: (S + 1, E), a vector for each of S series, followed by their mean for unknown series. The last input is the
            number of the series, which the first layer replaces by the vector. None for networks without series.
        series: Names of the series, or None.
    """

    layers: tuple[FoldedLayer, ...]
    input_size: int
    tokens: bool = False
    input_scale: Array | None = None
    input_offset: Array | None = None
    Y: Array | None = None
    d: Array | None = None
    H: Array | None = None
    e: Array | None = None
    last: bool = False
    output_kind: str = "values"
    labels: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    order: tuple[int, ...] | None = None
    threshold: float | None = None
    has_head: bool = False
    sample_rate: int | None = None
    sound: Mapping[str, Any] | None = None
    blocks: tuple[FoldedBlock, ...] = ()
    reading: Reading = field(default_factory=Reading)
    outputs: tuple[str, ...] | None = None
    vectors: Array | None = None
    series: tuple[str, ...] | None = None

    @property
    def output_size(self) -> int:
        """O, the number of outputs."""
        return self.width if self.Y is None else len(self.Y)

    @property
    def width(self) -> int:
        """Size of the output of the last layer, or of the last block."""
        return self.blocks[-1].size if self.blocks else self.layers[-1].size

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of a step with its readout."""
        total = sum(matrix.size for matrix in (self.Y, self.H, self.reading.A) if matrix is not None)
        for k, layer in enumerate(self.layers):
            total += layer.multiply_adds + (0 if self.tokens and not k else layer.V.size)
        return total + sum(block.multiply_adds(self.tokens and not k) for k, block in enumerate(self.blocks))

    @property
    def function_calls(self) -> dict[str, int]:
        """Calls of math.h functions in the blocks and the readout of a step."""
        gates = sum(block.size for block in self.blocks if block.mixing == "glu")
        gelus = sum(len(block.A) for block in self.blocks if block.mixing != "glu") + (
            0 if self.H is None else len(self.H)
        )
        roots = sum(block.norm != "none" for block in self.blocks)
        return {name: count for name, count in (("expf", gates), ("erff", gelus), ("sqrtf", roots)) if count}

    @property
    def readout_norm(self) -> float:
        """Bound, at least 1, on the growth of a state's error in the readout, from the largest sums of absolute weights."""
        sums = [float(np.abs(matrix).sum(1).max()) for matrix in (self.H, self.Y) if matrix is not None]
        return math.prod(max(1.0, largest) for largest in sums) * (1.0 if self.H is None else _GELU_SLOPE)

    def prepared(self, x: Array) -> Array:
        """Return the input of the first layer from raw input (..., I)."""
        if self.input_scale is None or self.input_offset is None:
            return x
        return x * self.input_scale + self.input_offset

    @property
    def log_odds(self) -> float:
        """Smallest difference of the two scores for which the second class is predicted."""
        p = min(max(0.5 if self.threshold is None else self.threshold, 1e-300), 1 - 2**-53)
        return math.log(p) - math.log1p(-p)

    def ordered(self, x: Array) -> Array:
        """Return raw sequences (B, T, ...) with their steps in the order in which the network reads them.

        Raises:
            ShapeError: If the number of steps does not match that order.
        """
        if self.order is None:
            return x
        if x.shape[1] != len(self.order):
            raise ShapeError(
                f"Expected sequences of {len(self.order)} steps, the length of the network's order of steps, but got "
                f"{x.shape[1]} steps."
            )
        return x[:, list(self.order)]

    def first_states(self) -> list[Array]:
        """Return the state before the first step."""
        return [*(layer.h0.copy() for layer in self.layers), *self.reading.first()]

    def step(
        self, x: Array, states: list[Array], watch: Callable[[str, Array], None] | None = None
    ) -> tuple[Array, list[Array]]:
        """Return y (..., O) and the next states from raw x (..., I), or tokens (...,), in float64.

        The states are those of the layers and, if the readout reads more than the last step, the memory of its pool.

        watch: Called with the name and the values of each intermediate result: "features" of each block, "hidden0" of the
            perceptron in block 0 and so on, and "hidden" of a perceptron as readout.
        """
        after = []
        x = x if self.tokens else self.prepared(np.asarray(x, np.float64))
        given, x = with_vectors(self.vectors, x)
        for k, (layer, h) in enumerate(zip(self.layers, states)):
            tokens, block = self.tokens and not k, self.blocks[k] if self.blocks else None
            a = layer.projected(x if block is None else block.normalized(x), tokens)
            carried = layer.carry(h)
            h = carried + activate(layer, a) if layer.linear else activate(layer, carried + a)
            after.append(h)
            if block is not None:
                hidden = block.hidden(h)
                if watch is not None and block.C is not None:
                    watch(f"hidden{k}", hidden)
                x = block.out(x, hidden, tokens)
                if watch is not None:
                    watch("features", x)
            else:
                x = h
        read, seen = self.reading.after(x, given, states[len(self.layers) :])
        if watch is not None and self.H is not None:
            watch("hidden", self.hidden(read))
        y = self.read(read)
        return y if self.reading.A is None else y + seen[-1] @ self.reading.A.T, [*after, *seen]

    def read(self, h: Array) -> Array:
        """Return y from the readout's input, without lags: the state of the last layer, or a pool."""
        if self.Y is None:
            return h
        if self.H is not None:
            h = self.hidden(h)
        return h @ self.Y.T + (0 if self.d is None else self.d)

    def hidden(self, h: Array) -> Array:
        """Return the hidden units of a perceptron as readout, from its input."""
        assert self.H is not None
        return F.gelu(torch.from_numpy(h @ self.H.T + (0 if self.e is None else self.e))).numpy()


def with_vectors(vectors: Array | None, x: Array) -> tuple[Array, Array]:
    """Return the inputs of the lags and of the first layer from inputs (..., I), whose last one is the number of a series
    if the series have vectors (S + 1, E).
    """
    if vectors is None:
        return x, x
    series, number = len(vectors) - 1, x[..., -1]
    known = np.where((number >= 0) & (number < series), number, series).astype(int)
    return x[..., :-1], np.concatenate([x[..., :-1], vectors[known]], -1)


class FoldedModule(nn.Module):
    """A module that provides the numbers of its network for export."""

    def network(self) -> FoldedNetwork:
        """Return the numbers of the network."""
        raise NotImplementedError


def activate(layer: FoldedLayer, z: Array) -> Array:
    """Return phi(z) for rows z (..., N)."""
    parameter = None if layer.parameter is None else torch.from_numpy(layer.parameter)
    return layer.phi(torch.from_numpy(np.ascontiguousarray(z)), parameter).numpy()


def swapped(h: Array) -> Array:
    """Return h with the halves of the last axis exchanged; an odd middle stays in place."""
    n = h.shape[-1]
    half = n // 2
    return np.concatenate([h[..., n - half :], h[..., half : n - half], h[..., :half]], -1)


def form_multiply_adds(form: str, n: int, U: Array | None, base: Base | None, trapezoid: bool) -> int:
    """Return the multiply-adds of W h."""
    if form == "dense":
        return n * n
    turns = 0 if base is None else 2 * n
    if form == "rotations" or U is None:
        return turns
    m = U.shape[1]
    return turns + 2 * n * m - (m * (m - 1) if trapezoid else 0)


def model_of(network: Any) -> tuple[Any, dict[str, Any] | None]:
    """Return a module, and the description of its run if there is one."""
    description = getattr(network, "description", None)
    if isinstance(network, FoldedModule):
        return network, description
    if isinstance(description, dict) and isinstance(getattr(network, "model", None), nn.Module):
        return network.model, description
    if not isinstance(network, nn.Module):
        raise ArgumentTypeError(
            f"Expected a torch.nn.Module or a run returned by orthornn.load, but got {type(network).__name__}. "
            f"For a run directory, pass orthornn.load(path)."
        )
    return network, None


@torch.no_grad()
def fold_network(model: Any, description: dict[str, Any] | None = None, form: CForm = "auto") -> FoldedNetwork:
    """Return the numbers of a network; see the module's docstring.

    Args:
        model: An OrthogonalRNN, OrthogonalBlocks, OrthogonalRNNCell or torch.nn.RNN; or a network with such a ``core`` and
            a linear ``head``, such as `orthornn.load(RUN).model`.
        description: A run's description.json: scaling, labels and so on.
        form: Form of the transitions; "auto" selects the form with the fewest multiply-adds.

    Raises:
        ArgumentError: If there is no C form; the message gives the reason.
    """
    check_choice("form", form, FORMS)
    if isinstance(model, FoldedModule):
        if form != "auto":
            raise ArgumentError(f"Expected form='auto' for a network whose form is already chosen, but got {form!r}.")
        network = model.network()
    else:
        network = _fold(model, form)
    network = _described(network, description or {})
    _check_finite(network)
    return network


def _fold(model: Any, form: CForm) -> FoldedNetwork:
    """Return the numbers of a network, without the scaling of a run."""
    check_steps_are_equal(model)
    core, head = (model.core, model.head) if hasattr(model, "core") and hasattr(model, "head") else (model, None)
    core = core.rnn if isinstance(core, OrthogonalRNNCell) else core
    _check(core, head)
    blocks: tuple[FoldedBlock, ...] = ()
    is_complex = isinstance(core, OrthogonalRNN) and core.is_complex
    if isinstance(core, OrthogonalBlocks):
        layers, blocks, basis = *_blocks(core, form), None
    else:
        layers, basis = _layers(core, form)
    size = blocks[-1].size if blocks else layers[-1].size
    reading = reading_of(model, size)
    if reading.has_maximum and (basis is not None or is_complex):
        raise ArgumentError(
            "Expected pool='last', 'mean' or 'both' for a layer whose state is complex or in another basis, where maxima "
            "differ, but got pool='summary'. Pass form='dense', or train it with another pool."
        )
    first: Any = head[0] if isinstance(head, nn.Sequential) else head
    second: Any = head[2] if isinstance(head, nn.Sequential) else None
    reader = None if first is None else _array(first.weight)
    if is_complex or basis is not None:
        parts = PARTS[reading.pool]
        reader = np.eye(size * parts) if reader is None else reader
        reader = np.concatenate([_reader(part, is_complex, basis) for part in np.split(reader, parts, 1)], 1)
    vectors = None
    if isinstance(getattr(getattr(model, "series", None), "weight", None), Tensor):
        vectors = _array(model.series.weight)
        vectors = np.concatenate([vectors, vectors.mean(0, keepdims=True)])
    added = None if first is None or first.bias is None else _array(first.bias)
    return FoldedNetwork(
        layers=tuple(layers),
        input_size=core.input_size if vectors is None else core.input_size - vectors.shape[1] + 1,
        tokens=getattr(model, "token_classes", None) is not None,
        Y=reader if second is None else _array(second.weight),
        d=added if second is None else None if second.bias is None else _array(second.bias),
        H=None if second is None else reader,
        e=None if second is None else added,
        last=getattr(model, "output", "all") == "last",
        has_head=head is not None,
        blocks=blocks,
        reading=reading,
        vectors=vectors,
    )


def _reader(reader: Array, is_complex: bool, basis: Array | None) -> Array:
    """Return a matrix that reads the last layer's state in C, from a matrix (R, N) that reads the module's outputs."""
    if is_complex:  # in a module, Re and Im of each unit are adjacent
        reader = np.concatenate([reader[:, 0::2], reader[:, 1::2]], 1)
    return reader if basis is None else reader @ basis


def _described(network: FoldedNetwork, d: dict[str, Any]) -> FoldedNetwork:
    """Return the network with the scaling, the labels and the names of a run's description.json.

    Raises:
        ArgumentError: If its targets have a transform. A warning reports that predicted quantiles may cross.
    """
    if d.get("target_transform"):
        raise ArgumentError(
            f"Expected a network with untransformed targets, but got target_transform={d['target_transform']!r}, which has "
            f"no C form. Train it without --target-transform, or export it with --onnx."
        )
    count = len(d.get("quantiles") or ())
    if count > 1:
        warn(
            f"The generated code does not sort the {count} quantiles of a forecast, but predict does if they cross. Sort "
            f"each {count} outputs. To silence this: "
            f"warnings.filterwarnings('ignore', category=orthornn.errors.OrthornnWarning)."
        )
    output_kind, Y, offset, reading = d.get("says", "values"), network.Y, network.d, network.reading
    if output_kind == "values" and network.has_head:
        assert Y is not None
        target_scale, target_offset = _entries(d, "target_scale", 1, len(Y)), _entries(d, "target_offset", 0, len(Y))
        Y = Y * target_scale[:, None]
        offset = target_scale * (0 if offset is None else offset) + target_offset
        if reading.A is not None:
            reading = replace(reading, A=reading.A * target_scale[:, None])
    scale, shift = _entries(d, "scale", 1, network.input_size), _entries(d, "offset", 0, network.input_size)
    plain = bool((scale == 1).all() and (shift == 0).all())
    order = None if d.get("order") is None else tuple(d["order"])
    return replace(
        network,
        tokens=network.tokens or d.get("input") == "tokens",
        input_scale=None if plain else scale.copy(),
        input_offset=None if plain else shift.copy(),
        Y=Y,
        d=None if offset is None or not offset.any() else offset,
        last=network.last if "output" not in d else d["output"] == "last",
        output_kind=output_kind,
        labels=_labels(d, network.output_size if network.has_head else 0),
        columns=_columns(d),
        order=None if order == tuple(range(len(order or ()))) else order,
        sample_rate=d.get("sample_rate"),
        sound=d.get("sound"),
        reading=reading,
        series=None if d.get("series") is None else tuple(map(str, d["series"])),
        outputs=tuple(map(str, d["labels"]))
        if output_kind == "values" and d.get("labels") and network.has_head
        else None,
    )


def _check(core: Any, head: Any) -> None:
    """Raise ArgumentError unless the network has a C form."""
    name = type(core).__name__
    if isinstance(core, OrthogonalBlocks) and core.stride > 1:
        raise ArgumentError(
            f"Expected OrthogonalBlocks with stride=1, but got stride={core.stride}. It selects steps by their distance from "
            f"the end of the sequence, which a step cannot know. Train it with stride 1."
        )
    if not isinstance(core, (OrthogonalRNN, OrthogonalBlocks, nn.RNN)):
        raise ArgumentError(
            f"Expected an OrthogonalRNN, OrthogonalBlocks, an OrthogonalRNNCell or a torch.nn.RNN, with or without a linear "
            f"readout, but got {name}, which has no C form. {_advice(core)}"
        )
    if core.bidirectional:
        raise ArgumentError(
            "Expected a network of one direction, but got a bidirectional one. A step cannot read the future."
        )
    if core.dropout and core.training and core.num_layers > 1:
        raise ArgumentError(
            f"Expected a network without random parts, but got dropout={core.dropout} in training mode. Call .eval() first."
        )
    if head is not None and not isinstance(head, nn.Linear) and not _is_perceptron(head):
        name = type(head).__name__
        if isinstance(head, nn.Sequential):
            name += f"({', '.join(type(part).__name__ for part in head)})"
        raise ArgumentError(
            f"Expected a torch.nn.Linear as readout, or Sequential(Linear, GELU(), Linear), but got {name}, which has no C "
            f"form. Train the network with one of these."
        )
    for name, tensor in (*core.named_parameters(), *core.named_buffers()):
        if tensor.is_meta:
            raise ArgumentError(
                f"Expected a network with weights, but {name} is on the meta device. Load its weights first."
            )


def _advice(core: Any) -> str:
    """Return advice for a module without a C form."""
    if hasattr(core, "_orig_mod"):
        return "Pass the module before torch.compile, ._orig_mod."
    if any(isinstance(part, (OrthogonalRNN, OrthogonalBlocks, nn.RNN)) for part in core.modules()):
        return "Name the recurrent network `core` and its readout `head`, or pass the recurrent network only."
    return "Train an OrthogonalRNN instead: the generated code does not support all parts of this network's step."


def _is_perceptron(head: Any) -> bool:
    """Return whether a head is a perceptron with one hidden layer, as built by --head mlp."""
    if type(head) is not nn.Sequential or [type(part) for part in head] != [nn.Linear, nn.GELU, nn.Linear]:
        return False
    return head[1].approximate == "none"


def _layers(core: Any, form: CForm) -> tuple[list[FoldedLayer], Array | None]:
    """Return the layers, and the basis of the last state: its h is basis @ state; None for the state itself."""
    made: list[FoldedLayer] = []
    basis: Array | None = None
    for layer in _plain_layers(core):
        if basis is not None:
            layer = replace(layer, V=layer.V @ basis)
        chosen, basis = _choose(layer, form, len(made))
        made.append(chosen)
    return made, basis


def _blocks(core: OrthogonalBlocks, form: CForm) -> tuple[list[FoldedLayer], tuple[FoldedBlock, ...]]:
    """Return the recurrences of blocks as layers, which include the scale of a normalization, and the rest of the blocks."""
    layers: list[FoldedLayer] = []
    blocks: list[FoldedBlock] = []
    for block in core.blocks:
        recurrence: Any = block.recurrence
        (layer,) = _plain_layers(recurrence)
        factor, shift = affine(block.norm)
        if shift is not None and shift.any():
            layer = replace(layer, b=layer.V @ shift + (0 if layer.b is None else layer.b))
        if factor is not None:
            layer = replace(layer, V=layer.V * factor)
        layer, basis = _choose(layer, form, len(layers))
        layers.append(layer)
        is_complex = bool(recurrence.is_complex)
        blocks.append(fold_block(block, lambda A, basis=basis, is_complex=is_complex: _reader(A, is_complex, basis)))  # type: ignore[misc]
    return layers, tuple(blocks)


def _plain_layers(core: Any) -> list[FoldedLayer]:
    """Return the layers with a dense W, and next to it their reflectors and base, if any."""
    if isinstance(core, nn.RNN):
        return _torch_layers(core)
    made: list[FoldedLayer] = []
    for layer, state in zip(core.layers(), core.initial_states(1)):
        # above a complex layer the input is complex, and embedded
        V = layer.input_weight(torch.zeros(1, dtype=torch.complex64) if layer.is_complex and made else torch.zeros(1))
        bias, parameter = layer.bias()
        gain = float(layer.gain)
        U, trapezoid, base = None, False, None
        compact = layer.transition.compact()
        if compact is not None:
            U, base = _reflectors(compact, layer.size, gain)
            trapezoid = compact[0].dim() == 1
        method, transform = layer.transition.method, None
        if isinstance(method, BoundHadamard):
            signs = signs_of(layer.transition.free()[0])
            transform = Transform(_array(signs), method.block, gain / math.sqrt(method.block))
        made.append(
            FoldedLayer(
                form="dense",
                V=_array(V),
                b=None if bias is None or not bool(bias.any()) else _array(bias),
                h0=_array(layer.state_in(state)).reshape(-1),
                phi=layer.activation,
                parameter=None if parameter is None else _array(parameter),
                linear=layer.linear_transition,
                W=gain * _array(layer.matrix()),
                U=U,
                trapezoid=trapezoid,
                base=base,
                transform=transform,
            )
        )
    return made


def _reflectors(compact: tuple[Tensor, Any], n: int, gain: float) -> tuple[Array, Base | None]:
    """Return reflectors of norm sqrt(2) or 0, and the base times the gain."""
    U = _array(factors(compact[0].cpu(), n)[0])
    lengths = np.sqrt((U * U).sum(0))
    U = U * np.divide(np.sqrt(2), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    if compact[1] is not None:
        return U, Base(gain * _array(compact[1][0]), gain * _array(compact[1][1]))
    return U, None if gain == 1 else Base(np.full(n, gain), np.zeros(n))


def _torch_layers(core: nn.RNN) -> list[FoldedLayer]:
    made = []
    for k in range(core.num_layers):
        V, W = _array(getattr(core, f"weight_ih_l{k}")), _array(getattr(core, f"weight_hh_l{k}"))
        b = _array(getattr(core, f"bias_ih_l{k}")) + _array(getattr(core, f"bias_hh_l{k}")) if core.bias else None
        phi = get(str(core.nonlinearity))
        made.append(FoldedLayer("dense", V, b, np.zeros(core.hidden_size), phi, None, False, W=W))
    return made


def _choose(layer: FoldedLayer, form: CForm, index: int) -> tuple[FoldedLayer, Array | None]:
    """Return the layer in the requested form, or in the cheapest one, and the basis of its state."""
    plain = replace(layer, U=None, base=None, transform=None)
    found: dict[str, tuple[FoldedLayer, Array | None]] = {"dense": (plain, None)}
    if layer.U is not None and layer.U.size:
        found["reflections"] = (replace(layer, form="reflections", W=None), None)
    if layer.transform is not None:
        _check_float32(f"in layer {index}", layer.W)
        found["hadamard"] = (replace(layer, form="hadamard", W=None), None)
    turning = _rotations(plain) if form in ("auto", "rotations") else None
    if turning is not None:
        found["rotations"] = turning
    if form == "auto":
        return min(found.values(), key=lambda entry: entry[0].multiply_adds)
    if form not in found:
        why = {
            "reflections": "its parametrization is not a product of reflections",
            "rotations": "it is not a linear recurrence with an orthogonal W, or its nonlinearity is not in the basis of W",
            "hadamard": "its parametrization is not Hadamard()",
        }[form]
        raise ArgumentError(f"Expected form='auto' or 'dense' for layer {index}, but got {form!r}: {why}.")
    return found[form]


def _rotations(layer: FoldedLayer) -> tuple[FoldedLayer, Array | None] | None:
    """Return the layer as rotations and its basis, or None if it cannot run as such."""
    assert layer.W is not None
    base = _base_of(layer.W)
    if base is not None:
        return replace(layer, form="rotations", W=None, U=None, base=base), None
    if layer.phi.name != "identity":
        return None
    W = torch.from_numpy(layer.W)
    found = decompose(W) or decompose(W.float())
    if found is None:
        return None
    # In a float32 network, the columns of Q are orthogonal only to float32 precision, so Q is inverted, not transposed.
    Q = _array(found.Q)
    inverse = np.linalg.inv(Q)
    c, s = _array(found.turns)
    turned = replace(
        layer,
        form="rotations",
        W=None,
        U=None,
        V=inverse @ layer.V,
        b=None if layer.b is None else inverse @ layer.b,
        h0=inverse @ layer.h0,
        base=Base(c, s),
    )
    return turned, Q


def _base_of(W: Array) -> Base | None:
    """Return (c, s) if W h = c * h + s * swap(h), else None."""
    n = len(W)
    if n < 2:
        return None
    to = swapped(np.arange(n))
    c, s = W.diagonal().copy(), W[np.arange(n), to].copy()
    s[to == np.arange(n)] = 0
    rest = W.copy()
    rest[np.arange(n), np.arange(n)] = 0
    rest[np.arange(n), to] = 0
    return None if rest.any() else Base(c, s)


def _columns(d: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the names of the inputs, with the value to pass if one is missing and has an indicator; or None."""
    names = d.get("columns")
    if names is None:
        return None
    channels = d.get("channels") or [()] * len(names)
    return tuple(
        f"{name}; if missing, pass the last value, initially {channel[2]:.6g}" if channel[1:2] == ["last"] else name
        for name, channel in zip(names, channels)
    )


def _entries(d: dict[str, Any], name: str, default: float, count: int) -> Array:
    """Return numbers of a description, (count,)."""
    return np.broadcast_to(np.asarray(d.get(name, default), float), count)


def _labels(d: dict[str, Any], outputs: int) -> tuple[str, ...] | None:
    if d.get("says") != "classes":
        return None
    names = d.get("labels") or d.get("vocabulary")
    if names is None or not outputs:  # without a readout, the outputs are states
        return None
    if len(names) != outputs:
        raise ArgumentError(
            f"Expected a label for each of {outputs} outputs, but got {len(names)} labels. Give each a label."
        )
    return tuple(map(str, names))


def _array(tensor: Tensor) -> Array:
    return tensor.detach().cpu().double().numpy()


def _check_finite(network: FoldedNetwork) -> None:
    for k, layer in enumerate(network.layers):
        base = () if layer.base is None else (layer.base.c, layer.base.s)
        _check_float32(f"in layer {k}", layer.W, layer.U, layer.V, layer.b, layer.parameter, layer.h0, *base)
    for k, block in enumerate(network.blocks):
        _check_float32(f"in block {k}", block.A, block.a, block.C, block.c, block.S)
    _check_float32("in the readout", network.H, network.e, network.Y, network.d, network.reading.A)
    _check_float32("in the vectors of series", network.vectors)
    _check_float32("in the scaling of the inputs", network.input_scale, network.input_offset)


def _check_float32(where: str, *arrays: Array | None) -> None:
    """Raise NonFiniteError if float32 cannot hold one of the numbers."""
    for values in arrays:
        outside = [] if values is None else values[~(np.abs(values) <= np.finfo(np.float32).max)]
        if len(outside):
            raise NonFiniteError(f"Expected finite float32 weights, but got {outside[0]:.3g} {where}. Train it again.")
