"""A scene written over another is the scene compiled, to the last bit, and nobody's edits stay."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import mujoco
import numpy as np
import pytest
from env_cases import FAMILY, make, scene, tray_scene
from faulty_families import Faulty

from coda_envs import topology
from coda_envs.arena import build_spec, compile_scene
from coda_envs.env import ManipulationEnv
from coda_envs.errors import SceneError
from coda_envs.family import BUILT_IN, get_family, register_family
from coda_envs.props import Body, Entity, Geom, Joint, Prop, box_inertia
from coda_envs.scene import Scene
from coda_envs.structure import dissect
from coda_envs.topology import Topology, build

#: Scenes of a family, as many from each of the regions that reach furthest.
SCENES = 60


def parts(model: mujoco.MjModel) -> dict[str, Any]:
    """Every array and every number of a model, by name."""
    found: dict[str, Any] = {}

    def look(part: Any, prefix: str) -> None:
        for name in dir(part):
            if name.startswith("_"):
                continue
            value = getattr(part, name)
            if isinstance(value, np.ndarray):
                found[prefix + name] = value
            elif isinstance(value, int | float | bytes):
                found[prefix + name] = np.array(value)
            elif not callable(value):
                look(value, f"{prefix}{name}.")

    look(model, "")
    return found


def assert_same_model(one: mujoco.MjModel, two: mujoco.MjModel) -> None:
    first, second = parts(one), parts(two)
    assert len(first) > 500
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert value.shape == second[name].shape, name
        assert value.tobytes() == second[name].tobytes(), name


def scenes(family: str, seed: int, count: int = SCENES) -> list[Scene]:
    rng = np.random.default_rng(seed)
    regions = ("generator", "ood-far")
    kind = get_family(family)
    return [kind.sample(rng, "generator", regions[i % 2]) for i in range(count)]


@pytest.mark.parametrize("family", BUILT_IN)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_written_model_is_the_compiled_one(family: str, seed: int) -> None:
    # In this order each topology is left and come back to, from whatever scene was there before.
    for at in scenes(family, seed):
        written, fresh = build(at), compile_scene(at)
        assert_same_model(written.model, fresh.model)
        assert written.start.tobytes() == fresh.start.tobytes()
        assert written.topology == fresh.topology
        assert written.entities == fresh.entities
        assert written.props == fresh.props


def turned(rng: np.random.Generator) -> tuple[float, ...]:
    """A quaternion, with any length, or none at all."""
    return tuple(rng.normal(size=4)) if rng.random() < 0.7 else (1.0, 0.0, 0.0, 0.0)


def strange_body(
    rng: np.random.Generator, name: str, depth: int, shape: np.random.Generator
) -> Body:
    """A body such as no family has: ``shape`` decides its structure, ``rng`` its numbers."""
    geoms = []
    for _ in range(int(shape.integers(0, 7))):
        collides, straight, centred = (bool(shape.random() < 0.7) for _ in range(3))
        kind = ("box", "cylinder", "sphere")[int(rng.integers(3))]
        size = tuple(rng.uniform(0.01, 0.1, 3))
        used = {"box": 3, "cylinder": 2, "sphere": 1}[kind]
        # Equal places make ties in the tree of bounding boxes.
        place = tuple(rng.integers(-2, 3, 3) * 0.05)
        quat = tuple(rng.normal(size=4))
        geoms.append(
            Geom(
                kind,
                (*size[:used], *(0.0,) * (3 - used)),
                ("red", "blue")[int(rng.integers(2))],
                (0.0, 0.0, 0.0) if straight and centred else (place[0] + 1.0, *place[1:]),
                (1.0, 0.0, 0.0, 0.0) if straight else (*quat[:3], quat[3] + 9.0),
                float(rng.uniform(0.1, 2.0)),
                collides,
            )
        )
    kinds = ("free", "slide", "hinge") if depth == 0 else ("slide", "hinge")
    joint = None
    if shape.random() < 0.7:
        kind = kinds[int(shape.integers(len(kinds)))]
        axis = tuple(rng.uniform(0.1, 1.0, 3)) if shape.random() < 0.5 else (0.0, 2.0, 0.0)
        travel = float(rng.uniform(0.1, 1.0)) * float(shape.random() < 0.7)
        damping, friction = (float(x) for x in rng.uniform(0.0, 1.0, 2))
        joint = Joint(kind, axis, travel, 0.0, damping, friction)
    centred = shape.random() < 0.5
    return Body(
        name,
        tuple(geoms),
        tuple(rng.normal(size=3)),
        turned(rng),
        joint,
        float(rng.uniform(0.1, 2.0)),
        box_inertia(float(rng.uniform(0.1, 2.0)), tuple(rng.uniform(0.1, 0.3, 3))),
        (0.0, 0.0, 0.0) if centred else tuple(rng.uniform(0.01, 0.1, 3)),
        tuple(
            strange_body(rng, f"{name}.{i}", depth + 1, shape)
            for i in range(int(shape.integers(0, 3)) if depth < 2 else 0)
        ),
    )


@pytest.mark.parametrize("structure", range(20))
def test_bodies_such_as_no_family_has_are_written_as_compiled(structure: int) -> None:
    rng = np.random.default_rng(structure)
    written: Topology | None = None
    keys = set()
    for _ in range(6):
        shape = np.random.default_rng(1000 + structure)
        props = [Prop(strange_body(rng, f"thing{i}", 0, shape), ()) for i in range(2)]
        fresh = build_spec("strange", props).compile()
        key, numbers = dissect(props)
        assert numbers is not None
        keys.add(key)
        written = written or Topology(fresh, props)
        assert_same_model(written.model(numbers), fresh)
    assert len(keys) == 1


def box(**changes: Any) -> Body:
    """A free box, with some of its fields changed."""
    geom = Geom("box", (0.02, 0.02, 0.02), "red")
    fields = {"geoms": (geom,), "pos": (0.0, 0.0, 0.02), "joint": Joint("free"), "mass": 0.1}
    return Body("box", **(fields | {"inertia": (1e-4, 1e-4, 1e-4)} | changes))


OTHER_STRUCTURE = {
    "another name": Body("crate", box().geoms, (0.0, 0.0, 0.02), joint=Joint("free")),
    "another joint": box(joint=Joint("slide", travel=0.1)),
    "no joint": box(joint=None),
    "a second shape": box(geoms=box().geoms * 2),
    "a shape to be seen only": box(geoms=(Geom("box", (0.02,) * 3, "red", collides=False),)),
    "a shape out of the middle": box(geoms=(Geom("box", (0.02,) * 3, "red", (0.1, 0.0, 0.0)),)),
    "a mass out of the middle": box(com=(0.0, 0.01, 0.0)),
    "a child": box(children=(Body("lid", box().geoms, (0.0, 0.0, 0.1)),)),
}


@pytest.mark.parametrize("name", OTHER_STRUCTURE)
def test_another_structure_is_another_topology(name: str) -> None:
    plain, other = (dissect([Prop(body, ())])[0] for body in (box(), OTHER_STRUCTURE[name]))
    assert plain != other


def test_what_sensing_tells_apart_is_another_topology() -> None:
    entity = Entity("box", "cube", "red", (0.02, 0.02, 0.02), free=True)
    kinds = [entity, Entity("box", "cube", "red", (0.02,) * 3, free=True, part_of="receptacle")]
    assert len({dissect([Prop(box(), (kind,))])[0] for kind in kinds}) == 2
    # Its looks and its sizes are numbers.
    painted = Entity("box", "disc", "blue", (0.03, 0.02, 0.02), free=True, yaw_period=1.0)
    assert dissect([Prop(box(), (painted,))])[0] == dissect([Prop(box(), (entity,))])[0]


NO_BODY = {
    "nothing": box(geoms=(Geom("box", (0.0, 0.02, 0.02), "red"),)),
    "not a number": box(pos=(0.0, float("nan"), 0.02)),
    "inertia": box(inertia=(1.0, 1.0, 9.0)),
    "mass": box(mass=0.0),
    "turn": box(quat=(0.0, 0.0, 0.0, 0.0)),
    "axis": box(joint=Joint("hinge", (0.0, 0.0, 0.0), travel=1.0)),
}


@pytest.mark.parametrize("name", NO_BODY)
def test_numbers_of_no_body_are_left_to_the_compiler(name: str) -> None:
    assert dissect([Prop(NO_BODY[name], ())])[1] is None


def test_a_scene_that_does_not_build_says_so_although_its_topology_is_known() -> None:
    family = Faulty()
    register_family(family)
    sound = family.scene(family.sample(np.random.default_rng(0)).values | {"task.fault": "none"})
    build(sound)
    with pytest.raises(SceneError, match="does not compile"):
        build(sound.edit("task.fault", "compiles"))


def spoil(model: mujoco.MjModel) -> None:
    """Change all that can be changed of a model."""
    for value in parts(model).values():
        if value.ndim and value.flags.writeable and value.dtype.kind in "fiu":
            value[...] = 1
    for part, name in ((model.opt, "timestep"), (model.opt, "iterations"), (model.stat, "extent")):
        setattr(part, name, 7)
    model.vis.global_.fovy = 7


def test_edits_of_a_model_reach_no_other_scene_and_no_other_environment() -> None:
    first, second = scene(), scene(spatial__target__x=0.1)
    env, other = make(first), make(first)
    for at in (second, first, tray_scene(), first, second):
        spoil(env.model)
        env.reset(seed=0, options={"scene": at})
        assert_same_model(env.model, compile_scene(at).model)
    assert_same_model(other.model, compile_scene(first).model)


def test_edits_of_a_model_last_while_its_scene_is_played() -> None:
    env = make(scene())
    env.model.opt.gravity[2] = 0.0
    model = env.model
    env.reset(seed=1)
    assert env.model is model
    assert env.data.model is model
    assert env.model.opt.gravity[2] == 0.0


def test_a_topology_that_was_dropped_is_compiled_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "KEPT", 1)
    monkeypatch.setattr(topology, "_topologies", OrderedDict())
    for at in (scene(), tray_scene(), scene(), tray_scene()):
        assert_same_model(build(at).model, compile_scene(at).model)
    assert len(topology._topologies) == 1


def test_an_environment_keeps_the_last_pairs_of_model_and_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topology, "PAIRS", 1)
    env = make(scene())
    for at in (tray_scene(), scene(), tray_scene()):
        env.reset(seed=0, options={"scene": at})
        assert env.data.model is env.model
        assert_same_model(env.model, compile_scene(at).model)


def test_threads_may_load_scenes_at_the_same_time() -> None:
    some = scenes(FAMILY.name, 5, 40)
    found: dict[int, mujoco.MjModel] = {}

    def work(first: int) -> None:
        for i in range(first, len(some), 4):
            found[i] = build(some[i]).model

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, at in enumerate(some):
        assert_same_model(found[i], compile_scene(at).model)


def test_a_drawn_scene_is_the_one_that_was_asked_for() -> None:
    env = ManipulationEnv(within="generator")
    for seed in range(10):
        env.reset(seed=seed)
        assert_same_model(env.model, compile_scene(env.scene).model)
