"""FactorSpace: ranges, the held-out split, distances, and which parts of a model a factor owns."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, get_args

import mujoco
import numpy as np
import pytest
import yaml
from env_cases import FAMILY, tray_scene
from hypothesis import given, settings
from hypothesis import strategies as st

from coda_envs.arena import compile_scene
from coda_envs.errors import SceneError
from coda_envs.factor import ContinuousFactor, DiscreteFactor, Value
from coda_envs.factors import FactorSpace, Region
from coda_envs.family import MAX_FAR
from coda_envs.scene import Scene

SPACE = FAMILY.space
PATHS = tuple(SPACE.by_path)
#: A scene in which every factor exists.
FULL = tray_scene(
    task__distractors=2,
    spatial__distractor_2__x=0.1,
    spatial__distractor_2__y=0.25,
    spatial__distractor_2__yaw=-0.4,
    attributes__distractor_2__shape="cylinder",
    attributes__distractor_2__size=0.02,
    attributes__distractor_2__color="green",
)
seeds = st.integers(0, 2**32 - 1)
REGIONS = get_args(Region)


def in_range(path: str, value: Value, within: str) -> bool:
    bounds = getattr(SPACE[path], within)
    if isinstance(SPACE[path], DiscreteFactor):
        return value in bounds
    return bool(bounds[0] <= value <= bounds[1])


# Sampling --------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    seeds,
    st.sampled_from(
        [("seed", "generator"), *(("generator", region) for region in REGIONS if region != "mixed")]
    ),
)
def test_a_sampled_scene_lies_in_its_range_and_region(seed: int, place: Any) -> None:
    within, region = place
    found = FAMILY.sample(np.random.default_rng(seed), within, region)
    assert FAMILY.region(found) == region
    assert FAMILY.flaw(found.values) is None
    beyond = [path for path, value in found.values.items() if not in_range(path, value, within)]
    assert (1 <= len(beyond) <= MAX_FAR) if region == "ood-far" else beyond == []
    assert SPACE.check(found.values) == dict(found.values)


@settings(max_examples=30)
@given(seeds, st.sampled_from(["generator", "ood", "ood-spatial"]))
def test_ranges_and_fixed_values_are_kept(seed: int, region: Any) -> None:
    ranges = {"spatial.target.y": (0.1, 0.2), "attributes.target.mass": (0.1, 0.11)}
    fixed: dict[str, Value] = {"task.receptacle": "tray"}
    found = FAMILY.sample(np.random.default_rng(seed), "generator", region, fixed, ranges)
    assert found.values["task.receptacle"] == "tray"
    assert all(low <= found.values[path] <= high for path, (low, high) in ranges.items())
    assert FAMILY.region(found) == region


def test_unseen_words_are_in_far_scenes_alone() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        near, far = (FAMILY.sample(rng, "generator", r) for r in ("generator", "ood-far"))
        assert far.task.instruction == FAMILY.unseen_wording(far.values)
        assert near.task.instruction != FAMILY.unseen_wording(near.values)


@given(seeds, st.sampled_from(PATHS), st.sampled_from(["seed", "generator"]))
def test_fixing_a_factor_leaves_the_other_draws_alone(seed: int, path: str, within: Any) -> None:
    free = SPACE.sample(np.random.default_rng(seed), within)
    value = SPACE[path].sample(np.random.default_rng(seed + 1), "generator")
    fixed = SPACE.sample(np.random.default_rng(seed), within, {path: value})
    if path in fixed:
        assert fixed.pop(path) == value
    assert all(free[p] == v for p, v in fixed.items() if p in free)


@pytest.mark.parametrize(
    ("fixed", "named"),
    [
        ({"spatial.target.q": 0.1}, "'spatial.target.q' is not a factor"),
        ({"spatial.target.x": 5.0}, "outside its range"),
        ({"attributes.target.color": "mauve"}, "not one of its choices"),
    ],
)
def test_a_fixed_value_that_no_scene_can_have_is_refused(fixed: Any, named: str) -> None:
    with pytest.raises(SceneError, match=named):
        FAMILY.sample(np.random.default_rng(0), fixed=fixed)


def test_an_impossible_request_ends_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coda_envs.family.MAX_TRIES", 50)
    same_place = {f"spatial.{role}.{a}": 0.1 for role in ("target", "receptacle") for a in "xy"}
    with pytest.raises(SceneError, match=r"in 50 draws; the last one .*fix fewer factors"):
        FAMILY.sample(np.random.default_rng(0), "generator", fixed=same_place)


# The split -------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", SPACE.keys.values(), ids=SPACE.keys)
def test_the_split_has_its_shares_to_the_cell(keys: tuple[str, ...]) -> None:
    split = SPACE._split(keys)
    total = np.prod([SPACE[path].bins for path in keys])
    assert len(split) == total
    for region, share in (("generator", 0.7), ("ood-dev", 0.1), ("ood", 0.2)):
        count = list(split.values()).count(region)
        assert abs(count - share * total) <= 1.0


def test_regions_share_no_cell_where_they_are_held_out() -> None:
    seen: dict[str, dict[str, set[tuple[int, ...]]]] = {}
    rng = np.random.default_rng(0)
    for region in ("generator", "ood-dev", "ood", "ood-task", "ood-spatial", "ood-attribute"):
        cells = seen[region] = {group: set() for group in SPACE.keys}
        for _ in range(800):
            values = SPACE.sample_keys(rng, region)
            for group, paths in SPACE.keys.items():
                cells[group].add(tuple(SPACE[p].bin(values[p]) for p in paths))
    for one, two in itertools.combinations(("generator", "ood", "ood-dev"), 2):
        assert all(not seen[one][group] & seen[two][group] for group in SPACE.keys)
    for region, group in (
        ("ood-task", "task"), ("ood-spatial", "spatial"), ("ood-attribute", "attributes"),
    ):  # fmt: skip
        assert seen[region][group] <= seen["ood"][group]
        for other in set(SPACE.keys) - {group}:
            assert seen[region][other] <= seen["generator"][other]


def test_every_word_and_bin_occurs_in_the_generator_region() -> None:
    for keys in SPACE.keys.values():
        split = SPACE._split(keys)
        for axis, path in enumerate(keys):
            trained = {cell[axis] for cell, region in split.items() if region == "generator"}
            assert trained == set(range(SPACE[path].bins))


@given(st.sampled_from(PATHS), seeds)
def test_bins_cut_the_generator_range_evenly(path: str, seed: int) -> None:
    factor = SPACE[path]
    value = factor.sample(np.random.default_rng(seed), "generator")
    index = factor.bin(value)
    assert 0 <= index < factor.bins
    if isinstance(factor, ContinuousFactor):
        low, high = factor.generator
        width = (high - low) / factor.bins
        assert low + index * width - 1e-9 <= value <= low + (index + 1) * width + 1e-9
        assert (factor.bin(low), factor.bin(high)) == (0, factor.bins - 1)


# Distance --------------------------------------------------------------------------------------


@given(st.sampled_from(PATHS), seeds)
def test_distance_is_symmetric_bounded_and_zero_for_equal_values(path: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (SPACE[path].sample(rng, "generator") for _ in range(3))
    assert SPACE.distance(path, a, a) == 0.0
    assert SPACE.distance(path, a, b) == SPACE.distance(path, b, a)
    assert 0.0 <= SPACE.distance(path, a, b) <= 1.0
    assert (SPACE.distance(path, a, b) == 0.0) == (a == b)
    direct = SPACE.distance(path, a, c)
    assert direct <= SPACE.distance(path, a, b) + SPACE.distance(path, b, c) + 1e-9


def test_distance_goes_the_short_way_round_and_spans_the_range() -> None:
    assert SPACE.distance("spatial.target.x", *SPACE["spatial.target.x"].generator) == 1.0
    low, high = SPACE["spatial.target.yaw"].generator
    assert SPACE.distance("spatial.target.yaw", low, high) < 1e-3
    with pytest.raises(SceneError, match="is not a factor of the family"):
        SPACE.distance("spatial.target.xx", 0.0, 1.0)


# factors.yaml ----------------------------------------------------------------------------------

X = {
    "path": "spatial.target.x", "type": "continuous", "unit": "m", "meaning": "where",
    "seed": [0.0, 0.1], "generator": [-0.1, 0.2],
}  # fmt: skip
KEYS = {"task": ["task.n"], "spatial": ["spatial.target.x"], "attributes": []}
N = {"path": "task.n", "type": "discrete", "meaning": "count", "seed": [0], "generator": [0, 1]}


@pytest.mark.parametrize(
    ("factors", "more", "named"),
    [
        ([X | {"seed": [-0.5, 0.1]}, N], {}, "seed range must lie inside"),
        ([X | {"generator": [0.2, -0.1]}, N], {}, "seed range must lie inside"),
        ([X | {"generator": [float("-inf"), 0.2]}, N], {}, "finite"),
        ([X | {"generator": [-0.1234567, 0.2]}, N], {}, "at most 6 digits"),
        ([X | {"path": "target.x"}, N], {}, "pattern"),
        ([X | {"type": "real"}, N], {}, "does not match any of the expected tags"),
        ([X | {"colour": "red"}, N], {}, "Extra inputs"),
        ([X, N | {"seed": [2]}], {}, "every seed choice"),
        ([X, X, N], {}, "declared twice"),
        ([X | {"when": {"factor": "task.n", "min": 1}}, N], {}, "not declared before it"),
        ([N, X | {"when": {"factor": "task.n"}}], {}, "gives min or equals"),
        ([N, X | {"when": {"factor": "task.n", "min": 1}}], {}, "does not exist in every scene"),
        ([X, N], {"keys": KEYS | {"spatial": ["spatial.target.y"]}}, "'spatial.target.y' is not"),
        ([X, N], {"keys": KEYS | {"task": ["spatial.target.x"]}}, "not of the group 'task'"),
        ([X, N], {"keys": {"task": ["task.n"]}}, "keys has the groups"),
        ([X | {"far": [0.0, 0.3]}, N], {}, "must lie inside the far range"),
        ([X, N | {"far": [1]}], {}, "must not be a generator choice"),
        ([X, N], {"surplus": 1}, "Extra inputs"),
    ],
)
def test_a_wrong_factor_file_is_named_with_the_entry(
    tmp_path: Path, factors: list[Any], more: dict[str, Any], named: str
) -> None:
    path = tmp_path / "factors.yaml"
    head = {"family": "f", "keys": KEYS}
    path.write_text(yaml.safe_dump(head | {"factors": factors} | more))
    with pytest.raises(SceneError, match=f"(?s)factors.yaml is not a factor file.*{named}"):
        FactorSpace.load(path)


@pytest.mark.parametrize("content", ["", "{", "- 1", b"\xff\xff"])
def test_a_factor_file_that_is_no_mapping_is_named(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "factors.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    for file in (path, tmp_path / "nowhere.yaml"):
        with pytest.raises(SceneError, match=re.escape(f"{file} is not a factor file")):
            FactorSpace.load(file)


# What a factor owns ----------------------------------------------------------------------------

#: Derived from all bodies together, and used by nothing: no camera tracks a centre of mass, and
#: MuJoCo no longer reads the mean inertia.
SHARED = {"cam_poscom0", "light_poscom0", "stat.meaninertia"}
#: Arrays that a factor may change in the rows of its own role, by the factor's last word.
POSITION = {"body_pos", "qpos0", "qpos_spring"}
#: MuJoCo rounds these in the world's frame.
TURNED = {"body_invweight0", "dof_M0", "dof_invweight0"}
INERTIA = {"body_inertia", "body_invweight0", "dof_M0", "dof_invweight0", "dof_length"}
SHAPED = {"geom_size", "geom_type", "geom_aabb", "geom_rbound", "geom_pos", "bvh_aabb"}
OWNED = {
    "x": POSITION,
    "y": POSITION,
    "yaw": {"body_quat", "qpos0", "qpos_spring"} | TURNED,
    "mass": {"body_mass", "body_subtreemass"} | INERTIA,
    "friction": {"geom_friction"},
    "color": {"geom_rgba"},
    "size": SHAPED | INERTIA | POSITION | {"body_mass", "body_subtreemass", "body_ipos"},
    "rim": SHAPED | INERTIA | POSITION | {"body_mass", "body_subtreemass", "body_ipos"},
    "shape": SHAPED | INERTIA | POSITION,
    "reference": set(),
}
TOPOLOGY = {"task.receptacle", "task.distractors"}


def arrays(model: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Every array and number of a model."""
    found = {}
    for prefix, part in (("", model), ("opt.", model.opt), ("stat.", model.stat)):
        for name in dir(part):
            value = None if name.startswith("_") else getattr(part, name)
            if isinstance(value, np.ndarray | int | float | bytes):
                found[prefix + name] = np.array(value)
    return found


