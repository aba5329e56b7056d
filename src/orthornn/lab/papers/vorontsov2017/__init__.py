"""Vorontsov, Trabelsi, Kadoury and Pal, 2017: On orthogonality and learning recurrent networks with long term dependencies.

W = U S V', singular values within a margin m of 1; section 3.1: batches of 50, an epoch of 100 batches for made data,
RMSprop at 1e-4 (decay 0.9, as the released code has it), geodesic SGD on the bases at 1e-6, gradients cut to norm 100,
weight decay 1e-4 on W, tanh unless stated. eq. 9 is taken as a product (see optim/cayley.py).

The spectrum's rate is divided by 2m, which is undefined at m = 0 (no spectrum) and without a margin (s itself moves). At
m = 100 an s may be negative; |s| is the singular value. What only the released code has (elementwise clipping inside
back-propagation, a trained first state, a scalar copying input, half the sum, bases that may never advance) is in
released-code.
"""

from . import first_values, further_claims, memory, real_data, soft_constraints

SECTIONS = (memory, real_data, soft_constraints, further_claims, first_values)
"""The experiments, in the order of the paper; last, further_claims and first_values of our own."""
