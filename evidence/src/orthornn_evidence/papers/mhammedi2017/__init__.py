"""Mhammedi, Hellicar, Rahman and Bailey, 2017: Efficient orthogonal parametrization of recurrent neural networks using
Householder reflections. Published numbers are those of the ICML version.

Everywhere: Adam at one rate for all parameters, leaky ReLU, first values as in Arjovsky et al., 2016, biases 0, a forget
bias of 5 (learn/systems: ornn, srnn, lstm). Where the text and the released code differ the text is followed; what the code
does is the system "code" of Table 3, and the variants with -code of the tasks.
"""

from . import adding, characters, copying, cost, further_claims, music, pixel_mnist

SECTIONS = (cost, pixel_mnist, adding, music, characters, copying, further_claims)
"""The experiments, in the order of the paper; last, further_claims of our own."""
