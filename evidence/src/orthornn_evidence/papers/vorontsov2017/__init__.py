"""Vorontsov, Trabelsi, Kadoury and Pal, 2017: On orthogonality and learning recurrent networks with long term dependencies.

W = U S V', singular values within a margin m of 1; section 3.1: batches of 50, an epoch of 100 batches for made data,
RMSprop at 1e-4, geodesic SGD on the bases at 1e-6, gradients clipped at 100, weight decay 1e-4, tanh unless stated. eq. 9
is taken as a product (see src/orthornn/optim/cayley.py).

Where the text is silent, the released code is followed (common.py): small input weights, biases 0, a Glorot readout, a first
state trained from 0, Lasagne's RMSprop (decay 0.9, 1e-6 inside the root), clipping of every entry inside back-propagation,
decay on the input weights, W and the readout, singular values not below 0, batches of MNIST from fresh permutations. Where
it contradicts the text, the text is followed, and both are run in released-code (one number as the input of copying, half
the sum, bases that may never advance).

The spectrum's rate is divided by 2m, which is undefined at m = 0 (no spectrum) and without a margin (s itself moves).
"""

from . import first_values, further_claims, memory, real_data, soft_constraints

SECTIONS = (memory, real_data, soft_constraints, further_claims, first_values)
"""The experiments, in the order of the paper; last, further_claims and first_values of our own."""
