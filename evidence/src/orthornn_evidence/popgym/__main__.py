"""`python -m orthornn_evidence.popgym`: train agents on POPGym; what is finished is not trained again."""

import sys

from .runs import main

sys.exit(main(sys.argv[1:]))
