"""What a factor owns among a scene's things, for every family; and that families agree on words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coda_envs.errors import SceneError
from coda_envs.family import BUILT_IN, TaskFamily, get_family
from coda_envs.props import SHAPES, Body
from coda_envs.scene import Scene

FAMILIES = [get_family(name) for name in BUILT_IN]
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[f.name for f in FAMILIES])

#: Things that ride along when another thing is moved or reshaped: what lies in a container, its
#: lid or handle, the parts of a cabinet.
RIDE = {
    ("articulated", "cabinet"): {"target", "distractor_1", "distractor_2"},
    # How far the parts stand open in their rooms is one arrangement of the whole front.
    ("articulated", "target"): {"distractor_1", "distractor_2"},
    ("put-inside", "receptacle"): {"cover", "filler_1", "filler_2"},
    ("put-inside", "cover"): {"receptacle", "filler_1", "filler_2"},
    # A second filler is placed and looks as the first one says.
    ("put-inside", "filler_1"): {"filler_2"},
}


def bodies(family: TaskFamily, scene: Scene) -> dict[str, Body]:
    """Every body by its name, without its children."""
    return {
        body.name: replace(body, children=())
        for prop in family.props(scene)
        for body in prop.body.walk()
    }


@each_family
def test_an_edit_changes_things_of_its_own_role_alone(family: TaskFamily) -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        scene = family.sample(rng, "generator")
        before = bodies(family, scene)
        for factor in family.space.active(scene.values):
            if factor.role is None:
                continue
            try:
                after = bodies(family, scene.edit(factor.path, factor.sample(rng, "generator")))
            except SceneError:
                continue
            owned = {factor.role, *RIDE.get((family.name, factor.role), ())}
            for name in before.keys() & after.keys():
                if before[name] != after[name]:
                    assert name.split("/")[0] in owned, (factor.path, name)


@each_family
def test_looks_and_friction_change_nothing_but_themselves(family: TaskFamily) -> None:
    rng = np.random.default_rng(1)
    seen = set()
    for _ in range(40):
        scene = family.sample(rng, "generator")
        before = bodies(family, scene)
        for factor in family.space.active(scene.values):
            word = factor.path.rpartition(".")[2]
            if word not in ("color", "friction", "mass", "damping") or factor.role is None:
                continue
            edited = scene.edit(factor.path, factor.sample(rng, "generator"))
            for name, body in bodies(family, edited).items():
                old = before[name]
                assert (body.pos, body.quat) == (old.pos, old.quat)
                for geom, other in zip(body.geoms, old.geoms, strict=True):
                    assert replace(geom, color=other.color, friction=other.friction) == other
            seen.add(word)
    assert {"color", "friction"} <= seen


@each_family
def test_every_entity_has_its_body_and_a_shape_that_the_object_table_knows(
    family: TaskFamily,
) -> None:
    rng = np.random.default_rng(2)
    for region in ("generator", "ood", "ood-far"):
        for _ in range(20):
            scene = family.sample(rng, "generator", region)  # type: ignore[arg-type]
            names = set(bodies(family, scene))
            entities = [e for prop in family.props(scene) for e in prop.entities]
            assert {entity.role for entity in entities} <= names
            assert {entity.role for entity in entities} <= set(family.roles)
            assert all(entity.shape in SHAPES for entity in entities)
            assert set(scene.task.goal.roles) <= set(family.roles)
