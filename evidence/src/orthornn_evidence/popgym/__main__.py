"""`python -m orthornn_evidence.popgym`: train agents on POPGym, skipping finished runs."""

import sys

from .runs import main

sys.exit(main(sys.argv[1:]))
