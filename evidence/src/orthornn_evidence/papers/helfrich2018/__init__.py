"""Helfrich, Willmott and Ye, 2018: Orthogonal recurrent neural networks with scaled Cayley transform. Numbers are those of
the version of January 2018 (ICLR submission), which the tables of the later version change for TIMIT.

scoRNN: W = (I + A)^-1 (I - A) D, modReLU; RMSprop (decay 0.9, as the released code has it) at 1e-3, A at a tenth. rho is
rounded to the nearest integer, halves to even: n/10 of 170 is 17, n/2 is 85; where it is odd one 2 x 2 block of A is
split. LSTM: forget bias 1. Full-capacity uRNN: the update of Wisdom et al., 2016, with its rate 1e-6, and here with its
drift corrected but in Fig. 4. Baselines' rates are not in the paper: RMSprop 1e-3;
baselines tries others.
"""

from . import adding, appendices, baselines, copying, further_claims, pixel_mnist, speech

SECTIONS = (copying, adding, pixel_mnist, speech, appendices, further_claims, baselines)
"""The experiments, in the order of the paper; last, further_claims and baselines of our own."""
