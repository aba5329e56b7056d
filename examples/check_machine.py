"""Verify the proof of an exact machine, without orthornn: that it gives the outputs of its automaton for every word.

    python examples/check_machine.py results/exact-machines/proofs/tomita-4.json

The file has a table of the automaton, its outputs, and the layers of a machine (`orthornn.automata.Machine.proof`). Registers
are integers. Every token is applied in every combination of states that can occur, and must lead where the table says. By
induction the machine is then right after any number of letters.
"""

import argparse
import json


def apply(rule, registers):
    """Return the registers after (I - s u u' / u'u) for each factor, and the write."""
    x = list(registers)
    for strength, i, j in rule["factors"]:
        u = [0] * len(x)
        u[i] += 1
        if i != j:
            u[j] -= 1
        if strength != len([entry for entry in u if entry]):
            raise SystemExit(f"{strength, i, j} is neither a reflection along e_i - e_j nor a projection along e_i.")
        along = sum(a * b for a, b in zip(u, x))
        norm = sum(a * a for a in u)  # = s, so that s / u'u is 1
        x = [a - strength * along // norm * b for a, b in zip(x, u)]
    if rule["write"] is not None:
        x[rule["write"]] += 1
    return x


def entry(array, place):
    """Return array[place[0]][place[1]]..."""
    for index in place:
        array = array[index]
    return array


def check(proof):
    """Return how many steps were tried; exit with a message if one is wrong."""
    table, layers = proof["table"], proof["layers"]
    for layer in layers:
        if len({tuple(code) for code in layer["codes"]}) != len(layer["codes"]):
            raise SystemExit("Two states of a layer have the same registers.")
    first = tuple(layer["start"] for layer in layers)
    if entry(proof["states"], first) != proof["start"]:
        raise SystemExit("The machine starts in another state.")
    waiting, seen, tried = [first], {first}, 0
    for now in waiting:
        q = entry(proof["states"], now)
        for token, wanted in enumerate(table[q]):
            after = []
            for depth, layer in enumerate(layers):
                number = entry(layer["chosen"], (token, *now[:depth]))
                if number < 0:
                    raise SystemExit(f"Layer {depth} has no rule for token {token} and states {now[:depth]} below.")
                registers = apply(layer["rules"][number], layer["codes"][now[depth]])
                if registers not in layer["codes"]:
                    raise SystemExit(f"State {q}, token {token}: the registers {registers} are no state.")
                after.append(layer["codes"].index(registers))
            if entry(proof["states"], after) != wanted:
                raise SystemExit(f"State {q}, token {token}: the table has {wanted}.")
            tried += 1
            if tuple(after) not in seen:
                seen.add(tuple(after))
                waiting.append(tuple(after))
    if len(proof["outputs"]) != len(table):
        raise SystemExit("There is not one output for each state.")
    return tried


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proof", nargs="+", help="file written from Machine.proof()")
    for path in parser.parse_args().proof:
        with open(path) as file:
            steps = check(json.load(file))
        print(f"{path}: right for every word ({steps} steps tried).")
