"""Networks on sequences with dropped samples: rotations over time, compared with networks that read the time as an input.

problems   oscillators, sensors and events, with samples dropped
gru_d      the GRU with decay of Che et al., 2018
runs       training and storing: `python -m orthornn_evidence.irregular_time`
table      the stored results as tables
"""