def owner(model: mujoco.MjModel, name: str, row: int) -> str:
    """Name of the body that a row of an array belongs to."""
    kind = name.split("_")[0]
    if kind == "geom":
        row = int(model.geom_bodyid[row])
    elif kind == "dof":
        row = int(model.dof_bodyid[row])
    elif kind == "qpos0" or kind == "qpos":
        starts = model.jnt_qposadr
        row = int(model.jnt_bodyid[np.searchsorted(starts, row, side="right") - 1])
    elif kind == "bvh":
        starts = model.body_bvhadr
        having = np.flatnonzero((starts >= 0) & (starts <= row))
        row = int(having[np.argmax(starts[having])])
    return str(model.body(row).name)


def edited(path: str) -> Scene:
    factor = SPACE[path]
    if isinstance(factor, ContinuousFactor):
        low, high = factor.generator
        return FULL.edit(path, round(low + 0.37 * (high - low), 6))
    return FULL.edit(path, next(c for c in factor.generator if c != FULL.values[path]))


@pytest.mark.parametrize("path", [p for p in PATHS if p not in TOPOLOGY])
def test_a_factor_changes_its_own_rows_and_no_other_bit(path: str) -> None:
    model = compile_scene(FULL).model
    before, after = arrays(model), arrays(compile_scene(edited(path)).model)
    role = SPACE[path].role or ""
    word = path.rpartition(".")[2]
    changed = set()
    for name, old in before.items():
        new = after[name]
        assert old.shape == new.shape, name
        if old.tobytes() == new.tobytes() or name in SHARED:
            continue
        assert name in OWNED[word], name
        changed.add(name)
        for row in np.unique(np.nonzero(old != new)[0]):
            whose = owner(model, name, int(row))
            assert whose == role or (name == "body_subtreemass" and whose == "world"), name
    assert bool(changed) == (word != "reference")


