"""Hints about hours that are missing or there twice in local times."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import numpy as np
import pytest

from orthornn.cli import main
from orthornn.learn.files.columns import Table
from orthornn.learn.tasks.time_grid import grid_summary

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Sydney", "America/Santiago")

if not set(ZONES) <= available_timezones():
    pytest.skip("this system has no data of time zones", allow_module_level=True)


def local(zone: str, start: str, minutes: int, count: int, form: str = "%Y-%m-%d %H:%M") -> list[str]:
    """The local times of a clock in a zone, from an instant in UTC on."""
    first = datetime.fromisoformat(f"{start}T00:00+00:00")
    return [(first + timedelta(minutes=minutes * t)).astimezone(ZoneInfo(zone)).strftime(form) for t in range(count)]


def told(times, dtype=object):
    file = Table(Path("t.csv"), {"when": np.array(times, dtype)})
    order = np.argsort(file.order("when", "time"), kind="stable")
    return grid_summary(file, "when", order, np.array([len(times)]))


@pytest.mark.parametrize("minutes", [15, 60])
@pytest.mark.parametrize("zone", ZONES)
def test_a_change_of_the_clocks_is_told(zone, minutes):
    count = 9 * 24 * 60 // minutes
    starts = {"Europe/Berlin": ("2024-03-27", "2024-10-23"), "America/New_York": ("2024-03-06", "2024-10-30")}
    starts |= {"Australia/Sydney": ("2024-10-02", "2024-04-03"), "America/Santiago": ("2024-09-04", "2024-04-03")}
    spring, autumn = (local(zone, start, minutes, count) for start in starts[zone])
    assert "is missing, as where clocks change: if these are local times, convert them to UTC" in told(spring)
    if zone != "America/Santiago":  # where the hour before midnight of a Saturday is there twice
        assert "is there twice, as where clocks change" in told(autumn)


def test_the_hour_is_named():
    times = local("Europe/Berlin", "2024-03-29", 60, 72)
    assert "with 1 gap(s)" in told(times)
    assert "The hour 2024-03-31T02 is missing" in told(times)
    typed = told([time.replace(" ", "T") for time in times], "datetime64[ns]")
    assert typed == told(times).replace("2024-03-31 01:00", "2024-03-31T01:00:00.000000000")
    assert "The hour 2024-10-27T02 is there twice" in told(local("Europe/Berlin", "2024-10-25", 30, 144))


@pytest.mark.parametrize(
    "times",
    [
        local("UTC", "2024-03-29", 60, 72),
        local("Europe/Berlin", "2024-03-29", 60, 72, "%Y-%m-%d %H:%M%z"),  # instants
        [time for time in local("UTC", "2024-03-29", 60, 72) if time != "2024-03-30 02:00"],  # a Saturday
        [time for time in local("UTC", "2024-06-28", 60, 72) if time != "2024-06-30 02:00"],  # a Sunday of June
        [time for time in local("UTC", "2024-03-29", 60, 72) if time != "2024-03-31 12:00"],  # at noon
        [time for time in local("UTC", "2024-03-29", 60, 72) if time[:13] not in ("2024-03-31 02", "2024-03-31 03")],
        local("Europe/Berlin", "2024-03-01", 24 * 60, 60, "%Y-%m-%d"),
        local("Europe/Berlin", "2024-03-01", 120, 600),
        ["2024-03-31 01:00"],
        ["2024-03-31 01:00"] * 3,
    ],
    ids=range(10),
)
def test_other_times_have_no_hint(times):
    assert "clocks change" not in told(times)


def test_two_sequences_have_no_hour_between_them():
    times = ["2024-03-31 00:00", "2024-03-31 01:00", "2024-03-31 03:00", "2024-03-31 04:00"]
    file = Table(Path("t.csv"), {"when": np.array(times, object)})
    assert "clocks change" not in grid_summary(file, "when", np.arange(4), np.array([2, 2]))
    assert "clocks change" in grid_summary(file, "when", np.arange(4), np.array([4]))


@pytest.mark.parametrize(
    "times",
    [
        0.1 * np.arange(400),
        np.cumsum(np.full(400, 0.1)),
        (0.1 * np.arange(400)).astype(np.float32),
        1.6e9 + 0.1 * np.arange(400),
        0.1 * np.arange(400, dtype=np.float32),
    ],
    ids=["multiples", "sums", "float32", "seconds since 1970", "multiples in float32"],
)
def test_a_constant_rate_in_floating_point_is_constant(times):
    assert told(times, times.dtype) in ("every 0.1, without gaps", "every about 0.1, without gaps")
    written = [float(str(time)) for time in times]  # as text has them
    assert told(written, np.float64) in ("every 0.1, without gaps", "every about 0.1, without gaps")
    less = np.delete(times, 7)
    assert "0.1, with 1 gap(s), where steps are missing: 1 after" in told(less, times.dtype)


def test_times_of_samples_in_float32_are_at_a_constant_rate_in_text_too():
    times = (np.arange(100_000) / 44100).astype(np.float32)
    assert told(times, np.float32) == "every about 2.26757e-05, without gaps"
    assert told([float(str(time)) for time in times], np.float64) == "every about 2.26757e-05, without gaps"
    random = np.sort(np.random.default_rng(0).uniform(0, 2, 1000))
    assert told(random, np.float64).startswith("irregular, ")


def test_inspect_tells_it(tmp_path, capsys):
    rows = [f"{time},{t % 5}.5" for t, time in enumerate(local("Europe/Berlin", "2024-03-25", 60, 240))]
    (tmp_path / "load.csv").write_text("\n".join(["when,load", *rows]) + "\n")
    words = ["inspect", str(tmp_path / "load.csv"), "--target", "load", "--ahead", "1", "--time", "when"]
    assert main(words) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "The hour 2024-03-31T02 is missing, as where clocks change" in said
