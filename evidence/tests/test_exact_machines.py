"""The automata of the tasks against their languages, and machines from trained networks."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re

import numpy as np
import pytest
import torch

from orthornn.automata import Automaton, machine_of
from orthornn.errors import ArgumentError
from orthornn_evidence import exact_machines
from orthornn_evidence.exact_machines import (
    RECIPES,
    TASKS,
    Network,
    Recipe,
    accuracy,
    long_word,
    machine_facts,
    outlook,
    train,
    words,
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def depth_of(text: str, most: int) -> int | None:
    """Return how many brackets are open, or None if a prefix closes too many or opens more than `most`."""
    depth = 0
    for letter in text:
        depth += 1 if letter == "0" else -1
        if not 0 <= depth <= most:
            return None
    return depth


LANGUAGES = {
    "tomita-1": lambda text: re.fullmatch("1*", text) is not None,
    "tomita-2": lambda text: re.fullmatch("(10)*", text) is not None,
    "tomita-3": lambda text: re.search("(^|0)(11)*1(00)*0(1|$)", text) is None,
    "tomita-4": lambda text: "000" not in text,
    "tomita-5": lambda text: text.count("0") % 2 == 0 and text.count("1") % 2 == 0,
    "tomita-6": lambda text: (text.count("0") - text.count("1")) % 3 == 0,
    "tomita-7": lambda text: re.fullmatch("0*1*0*1*", text) is not None,
    "parity": lambda text: text.count("0") % 2,
    "counter-3": lambda text: text.count("0") % 3,
    "counter-5": lambda text: text.count("0") % 5,
    "flip-flop-2": lambda text: int((text.replace("0", "") or "1")[-1]) - 1,
    "flip-flop-4": lambda text: int((text.replace("0", "") or "1")[-1]) - 1,
    "dyck-2": lambda text: depth_of(text, 2) == 0,
    "dyck-4": lambda text: depth_of(text, 4) == 0,
}


@pytest.mark.parametrize("name", LANGUAGES)
def test_the_tables_are_those_of_the_languages(name):
    task = TASKS[name]
    letters = task.table.shape[1]
    for length in range(5 if letters > 2 else 9):
        for word in itertools.product(range(letters), repeat=length):
            assert task.run(word)[-1] == LANGUAGES[name]("".join(map(str, word))), word
    assert len(task.minimal().table) == len(task.table)


@pytest.mark.parametrize("modulus", [3, 5])
def test_arithmetic_has_the_values_of_python(modulus):
    """Products before sums; and its machine is two layers of one register for each number."""
    task, random = TASKS[f"arithmetic-{modulus}"], np.random.default_rng(0)
    for length in (0, 1, 2, 3, 9):
        for word in random.integers(0, 3 * modulus, (30, length)):
            text = "".join("+-*"[token // modulus] + str(token % modulus) for token in word)
            assert task.run(word)[-1] == eval(f"0{text}") % modulus, text
    assert len(task.minimal().table) == modulus**2
    machine = machine_of(task)
    assert [layer.codes.shape[1] for layer in machine.layers] == [modulus, modulus]
    assert machine.verify() == 3 * modulus**3


@pytest.mark.parametrize(("name", "order"), [("s3", 6), ("s4", 24), ("a5", 60), ("s5", 120)])
def test_the_words_of_groups_reach_every_element(name, order):
    assert len(TASKS[name].minimal().table) == order
    assert all(len(set(column)) == order for column in TASKS[name].table.T.tolist())


@pytest.mark.parametrize("name", ["tomita-1", "tomita-7", "dyck-2", "s3"])
def test_many_words_stay_where_letters_still_matter(name):
    task = TASKS[name]
    tokens, outputs = words(task, 64, 200, np.random.default_rng(0))
    assert tokens.shape == (64, 200)
    assert outputs.shape == (65, 200)
    assert np.array_equal(outputs.numpy(), task.run(tokens.numpy()))
    sinks = (task.table == np.arange(len(task.table))[:, None]).all(1)
    alive = ~sinks[task.states(tokens.numpy())[-1]]
    assert alive.mean() > 0.2
    word = long_word(task, 4000, np.random.default_rng(0))
    assert not sinks[task.states(word)[:3000]].any()


@pytest.mark.parametrize("name", ["parity", "tomita-2", "flip-flop-2"])
def test_a_trained_network_has_its_automaton_in_its_states(name):
    task = TASKS[name]
    found = train(task, Recipe(longest=64), 0)
    assert found.automaton == task.minimal()
    assert found.length <= 64
    assert 0 <= accuracy(found.network, task, 32) <= 1
    again = train(task, Recipe(longest=64), 0)
    assert again.updates == found.updates
    assert all(torch.equal(a, b) for a, b in zip(found.network.parameters(), again.network.parameters()))


def test_a_network_without_training_has_none():
    found = train(TASKS["s3"], Recipe(lr=0.0, patience=3, limit=0.3, longest=8), 0)
    assert found.automaton is None
    assert found.starts > 1


def test_the_outlook_is_the_probabilities_after_all_words_of_a_few_letters():
    torch.manual_seed(0)
    network = Network(Recipe(), 2, 3)
    h = torch.randn(4, 16)
    with torch.no_grad():
        found = outlook(network, h, 2)
        words_of = [word for length in range(7) for word in itertools.product(range(2), repeat=length)]
        assert found.shape == (4, 3 * len(words_of))
        for column, word in enumerate(words_of):
            ends = h
            for letter in word:
                ends = network.step(ends, torch.full((4,), letter))
            wanted = network.head(ends).softmax(-1)
            torch.testing.assert_close(found[:, 3 * column : 3 * column + 3], wanted, rtol=0, atol=1e-5)


def test_facts_of_a_machine():
    facts = machine_facts(TASKS["tomita-4"], steps=3000)
    machine = machine_of(TASKS["tomita-4"])
    assert facts["registers"] == [layer.codes.shape[1] for layer in machine.layers]
    assert facts["steps_tried"] == machine.verify()
    if "c_wrong" in facts:
        assert facts["c_wrong"] == 0
        assert 0 < facts["c_bytes"] < 4000


def test_the_command_writes_every_seed_and_a_proof(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(exact_machines, "machine_facts", lambda task: {"states": len(task.table)})
    exact_machines.main(["--tasks", "parity", "--seeds", "2", "--longest", "32", "--out", str(tmp_path)])
    record = json.loads((tmp_path / "parity.json").read_text())
    assert record["recipe"] == {**dataclasses.asdict(Recipe()), "longest": 32}
    assert [run["seed"] for run in record["runs"]] == [0, 1]
    assert [run["exact"] for run in record["runs"]] == [True, True]
    assert len(capsys.readouterr().out.splitlines()) == 2
    proof = json.loads((tmp_path / "proofs" / "parity.json").read_text())
    assert Automaton(proof["table"], proof["outputs"], proof["start"]) == TASKS["parity"].minimal()
    with pytest.raises(ArgumentError, match="tasks"):
        exact_machines.main(["--tasks", "parities"])


def test_an_option_replaces_that_number_of_the_recipe_of_a_task_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(exact_machines, "machine_facts", lambda task: {"states": len(task.table)})
    seen = []
    monkeypatch.setattr(exact_machines, "measure", lambda task, recipe, seed: seen.append(recipe) or {})
    exact_machines.main(["--tasks", "parity,arithmetic-3", "--seeds", "1", "--longest", "32", "--out", str(tmp_path)])
    own = RECIPES["arithmetic-3"]
    assert seen == [Recipe(longest=32), dataclasses.replace(own, longest=32)]
    assert own.hidden_size > Recipe().hidden_size


def test_the_machine_of_arithmetic_is_found():
    found = train(TASKS["arithmetic-3"], RECIPES["arithmetic-3"], seed=0)
    assert found.automaton == TASKS["arithmetic-3"].minimal()
