from __future__ import annotations

import collections
import math

import pytest
import torch

from orthornn.errors import ArgumentError, DataError
from orthornn.learn.tasks import Characters
from orthornn.learn.tasks.abilities import baselines
from orthornn.learn.tasks.characters import UNKNOWN_SYMBOL
from support.real_data import REAL_DATA, needs

LINES = {
    "ptb.train.txt": " aab b \n a <unk> b \n bb \n ab \n ba \n",
    "ptb.valid.txt": " ab ba \n",
    "ptb.test.txt": " ba b \n ab \n abab b \n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in LINES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def lines(batch):
    """(inputs, targets) of each sequence as lists."""
    if isinstance(batch.inputs, torch.Tensor):
        return [tuple(column.tolist() for column in pair) for pair in zip(batch.inputs.T, batch.targets.T)]
    padded = [torch.nn.utils.rnn.pad_packed_sequence(one) for one in batch]
    return [
        tuple(values[:length, i].tolist() for values, _ in padded) for i, length in enumerate(padded[0][1].tolist())
    ]


def expected_lines(ahead):
    alphabet = sorted(set("aab ba <unk> bbbab"))
    texts = [line.strip() for line in LINES["ptb.train.txt"].splitlines()]
    codes = [[alphabet.index(letter) for letter in text] for text in texts]
    return sorted((code[:-ahead], code[ahead:]) for code in codes if len(code) > ahead)


@pytest.mark.parametrize("ahead", [1, 2, 4])
@pytest.mark.parametrize("batching", ["packed", "equal"])
def test_an_epoch_shows_every_line_and_what_follows(folder, ahead, batching):
    task = Characters(data=str(folder), ahead=ahead, batching=batching)
    size = 1 if batching == "packed" else 2
    epoch = [task.problem().train(step, size, 3) for step in range(task.steps_per_epoch(size))]
    assert sorted(line for batch in epoch for line in lines(batch)) == expected_lines(ahead)
    if batching == "equal":
        assert all(isinstance(batch.inputs, torch.Tensor) for batch in epoch)


def test_the_text_is_described(folder):
    (told,) = Characters(data=str(folder)).summary_lines()
    lengths = {part: len(Characters(data=str(folder))._part(part).lines) for part in ("train", "validation", "test")}
    assert lengths == {"train": 5, "validation": 1, "test": 3}
    assert told.startswith(
        f"{folder}: lines: 5 for train (20 characters), 1 for validation (5 characters), 3 for test ("
    )
    size = Characters(data=str(folder)).problem().schema["input_size"]
    assert told.endswith(f"; {size} different characters")


def test_packed_lines_are_the_lines_alone(folder):
    task = Characters(data=str(folder))
    together = task.problem().train(0, 5, 0)
    assert sorted(lines(together)) == expected_lines(1)
    assert lines(task.problem().train(7, 2, 1)) == lines(Characters(data=str(folder)).problem().train(7, 2, 1))


def test_variants_differ_in_the_word_and_the_end_of_line(folder):
    first, second = (Characters(data=str(folder), variant=name) for name in ("mhammedi2017", "vorontsov2017"))
    # space < > a b k n u, and space newline a b <unk>
    assert (first.problem().schema["input_size"], second.problem().schema["input_size"]) == (8, 5)
    assert second.steps == len("aab b\n") - 1
    assert first.steps == len("a <unk> b") - 1


def texts(task, part="test"):
    symbols, text = task.problem().schema["vocabulary"], task._part(part)
    return ["".join(symbols[i] for i in line) for line in text.symbols.split(text.lines.lengths.tolist())]


def test_the_released_code_keeps_the_blank_that_begins_a_line(folder):
    """Its lines are readline()[:-2]: without the newline and the blank before it."""
    (folder / "ptb.test.txt").write_text(" ba b \n ab \n a \n \n\n b\n")
    plain, released = (Characters(data=str(folder), variant=f"mhammedi2017{ending}") for ending in ("", "-code"))
    assert texts(plain) == ["ba b", "ab"]
    assert texts(released) == [" ba b", " ab"]  # " a" has one prediction, as the released code requires two
    assert texts(released, "train") == [line[:-2] for line in LINES["ptb.train.txt"].splitlines(keepends=True)]
    assert released.problem().schema["input_size"] == plain.problem().schema["input_size"]
    assert texts(Characters(data=str(folder), variant="mhammedi2017-code", ahead=2)) == [" ba b"]
    ended = Characters(data=str(folder), variant="mhammedi2017-code", line_ends=True)
    assert texts(ended) == [" ba b\n", " ab\n", " a\n", " b\n"]
    with pytest.raises(DataError, match="none for test of more than 5 characters"):
        Characters(data=str(folder), variant="mhammedi2017-code", ahead=4).objective().trivial_loss  # noqa: B018


def test_the_end_of_a_line_is_a_symbol_on_request(folder):
    plain, ended = (Characters(data=str(folder), line_ends=wanted) for wanted in (None, True))
    assert texts(plain) == ["ba b", "ab", "abab b"]
    assert texts(ended) == ["ba b\n", "ab\n", "abab b\n"]
    assert (plain.problem().schema["input_size"], ended.problem().schema["input_size"]) == (8, 9)
    other = [Characters(data=str(folder), variant="vorontsov2017", line_ends=wanted) for wanted in (None, True, False)]
    assert [task.problem().schema["input_size"] for task in other] == [5, 5, 4]
    assert texts(other[0]) == texts(other[1]) == texts(ended)
    assert texts(other[2]) == texts(plain)


def test_the_released_variant_keeps_blanks_and_counts_padding(folder):
    task, plain = (Characters(data=str(folder), variant=name) for name in ("vorontsov2017-code", "vorontsov2017"))
    symbols = task.problem().schema["vocabulary"]
    assert (task.problem().schema["input_size"], plain.problem().schema["input_size"]) == (5, 5)
    text = task._part("test")
    found = ["".join(symbols[i] for i in part) for part in text.symbols.split(text.lines.lengths.tolist())]
    raw = (folder / "ptb.test.txt").read_text().splitlines()
    assert found == [line.replace("<unk>", UNKNOWN_SYMBOL) + "\n" + 2 * UNKNOWN_SYMBOL for line in raw]
    longest = max(len(line) + 1 for line in raw)
    cut = Characters(data=str(folder), variant="vorontsov2017-code", max_length=longest)._part("test").lines.lengths
    assert cut.max() == longest + 1  # a line of the greatest length has one padded prediction, not two


def test_the_length_that_counts_is_that_of_the_line_in_the_file(folder):
    kept = Characters(data=str(folder), max_length=8)
    assert sorted(kept._part("train").lines.lengths.tolist()) == [2, 2, 2, 5]
    with pytest.raises(DataError, match="none for validation of more than 1 characters and at most 7"):
        Characters(data=str(folder), max_length=7).objective().trivial_loss  # noqa: B018


@pytest.mark.parametrize("ahead", [1, 2])
def test_predicting_the_frequencies_has_the_trivial_loss(folder, ahead):
    task = Characters(data=str(folder), ahead=ahead)
    batches = [task.problem().train(step, 1, 0) for step in range(task.steps_per_epoch(1))]
    targets = torch.cat([batch.targets.flatten() for batch in batches])
    frequencies = torch.bincount(targets, minlength=task.problem().schema["output_size"]).double() / len(targets)
    total = count = 0.0
    for batch in batches:
        answer = frequencies.log().clamp_min(-1e3).expand(*batch.targets.shape, -1)
        one, number = task.objective().metrics(answer, batch.targets)["loss"]
        total, count = total + one, count + number
    assert total / count == pytest.approx(task.objective().trivial_loss, rel=1e-12)
    assert task.objective().trivial_metric == pytest.approx(task.objective().trivial_loss / math.log(2))


def test_bits_per_character_and_per_line(folder):
    task = Characters(data=str(folder))
    batch = next(task.problem().test(2))
    prediction = torch.randn(len(batch.targets.data), task.problem().schema["output_size"], dtype=torch.float64)
    metrics = task.objective().metrics(prediction, batch.targets)
    bits = -prediction.log_softmax(-1).gather(1, batch.targets.data[:, None])[:, 0] / math.log(2)
    assert metrics["bpc"][0] == pytest.approx(float(bits.sum()))
    # "ba b" has three predictions, "ab" one, packed as steps of 2, 1, 1
    of_lines = [float(bits[[0, 2, 3]].mean()), float(bits[1])]
    assert metrics["bpc_line"] == (pytest.approx(sum(of_lines)), 2)
    assert float(task.objective().loss(prediction, batch.targets)) == pytest.approx(float(bits.mean()) * math.log(2))


def test_one_character_known_is_the_frequency_of_what_follows_it(folder):
    task = Characters(data=str(folder))
    after, size = collections.Counter(), task.problem().schema["input_size"]
    for step in range(5):
        for inputs, targets in lines(task.problem().train(step, 1, 0)):
            after.update(zip(inputs, targets))
    nats = [
        -math.log((after[a, b] + 1) / (sum(n for (first, _), n in after.items() if first == a) + size))
        for inputs, targets in lines(next(task.problem().test(3)))
        for a, b in zip(inputs, targets)
    ]
    assert list(baselines(task).values()) == [pytest.approx(sum(nats) / len(nats))]


def test_any_text_file_is_divided_by_seed(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {number} é\r\n" for number in range(40)) + "\n\n", encoding="utf-8")
    task = Characters(data=str(path))
    parts = {
        part: {str(line) for batch in getattr(task.problem(), part)(7) for line in lines(batch)}
        for part in ("validation", "test")
    }
    train = {str(line) for step in range(32) for line in lines(task.problem().train(step, 1, 0))}
    assert (len(train), len(parts["validation"]), len(parts["test"])) == (32, 4, 4)
    assert len(train | parts["validation"] | parts["test"]) == 40
    other = Characters(data=str(path), split_seed=1)
    assert parts["test"] != {str(line) for batch in other.problem().test(7) for line in lines(batch)}


def test_a_byte_order_mark_is_no_character(folder):
    plain = Characters(data=str(folder))
    before = plain.problem().schema["input_size"], lines(next(plain.problem().test(9)))
    for name, text in LINES.items():
        (folder / name).write_text(text, encoding="utf-8-sig")
    marked = Characters(data=str(folder))
    assert (marked.problem().schema["input_size"], lines(next(marked.problem().test(9)))) == before


def test_characters_that_training_has_not_share_one_symbol(folder):
    (folder / "ptb.test.txt").write_text(" xyab \n")
    task = Characters(data=str(folder))
    assert task.problem().schema["input_size"] == 8 + 1
    assert lines(next(task.problem().test(1)))[0][0][:2] == [8, 8]
    assert max(max(line[0]) for step in range(5) for line in lines(task.problem().train(step, 1, 0))) < 8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Expected a text file, or .* but .* has no ptb.valid.txt"),
        (b"", "is empty"),
        (b"ab\xff\n", "Expected text in UTF-8, but byte 2 of"),
    ],
)
def test_a_bad_file_is_one_clear_error(folder, content, message):
    path = folder / "ptb.valid.txt"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        Characters(data=str(folder)).problem()
    assert "ptb.valid.txt" in str(caught.value)
    with pytest.raises(DataError, match="no file or folder"):
        Characters(data=str(folder / "none")).problem()


