"""Networks on sequences of which samples are dropped: rotations over time next to networks that read the time as an input.

problems   oscillators, sensors and events, with samples dropped
gru_d      the GRU with decay of Che et al., 2018
runs       what is trained and stored: `python -m orthornn_evidence.irregular_time`
table      what is stored, as tables
"""
