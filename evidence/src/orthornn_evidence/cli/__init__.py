"""The commands `orthornn reproduce` and `orthornn bench`; what `orthornn --help` says of these and of the others."""

from __future__ import annotations

from orthornn_command.entry_points import Command

REPRODUCE = Command(
    "reproduce the tables and figures of the papers",
    f"{__name__}.reproduce",
    "orthornn reproduce mhammedi2017 --only table3 --data FOLDER",
)
BENCH = Command(
    "verify the kernels, then time them next to torch's layers", f"{__name__}.bench", "orthornn bench --quick"
)
LEADERBOARD = Command(
    "train systems with equal budgets on one task, and write the page", "orthornn_evidence.leaderboard"
)
GROUP_WORDS = Command(
    "train on words in a finite group, and make the network exact at any length", "orthornn_evidence.group_words"
)
EXACT_MACHINES = Command(
    "train on words of finite automata, and make exact machines of the networks", "orthornn_evidence.exact_machines"
)
SWAP = Command("train torch's layers and ours in scripts where only the layer changes", "orthornn_evidence.swap.suite")