@pytest.mark.parametrize("name", ["validation_share", "test_share"])
def test_a_part_of_a_text_has_a_share(name, tmp_path):
    """One line was taken for it all the same."""
    (tmp_path / "text.txt").write_text("ab\nba\nbb\naa\n")
    with pytest.raises(ArgumentError, match=rf"Expected {name}, --{name.replace('_', '-')}, above 0, .* but got 0"):
        Characters(data=str(tmp_path / "text.txt"), **{name: 0.0}).problem()


@pytest.mark.parametrize("options", [{"validation_share": 0.3}, {"test_share": 0.0}, {"split_seed": 4}])
def test_files_that_are_the_parts_are_not_divided(options, folder):
    ((name, value),) = options.items()
    message = rf"Expected {name}, --{name.replace('_', '-')}, only with one text file, but got {value} for the folder"
    with pytest.raises(ArgumentError, match=message):
        Characters(data=str(folder), **options).problem()


@pytest.mark.parametrize("options", [{"ahead": 0}, {"variant": "x"}, {"batching": "x"}, {"max_length": 1}])
def test_a_wrong_option_is_named(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Characters(**options)


@needs("ptb")
class TestPennTreebank:
    def test_counts(self):
        task = Characters(data=str(REAL_DATA / "ptb"))
        assert task.problem().schema["input_size"] == 49
        expected = {
            "train": (42068, 4975414, 2, 518),
            "validation": (3370, 389672, 5, 390),
            "test": (3761, 438662, 3, 491),
        }
        for part, (count, characters, shortest, longest) in expected.items():
            lengths = task._part(part).lines.lengths
            assert (len(lengths), lengths.sum(), lengths.min(), lengths.max()) == (count, characters, shortest, longest)

    def test_all_counts_of_mhammedi_are_those_of_the_released_lines(self):
        task = Characters(data=str(REAL_DATA / "ptb"), variant="mhammedi2017-code")
        counts = [int(task._part(part).lines.lengths.sum()) for part in ("train", "validation", "test")]
        assert counts == [5_017_482, 393_042, 442_423]
        assert task.problem().schema["input_size"] == 49
        predictions = task._part("train").lines.lengths - task.ahead
        assert (len(predictions), predictions.min(), predictions.max()) == (42068, 2, 518)
        assert round(predictions.mean()) == 118

    def test_vorontsovs_subsets(self):
        shares = []
        for longest in (75, 300):
            task = Characters(data=str(REAL_DATA / "ptb"), variant="vorontsov2017", max_length=longest)
            assert task.problem().schema["input_size"] == 49
            shares.append(round(100 * len(task._part("train").lines) / 42068, 1))
        assert shares == [23.4, 99.4]
