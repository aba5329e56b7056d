"""`python -m orthornn_evidence.swap`."""

from .suite import main

raise SystemExit(main())
