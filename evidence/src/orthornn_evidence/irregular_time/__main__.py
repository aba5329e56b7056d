"""`python -m orthornn_evidence.irregular_time`: train on irregular time; what is finished is not trained again."""

import sys

from .runs import main

sys.exit(main(sys.argv[1:]))