#: What the compiled model of an object is, whatever stands beside it.
OF_BODY = ("pos", "quat", "mass", "inertia", "ipos", "iquat", "invweight0", "subtreemass")
OF_GEOM = ("pos", "quat", "size", "type", "rgba", "friction", "condim", "solref", "solimp")


@pytest.mark.parametrize("path", sorted(TOPOLOGY))
def test_objects_that_come_or_go_leave_the_others_bit_identical(path: str) -> None:
    before = compile_scene(FULL).model
    after = compile_scene(edited(path)).model
    kept = {before.body(i).name for i in range(1, before.nbody)}
    kept &= {after.body(i).name for i in range(1, after.nbody)}
    kept -= {"receptacle"} if path == "task.receptacle" else set()
    assert {"target", "hand", "link7"} < kept
    for name in kept:
        one, two = before.body(name), after.body(name)
        for field in OF_BODY:
            assert getattr(one, field).tobytes() == getattr(two, field).tobytes(), (name, field)
        geoms = [
            [m.geom(i) for i in range(m.ngeom) if m.geom_bodyid[i] == m.body(name).id]
            for m in (before, after)
        ]
        for old, new in zip(*geoms, strict=True):
            for field in OF_GEOM:
                assert getattr(old, field).tobytes() == getattr(new, field).tobytes()
    for name in (
        "opt.timestep",
        "opt.iterations",
        "cam_pos",
        "cam_quat",
        "light_dir",
        "actuator_gainprm",
    ):
        assert arrays(before)[name].tobytes() == arrays(after)[name].tobytes()
