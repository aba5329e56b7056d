"""Certificates, measured: certified accuracy next to an attack, and the closed form next to a semidefinite program.

attack   projected gradients on inputs, in total energy
lstm     the global Lipschitz bound of an LSTM
pixels   pixel MNIST: `python -m orthornn_evidence.certificates pixels`
sdp      Lipschitz bound of a recurrent network by a semidefinite program
tanks    two tanks: `python -m orthornn_evidence.certificates tanks`, which needs cvxpy-base and clarabel
table    what is stored, as tables
"""
