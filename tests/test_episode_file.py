"""Episode files: what is written is read back, and what is no episode file is refused."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Coda, strict

from coda_envs.errors import RunError
from coda_trainer.diagnosis.events import episode_events
from coda_trainer.episode import Episode
from coda_trainer.episode_file import ARRAYS, read_episode, read_episodes, write_episodes
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.rollout import EnvSpec, RolloutPool
from coda_trainer.replay_frames import frames_at
from coda_trainer.report.event_strip import MAX_FRAMES, strip_steps
from tests.program_cases import FAMILY
from tests.synthetic_episodes import episode, scenes

DONE = (0, 3, 5)
MADE = [episode(scene, DONE[i], seed=i) for i, scene in enumerate(scenes(3))]


def equal(one: Episode, two: Episode) -> bool:
    plain = [f.name for f in dataclasses.fields(Episode) if f.name not in ARRAYS]
    return all(
        getattr(one, n) == getattr(two, n) for n in plain if n not in ("observations", "states")
    ) and all(np.array_equal(getattr(one, n), getattr(two, n)) for n in ARRAYS)


def test_episodes_come_back_in_order_and_equal_ones_are_equal_files(tmp_path: Path) -> None:
    assert write_episodes(tmp_path / "a", iter(MADE), 10) == len(MADE)
    write_episodes(tmp_path / "b", MADE, 10)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]
    back = list(read_episodes(tmp_path / "a"))
    assert [hz for _, hz in back] == [10, 10, 10]
    assert all(equal(e, m) for (e, _), m in zip(back, MADE, strict=True))
    assert equal(read_episode(tmp_path / "a", 2)[0], MADE[2])
    with pytest.raises(RunError, match=r"has no episode 3\. Allowed: 0 to 2"):
        read_episode(tmp_path / "a", 3)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    write_episodes(tmp_path / "a", MADE[:1], 10)
    before = (tmp_path / "a").read_bytes()

    def broken() -> Any:
        yield MADE[0]
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        write_episodes(tmp_path / "a", broken(), 10)
    assert (tmp_path / "a").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def spoilt(path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], None]) -> Path:
    """A file with one episode whose header and arrays were changed."""
    write_episodes(path, MADE[2:], 10)
    with zipfile.ZipFile(path) as archive:
        member = archive.read("000000.npz")
    with np.load(io.BytesIO(member)) as data:
        arrays = {name: data[name] for name in data.files}
    head = json.loads(bytes(arrays.pop("head")))
    change(head, arrays)
    arrays["head"] = np.frombuffer(json.dumps(head).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("000000.npz", buffer.getvalue())
    return path


BAD: dict[str, tuple[Callable[[dict[str, Any], dict[str, np.ndarray]], Any], str]] = {
    "another format": (lambda h, a: h.update(format=9), "format is 9"),
    "no seed": (lambda h, a: h.pop("seed"), "no episode: 'seed'"),
    "a seed that is none": (lambda h, a: h.update(seed="1"), "seed, first step"),
    "a rate of no environment": (lambda h, a: h.update(control_hz=7), "control rate"),
    "a scene of no family": (lambda h, a: h["scene"].update(family="x"), "unknown family"),
    "an outcome that is none": (lambda h, a: h.update(success=1), "outcome"),
    "actions of another robot": (
        lambda h, a: a.update(actions=a["actions"][:, :6]),
        "actions are float32 of shape",
    ),
    "a state too few": (lambda h, a: a.update(features=a["features"][1:]), "features are"),
    "a value that is none": (lambda h, a: a["rewards"].fill(np.nan), "not finite"),
    "pickled objects": (
        lambda h, a: a.update(rewards=np.array([{}], dtype=object)),
        "no episode",
    ),
    "no actions": (lambda h, a: a.pop("actions"), "no episode"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_episode_is_refused_by_name(tmp_path: Path, case: str) -> None:
    change, words = BAD[case]
    path = spoilt(tmp_path / "a", change)
    with pytest.raises(RunError, match=rf"a, 000000\.npz.*{words}"):
        list(read_episodes(path))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a zip at all"])
def test_what_is_no_archive_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(RunError, match="is no episode file"):
        list(read_episodes(tmp_path / "a"))


def test_a_strip_shows_start_end_and_what_happened_between() -> None:
    solved = MADE[2]
    events = episode_events(solved, FAMILY)
    steps = strip_steps(solved, events)
    assert steps == sorted(set(steps))
    assert (steps[0], steps[-1]) == (0, solved.length)
    assert len(steps) <= MAX_FRAMES
    assert {e.step for e in events if e.kind == "stage"} <= set(steps)


def test_an_episode_is_recorded_listed_told_and_drawn(coda: Coda, tmp_path: Path) -> None:
    with RolloutPool(EnvSpec(10)) as pool:
        shown = collect_demonstrations(pool, FAMILY, 1, 0.0, np.random.default_rng(0))
    write_episodes(tmp_path / "a.episodes", shown, 10)
    listed = strict(coda("episode", "show", "a.episodes", "--json").out)
    assert [row["success"] for row in listed["episodes"]] == [True]
    answer = coda("episode", "show", "a.episodes", "0", "-o", "strip.png", "--json")
    assert answer.code == 0
    told = strict(answer.out)
    kinds = [event["kind"] for event in told["events"]]
    assert kinds.index("grasp") < kinds.index("release") < kinds.index("end")
    picture = (tmp_path / "strip.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert coda("episode", "show", "a.episodes", "1").code == 5
    assert coda("episode", "show", "a.episodes", "-o", "x.png").code == 2
    assert coda("episode", "show", "a.episodes", "0", "-o", "x.jpg").code == 1


def test_an_episode_from_the_middle_of_another_cannot_be_drawn() -> None:
    began = dataclasses.replace(MADE[0], began=5)
    with pytest.raises(Exception, match="cannot be played again"):
        frames_at(None, began, {0}, ("agentview",), (8, 8))  # type: ignore[arg-type]
