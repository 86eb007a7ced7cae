"""A task family of your own: lift the object that the instruction names, and hold it up.

    import gymnasium as gym
    env = gym.make("lift:CoDA-Lift-v0")       # with examples/new_family on the Python path

Task: one target and one distractor; the instruction names the target by its colour. Success: the
fingers hold the target with its underside 25 mm above the table.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from coda_envs import register_family
from coda_envs.family import Expert, TaskFamily
from coda_envs.layout import Footprint, crowding
from coda_envs.programs.potential import PotentialProgram
from coda_envs.props import free_object
from coda_envs.scene import Goal
from coda_envs.skills import CLEAR, CLOSE, Hand

STAGES = [
    {
        "name": "reach",
        "gate": {"predicate": "near", "roles": ["target"]},
        "progress": {"term": "distance", "roles": ["gripper", "target"], "scale": 0.5},
    },
    {
        "name": "lift",
        "gate": {"predicate": "lifted", "roles": ["target"]},
        "progress": {"term": "height", "roles": ["target"], "scale": 0.03},
    },
]


class Lift(TaskFamily):
    """See the module's docstring."""

    name = "lift"
    env_id = "CoDA-Lift-v0"
    roles = ("target", "distractor_1")
    max_seconds = 3.0
    folder = Path(__file__).parent

    @cached_property
    def template(self):
        return PotentialProgram.parse({"family": self.name, "stages": STAGES}, "lift.py")

    def goal(self, values):
        return Goal(predicate="lifted", roles=("target",))

    def describe(self, values):
        name = f"{values['attributes.target.color']} block"
        return f"lift the {name}", (f"pick up the {name}",)

    def problem(self, values):
        footprints = [
            Footprint(
                role,
                values[f"spatial.{role}.x"],
                values[f"spatial.{role}.y"],
                1.5 * values[f"attributes.{role}.size"],
            )
            for role in self.roles
        ]
        return crowding(footprints, grasped=("target",))

    def ambiguity(self, values):
        if values["attributes.target.color"] == values["attributes.distractor_1.color"]:
            return "has an instruction that fits distractor_1 too"
        return None

    def props(self, scene):
        return [self._block(scene, role) for role in self.roles]

    @staticmethod
    def _block(scene, role):
        pose, looks = scene.spatial[role], scene.attributes[role]
        half = (looks["size"],) * 3
        return free_object(
            role, "cube", half, (pose["x"], pose["y"]), pose["yaw"],
            mass=0.1, friction=1.0, color=looks["color"],
        )  # fmt: skip

    def expert(self, seed=0):
        return LiftExpert()


class LiftExpert(Expert):
    """Down, close, up."""

    def act(self, env):
        hand = Hand(env)
        if hand.holds("target"):
            return hand.move((0.0, 0.0, 0.05), 0.0, CLOSE)
        return hand.grasp("target", hand.highest(besides=("target",)) + CLEAR)


register_family(Lift())
