"""`python -m orthornn_evidence.irregular_time`: train on irregular time, skipping finished runs."""

import sys

from .runs import main

sys.exit(main(sys.argv[1:]))
