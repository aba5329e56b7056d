"""What type checkers see of the public API; checked by test_typing.py, never run."""

from typing import assert_type

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

import orthornn
from orthornn import GORU, Householder, OrthogonalRNN, OrthogonalRNNCell, PeepholeLSTM, ScaledCayley, orthogonalize
from orthornn.kernels import dense_rnn

x: Tensor = torch.zeros(3, 2, 4)
packed: PackedSequence = nn.utils.rnn.pack_sequence([x[0], x[1]])

rnn = OrthogonalRNN(4, 5, parametrization=Householder(reflections=2), nonlinearity="tanh", form="dense")
assert_type(rnn.forward(x), tuple[Tensor, Tensor])
assert_type(rnn.forward(x, output="last"), tuple[Tensor, Tensor])
assert_type(rnn.forward(packed), tuple[PackedSequence, Tensor])
assert_type(rnn.forward(packed, None), tuple[PackedSequence, Tensor])
assert_type(rnn.forward(packed, output="last"), tuple[Tensor, Tensor])
assert_type(rnn.forward(packed, None, "last"), tuple[Tensor, Tensor])
assert_type(rnn.fold(), OrthogonalRNN)
assert_type(rnn.fold(to_torch=True), nn.RNN)
assert_type(OrthogonalRNNCell(4, 5).forward(x[0]), Tensor)

goru = GORU(4, 5, nonlinearity="modrelu")
assert_type(goru.forward(x), tuple[Tensor, Tensor])
assert_type(goru.forward(packed), tuple[PackedSequence, Tensor])
assert_type(goru.forward(packed, output="last"), tuple[Tensor, Tensor])

lstm = PeepholeLSTM(4, 5, init="orthogonal")
assert_type(lstm.forward(packed), tuple[PackedSequence, tuple[Tensor, Tensor]])
assert_type(lstm.forward(x, output="last"), tuple[Tensor, tuple[Tensor, Tensor]])

assert_type(orthogonalize(nn.Linear(4, 5), "weight", Householder(), init="polar"), nn.Linear)
assert_type(dense_rnn(x, x[0], x[0], orthornn.activations.get("leaky_relu"), output="last"), Tensor)
assert_type(orthornn.optim.CayleySGD([x], lr=0.1), orthornn.optim.CayleySGD)

# A wrong name is an error: without one the comment itself is reported.
OrthogonalRNN(4, 5, form="sparse")  # type: ignore[arg-type]
OrthogonalRNN(4, 5, nonlinearity="sigmoid")  # type: ignore[arg-type]
OrthogonalRNN(4, 5, memory="disk")  # type: ignore[arg-type]
OrthogonalRNN(4, 5, parametrization="householder")  # type: ignore[arg-type]
rnn.forward(x, output="first")  # type: ignore[call-overload]
GORU(4, 5, nonlinearity="gelu")  # type: ignore[arg-type]
PeepholeLSTM(4, 5, init="zeros")  # type: ignore[arg-type]
Householder(base="cayley")  # type: ignore[arg-type]
ScaledCayley(init="haar")  # type: ignore[arg-type]
dense_rnn(x, x[0], x[0], "gelu")  # type: ignore[arg-type]
orthogonalize(nn.Linear(4, 5), "weight", Householder(), init="svd")  # type: ignore[arg-type]
