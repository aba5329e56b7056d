"""What the integrations rely on in the packages of others."""

from __future__ import annotations

import inspect
import re
from importlib import metadata
from pathlib import Path

import pytest

from orthornn._optional_packages import import_optional
from orthornn.errors import MissingPackageError

PYPROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
NEEDED = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', re.search(r"^rl = \[(.*)\]$", PYPROJECT, re.MULTILINE)[1]))


def numbers(version):
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(MissingPackageError, match=r"package not_there for this, .* pip install '\.\[rl\]'"):
        import_optional("not_there", "rl", "this")
    assert import_optional("inspect", "rl", "this") is inspect


@pytest.mark.parametrize("package", NEEDED)
def test_installed_versions_are_those_that_the_extra_asks_for(package):
    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: pip install '.[rl]'")
    assert numbers(installed) >= numbers(NEEDED[package])


def test_sb3_contrib_has_what_the_policies_replace():
    """These are private there, so that a release may change them."""
    policies = pytest.importorskip("sb3_contrib.common.recurrent.policies", reason="sb3-contrib is not installed")
    theirs = policies.RecurrentActorCriticPolicy
    assert list(inspect.signature(theirs._process_sequence).parameters) == [
        "features",
        "lstm_states",
        "episode_starts",
        "lstm",
    ]
    source = inspect.getsource(theirs)
    read = set(re.findall(r"self\.((?:lstm|critic|shared_lstm)\w*)", source))
    assert read == {
        "lstm_output_dim",
        "lstm_kwargs",
        "lstm_actor",
        "lstm_critic",
        "lstm_hidden_state_shape",
        "shared_lstm",
        "critic",
    }
    for name in ("_build", "_build_mlp_extractor", "_get_constructor_parameters", "predict"):
        assert callable(getattr(theirs, name))
