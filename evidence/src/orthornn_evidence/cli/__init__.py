"""The commands `orthornn reproduce` and `orthornn bench`, and the lines of `orthornn --help` for all commands here."""

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
    "train on words in a finite group, and make the network exact at every length", "orthornn_evidence.group_words"
)
EXACT_MACHINES = Command(
    "train on words of finite automata, and extract exact machines", "orthornn_evidence.exact_machines"
)
SWAP = Command("train torch's layers and ours in scripts that differ only in the layer", "orthornn_evidence.swap.suite")
