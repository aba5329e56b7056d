"""Exact machines as C: every output of a compiled machine is the automaton's, and warnings are errors."""

from __future__ import annotations

import itertools
import shutil
import subprocess

import numpy as np
import pytest

from orthornn.automata import Automaton, machine_of
from orthornn.errors import ArgumentError
from orthornn.export import machine_to_c

CC = shutil.which("cc")
ORDERS = list(itertools.permutations(range(4)))
AUTOMATA = {
    "parity": Automaton([[0, 1], [1, 0]], [0, 1]),
    "no_000": Automaton([[1, 0], [2, 0], [3, 0], [3, 3]], [1, 1, 1, 0]),
    "store": Automaton([[q, *range(5)] for q in range(5)], [255, 0, 7, 3, 200]),
    "one_state": Automaton([[0, 0, 0]], [9]),
    "orders": Automaton(
        [[ORDERS.index((o[1], o[0], *o[2:])), ORDERS.index((*o[1:], o[0]))] for o in ORDERS], range(24), 17
    ),
    "wide": Automaton([[(q + 1) % 31, 0] for q in range(31)], np.arange(31) * 1000),
}
MAIN = """
#include <stdio.h>
int main(void)
{
    uint8_t x[NAME_REGISTERS];
    int c;
    name_start(x);
    printf("%u\\n", name_output(x));
    while ((c = getchar()) != EOF) {
        name_step(x, (unsigned)c);
        printf("%u\\n", name_output(x));
    }
    return 0;
}
"""


@pytest.mark.skipif(CC is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", AUTOMATA)
def test_the_compiled_machine_has_the_outputs_of_the_automaton(name, tmp_path):
    automaton = AUTOMATA[name]
    tokens = automaton.table.shape[1]
    (tmp_path / f"{name}.h").write_text(machine_to_c(machine_of(automaton), name))
    main = MAIN.replace("NAME", name.upper()).replace("name", name)
    (tmp_path / "main.c").write_text(f'#include "{name}.h"\n#include "{name}.h"\n{main}')
    flags = ["-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror", "-pedantic", "-O1"]
    subprocess.run([CC, *flags, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    word = np.random.default_rng(0).integers(0, tokens, 20_000).astype(np.uint8)
    word[::1000] = tokens  # does not exist, and changes nothing
    done = subprocess.run([tmp_path / "main"], input=word.tobytes(), capture_output=True, check=True)
    stays = Automaton(
        np.column_stack([automaton.table, np.arange(len(automaton.table))]), automaton.outputs, automaton.start
    )
    assert [int(line) for line in done.stdout.split()] == stays.run(word).tolist()


def test_what_cannot_be_written_is_refused():
    with pytest.raises(ArgumentError, match="C identifier"):
        machine_to_c(machine_of(AUTOMATA["parity"]), "2b")
    with pytest.raises(ArgumentError, match="outputs from 0, but got -1"):
        machine_to_c(machine_of(Automaton([[0, 1], [1, 0]], [0, -1])))
    q = np.arange(37)
    with pytest.raises(ArgumentError, match=r"below 2\^32, but got 37 registers of base 2"):
        machine_to_c(machine_of(Automaton(((q + 1) % 37)[:, None], q)))
