import importlib
import math
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
ROUNDS = 2
#: What another suite's process may do: it takes 16 steps a second at 80 Hz, then perhaps ends.
STAND_IN = """#!{python}
import json, sys
print(json.dumps({{"environment": "stand-in", "control_hz": 80.0, "reset_seconds": [0.25]}}))
sys.stdout.flush()
for count, line in enumerate(sys.stdin):
    if count == {blocks}:
        sys.exit("the engine gave up")
    steps = int(line)
    print(json.dumps({{"steps": steps, "seconds": steps / 16.0, "reset_seconds": []}}))
    sys.stdout.flush()
"""


@pytest.fixture(scope="module")
def peers():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield importlib.import_module("peers")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def figures(peers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("peers")

    def stand_in(name, blocks):
        path = folder / name
        path.write_text(STAND_IN.format(python=sys.executable, blocks=blocks))
        path.chmod(0o755)
        return path

    here = Path(sys.executable)
    ours = peers.Side("coda", here, 12)
    sides = {
        "absent": peers.Side("lift", folder / "nothing", 8),
        "broken": peers.Side("no-such-subject", here, 8),
        "dies": peers.Side("lift", stand_in("dies", peers.WARM_UP + 1), 8),
        "whole": peers.Side("lift", stand_in("whole", 1_000), 8),
    }
    chosen = {name: peers.Comparison(name, side, ours, 2.0) for name, side in sides.items()}
    return peers.measure(chosen, ROUNDS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "--setup"),
        ("broken", "KeyError: 'no-such-subject'"),
        ("dies", "the engine gave up"),
    ],
)
def test_a_peer_that_fails_is_not_measured_and_says_why(peers, figures, name, reason):
    assert reason in figures[name]["not_measured"]
    assert set(figures[name]) == {"title", "aim", "not_measured"}
    line = next(line for line in peers.table(figures).split("\n") if line.startswith(name))
    assert "not measured" in line
    assert "×" not in line


def test_rates_are_compared_for_the_same_simulated_time(figures):
    found = figures["whole"]
    peer, coda = found["peer"], found["coda"]
    assert found["rounds"] == ROUNDS
    assert peer["steps_per_second"] == 16.0
    assert peer["simulated_seconds_per_second"] == 16.0 / 80.0
    assert peer["steps"] == 8 * ROUNDS
    assert peer["reset_ms"] == 250.0
    assert math.isclose(found["ratio"], coda["simulated_seconds_per_second"] / 0.2)


def test_our_side_is_the_environment_as_a_user_makes_it(figures):
    coda = figures["whole"]["coda"]
    assert coda["environment"] == "CoDA-PickPlace-v0"
    assert coda["control_hz"] == 20.0
    assert coda["physics_hz"] == 200.0
    assert coda["steps"] == 12 * ROUNDS


def test_every_side_of_every_comparison_is_a_subject_of_the_worker(peers):
    worker = importlib.import_module("peer_worker")
    for comparison in peers.comparisons().values():
        assert {comparison.peer.subject, comparison.ours.subject} <= set(worker.SUBJECTS)
