"""The examples run, and do what they say."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from orthornn import Householder, OrthogonalRNN
from orthornn.automata import Automaton, machine_of
from support.tolerances import tolerance

ROOT = Path(__file__).parents[1]


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("program", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_every_program_explains_itself_and_refuses_other_arguments(program, monkeypatch, capsys):
    if "transformers" in program.read_text(encoding="utf-8"):
        pytest.importorskip("transformers")
    if "gymnasium" in program.read_text(encoding="utf-8"):
        pytest.importorskip("gymnasium")
    for argument, status in (("--help", 0), ("--wrong", 2)):
        monkeypatch.setattr("sys.argv", [program.name, argument])
        with pytest.raises(SystemExit) as error:
            runpy.run_path(str(program), run_name="__main__")
        assert error.value.code == status
        out = capsys.readouterr()
        assert "usage: " in (out.out if status == 0 else out.err)


def test_online_learning_beats_the_trivial_predictor(capsys, one_thread):
    online = load("online")
    found = online.learn(900, report=300)
    assert len(found) == 3
    errors = [error for error, _, _ in found]
    assert errors == sorted(errors, reverse=True)
    error, trivial, rate = found[-1]
    assert online.NOISE**2 < error < trivial / 2
    assert rate > 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3
    assert re.fullmatch(r" +900 updates, \d+ a second: squared error [\d.]+, trivial predictor [\d.]+", printed[-1])


def test_exact_online_learning_beats_the_trivial_predictor(capsys):
    online = load("online")
    found = online.learn_exactly(2000, report=500)
    assert len(found) == len(capsys.readouterr().out.splitlines()) == 4
    errors = [error for error, _, _ in found]
    assert errors[-1] < errors[0]
    error, trivial, rate = found[-1]
    assert online.NOISE**2 < error < trivial / 4
    assert rate > 0


def test_the_kernel_stands_in_for_the_delta_rule_of_transformers(one_thread):
    pytest.importorskip("transformers")
    example = load("gated_delta_net")
    torch.manual_seed(0)
    net = example.layer(heads=2, size=24, width=16)
    # Single precision, and a chunk of transformers is 64 steps.
    assert example.difference(net, torch.randn(3, 70, 16)) < tolerance(torch.float32, 20 * 70 * 48)
    assert example.difference(net, torch.randn(1, 1, 16)) < tolerance(torch.float32, 20 * 48)
    assert all(times > 0 for times in example.times_faster(3, heads=1, size=8, rounds=1))
    query, key, value = torch.randn(3, 2, 5, 4, 8).unbind()
    given = (
        query[:, :, ::2],
        key[:, :, ::2],
        value,
        -torch.rand(2, 5, 4),
        torch.rand(2, 5, 4),
    )  # two query heads, four of values
    options = {"initial_state": torch.randn(2, 4, 8, 8), "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    wants = example.modeling.torch_recurrent_gated_delta_rule(*given, **options)
    for found, want in zip(example.gated_delta_rule(*given, **options), wants):
        torch.testing.assert_close(
            found, want, rtol=0, atol=tolerance(torch.float32, 1600) * (1 + float(want.abs().max()))
        )
    with pytest.raises(ValueError, match="use_qk_l2norm_in_kernel"):
        example.gated_delta_rule(*given)


def test_a_policy_that_learns_online_remembers(capsys, one_thread):
    """Truncated back-propagation learns, too, but the gradient of the whole past much faster."""
    example = load("online_policy")
    exact, truncated = example.learn_exactly(3000, report=1000), example.learn_truncated(1000, report=1000)
    assert len(capsys.readouterr().out.splitlines()) == len(exact) + len(truncated) == 4
    assert exact[-1] > 0.8
    assert exact == sorted(exact)
    assert truncated[0] < exact[0]


def test_a_stream_rewards_the_symbol_before_the_delay():
    example = load("online_policy")
    stream, seen = example.Recall(3), []
    for step in range(60):
        seen.append(stream.next())
        wanted = seen[-1 - example.DELAY] if step >= example.DELAY else 1.0
        action, _ = stream.act(float(wanted == 1))  # the right one, for sure
        assert action == (wanted == 1)
    assert stream.right == 60
    assert len(set(seen)) == 2


def test_a_recurrent_policy_is_trained(capsys, one_thread):
    policy = load("recurrent_policy")
    found = policy.train(2, report=1)
    assert len(found) == 2
    assert all(0 <= share <= 1 and steps > 0 and updates > 0 for share, steps, updates in found)
    line = r" +2 updates: +[\d.]+ % of episodes right, \d+ steps a second, \d+ updates a second in the network"
    assert re.fullmatch(line, capsys.readouterr().out.splitlines()[-1])


def test_corridors_end_with_a_reward_for_the_side_of_the_cue():
    policy = load("recurrent_policy")
    worlds = policy.Corridors(5, 0)
    cue, length, lengths = worlds.cue.clone(), torch.zeros(5), set()
    for _ in range(300):
        seen = worlds.observe().argmax(1)
        assert torch.equal(seen < 2, worlds.starts)
        cue = torch.where(worlds.starts, seen, cue)
        length = torch.where(worlds.starts, 1, length + 1)
        reward, ended = worlds.act(cue)
        assert torch.equal(ended, seen == 3)
        assert torch.equal(reward, ended.float())  # the side of the cue is always right
        lengths.update(length[ended].tolist())
    assert lengths == set(range(3, policy.LONGEST + 3))


def test_advantages_do_not_cross_the_end_of_an_episode():
    policy = load("recurrent_policy")
    torch.manual_seed(0)
    rewards, values, after = torch.randn(9, 2), torch.randn(9, 2), torch.randn(2)
    ended = torch.zeros(9, 2, dtype=torch.bool)
    ended[3, 0] = True
    found = policy.advantages(rewards, ended, values, after)
    alone = policy.advantages(rewards[:4, :1], ended[:4, :1], values[:4, :1], torch.zeros(1))
    torch.testing.assert_close(found[:4, :1], alone)
    whole = sum(
        (policy.DISCOUNT * policy.TRACE) ** t
        * (rewards[t, 1] + policy.DISCOUNT * (values[t + 1, 1] if t < 8 else after[1]) - values[t, 1])
        for t in range(9)
    )
    torch.testing.assert_close(found[0, 1], whole)


def memory_example():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed: pip install '.[rl]'")
    return load("ppo_memory")


def options(example, *words):
    small = "--total-timesteps 96 --num-envs 3 --num-steps 16 --num-minibatches 2 --update-epochs 2"
    return example.parse([*small.split(), "--features", "4", "--state-size", "6", *words])


@pytest.mark.parametrize(
    "words", [["--hide", "1", "3", "--env-id", "CartPole-v1"], ["--hide", "2", "--env-id", "Pendulum-v1"]]
)
def test_an_agent_with_memory_is_trained(words, capsys, one_thread):
    """Choices and continuous actions; CartPole's episodes end inside the rollouts, Pendulum's after them."""
    example = memory_example()
    lines = example.train(options(example, *words))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == len(lines) == (1 if "CartPole-v1" in words else 0)
    if lines:
        assert re.fullmatch(r" +96 steps: mean return [\d.]+ of \d+ episodes, \d+ steps/s", printed[-1])


def test_an_agent_with_memory_updates_from_the_policy_that_it_had(one_thread):
    example = memory_example()
    args = options(example)
    torch.manual_seed(0)
    player = example.Player(args)
    agent = example.Agent(player.inputs, player.actions, args)
    player.play(agent, args)
    rollout = player.play(agent, args)  # from the state after another one
    assert rollout.starts[1:].any()
    policy, values = agent.evaluate(rollout.seen, rollout.h, rollout.starts)
    close = {"rtol": 0, "atol": tolerance(torch.float32, args.num_steps * args.state_size)}
    torch.testing.assert_close(policy.log_prob(rollout.actions), rollout.log_probs, **close)
    torch.testing.assert_close(values, rollout.values, **close)


def test_an_agent_with_memory_sees_what_is_not_hidden():
    example = memory_example()
    environment = example.make_env("CartPole-v1", (1, 3))
    whole = example.make_env("CartPole-v1", ())
    assert environment.observation_space.shape == (2,)
    seen, all_of_it = environment.reset(seed=3)[0], whole.reset(seed=3)[0]
    assert seen.tolist() == all_of_it[[0, 2]].tolist()


def test_what_follows_a_limit_of_time_counts_and_what_follows_an_end_does_not(one_thread):
    example = memory_example()
    args = options(example, "--env-id", "Pendulum-v1", "--hide", "2", "--num-steps", "200")
    torch.manual_seed(0)
    player = example.Player(args)
    agent = example.Agent(player.inputs, player.actions, args)
    rollout = player.play(agent, args)
    assert rollout.ended.nonzero()[:, 0].unique().tolist() == [199]
    beyond = rollout.rewards.double().sum(0) - torch.tensor(player.returns)
    assert beyond.abs().min() > 0
    advantages = example.advantages_of(rollout, args.gamma, args.gae_lambda)
    torch.testing.assert_close(advantages[-1], rollout.rewards[-1] - rollout.values[-1])


def test_chunks_with_detached_states():
    text = (ROOT / "docs" / "how_to" / "streaming.md").read_text(encoding="utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    exec(code, names)
    assert names["h"].shape == (2, 8, 64)
    assert not names["h"].requires_grad


def test_values_across_pieces_are_those_of_the_whole():
    torch.manual_seed(0)
    for nonlinearity in ("modrelu", "identity"):
        rnn = OrthogonalRNN(2, 6, 2, parametrization=Householder(2), nonlinearity=nonlinearity, dtype=torch.float64)
        x = torch.randn(20, 3, 2, dtype=torch.float64)
        whole, final = rnn(x)
        outs, h = [], None
        for piece in x.split([7, 1, 12]):
            out, h = rnn(piece, h)
            h = h.detach()
            outs.append(out)
        close = {"rtol": 0, "atol": tolerance(torch.float64, 20 * 6 * 2) * float(whole.detach().abs().max())}
        torch.testing.assert_close(torch.cat(outs), whole, **close)
        torch.testing.assert_close(h, final, **close)


def test_the_results_of_the_examples_have_what_their_measurement_writes(tmp_path, monkeypatch, capsys, one_thread):
    """The guides show entries of results/examples.json, which benchmarks/examples.py writes."""
    spec = importlib.util.spec_from_file_location("measured", ROOT / "benchmarks" / "examples.py")
    measured = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(measured)
    sizes = ["--updates", "1", "--observations", "20", "--steps", "50"]
    monkeypatch.setattr("sys.argv", ["examples.py", "--out", str(tmp_path / "examples.json"), *sizes])
    measured.main()
    found, stored = (json.loads((folder / "examples.json").read_text()) for folder in (tmp_path, ROOT / "results"))
    assert {key: set(value) for key, value in found.items()} == {key: set(value) for key, value in stored.items()}
    assert list(found["policy"]["right"]) == ["1"]
    assert list(stored["policy"]["right"]) == [str(update) for update in range(50, 401, 50)]
    assert found["online"]["noise"] == stored["online"]["noise"]


def proofs():
    no_000 = Automaton([[1, 0], [2, 0], [3, 0], [3, 3]], [1, 1, 1, 0])
    turns = Automaton([[1, 3], [2, 0], [3, 1], [0, 2]], [0, 0, 0, 1])
    return [machine_of(automaton).proof() for automaton in (no_000, turns)]


def test_the_checker_of_machines_reads_a_proof_without_any_package(tmp_path):
    paths = []
    for number, proof in enumerate(proofs()):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(proof))
    command = [sys.executable, "-I", "-S", ROOT / "examples" / "check_machine.py", *paths]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.partition(": ")[2] for line in printed] == [
        "right for every word (12 steps tried).",
        "right for every word (8 steps tried).",
    ]


def test_the_checker_of_machines_finds_every_wrong_entry():
    check = load("check_machine").check
    for proof in proofs():
        tried = 0
        text = json.dumps(proof)
        for q, row in enumerate(proof["table"]):
            for token in range(len(row)):
                wrong = json.loads(text)
                wrong["table"][q][token] = (row[token] + 1) % len(proof["table"])
                with pytest.raises(SystemExit):
                    check(wrong)
                tried += 1
        for depth, layer in enumerate(proof["layers"]):
            for number, rule in enumerate(layer["rules"]):
                for k in range(len(rule["factors"])):
                    wrong = json.loads(text)
                    wrong["layers"][depth]["rules"][number]["factors"][k][0] ^= 3  # the other strength
                    with pytest.raises(SystemExit, match="neither a reflection"):
                        check(wrong)
                    tried += 1
        assert tried > len(proof["table"])
        for change in ({"start": 1 - proof["start"]}, {"outputs": proof["outputs"][1:]}):
            with pytest.raises(SystemExit):
                check({**proof, **change})
        wrong = json.loads(text)
        wrong["layers"][0]["codes"][0] = wrong["layers"][0]["codes"][1]
        with pytest.raises(SystemExit, match="same registers"):
            check(wrong)
