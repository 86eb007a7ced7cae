"""A small memory with a record of each kind, for the tests of the memory."""

from __future__ import annotations

import math

import numpy as np

from coda_envs.family import get_family
from coda_envs.programs.diagnosis import Diagnosis
from coda_envs.programs.generation import GenerationProgram, SampleEdit
from coda_envs.programs.potential import PotentialProgram
from coda_envs.programs.training import TrainingProgram
from coda_trainer.memory import lifecycle
from coda_trainer.memory.modes import Mode, Probe, mode_of
from coda_trainer.memory.progress import Measurement, ProgressEstimate
from coda_trainer.memory.schema import Row
from coda_trainer.memory.store import MemoryStore

POTENTIAL = PotentialProgram.parse(
    {
        "family": "pick-place",
        "stages": [
            {
                "name": "grasp",
                "gate": {"predicate": "grasped", "roles": ["target"]},
                "progress": {"term": "grasped", "roles": ["target"]},
            }
        ],
    }
)


def omega(high: float = 0.031) -> GenerationProgram:
    edit = SampleEdit(edit="sample", factor="attributes.target.size", low=0.027, high=high)
    return GenerationProgram(family="pick-place", roles=("target",), edits=(edit,))


def phi() -> TrainingProgram:
    return TrainingProgram(family="pick-place", subgoals=("grasp",), potential=POTENTIAL)


def diagnosis(
    scene_id: str = "s0", factor: str = "attributes.target.size", family: str = "pick-place"
) -> Diagnosis:
    return Diagnosis(
        diagnostician="trace (privileged)",
        family=family,
        scene_id=scene_id,
        episode_seed=3,
        stage="grasp",
        failed_predicate="grasped",
        factor=factor,
        direction="high",
        role="target",
        confidence=0.7,
        sentence="The target is too wide [for the hand].",
    )


def selected_mode() -> Mode:
    mode = lifecycle.judge(mode_of(diagnosis(), 1, interval=(0.027, 0.031)), 1, "confirmed")
    return lifecycle.select(
        mode,
        1,
        omega_hash=omega().hash,
        phi_hash=phi().hash,
        probes=(Probe(scene_id="s0", seed=5),),
    )


def fill(memory: MemoryStore) -> Mode:
    """One record of each kind at least, as two rounds would leave them."""
    scene = get_family("pick-place").sample(np.random.default_rng(0))
    memory.add_scene(0, scene)
    memory.add_trace(0, scene.id, "accepted", {"edits": [], "seconds": math.nan, "n": np.int64(3)})
    tested = [memory.add_diagnosis(1, diagnosis(scene.id)) for _ in range(2)]
    memory.add_diagnosis(1, Diagnosis(**{**dict(diagnosis()), "abstain": True, "factor": ""}))
    mode = selected_mode()
    memory.save_mode(1, mode_of(diagnosis(), 1, interval=(0.027, 0.031)))
    memory.add_control(1, mode.id, "confirmed", tested, {"arms": {"T": 2, "C": 14}, "p": 0.97})
    memory.add_program(1, mode.id, omega())
    memory.add_program(1, mode.id, phi())
    memory.save_mode(1, mode)
    first = Measurement((True, False, False, False), (True,))
    memory.add_measurement(1, mode.id, first)
    mode = lifecycle.measure(mode, 1, first)
    memory.save_mode(1, mode)
    second = Measurement((True, True, False, False), (True,), ProgressEstimate(0.2, -0.1, 0.5, 0.8))
    memory.add_measurement(2, mode.id, second)
    mode = lifecycle.measure(mode, 2, second)
    memory.save_mode(2, mode)
    return mode


def everything(memory: MemoryStore) -> dict[str, list[Row]]:
    return {kind: memory.records(kind) for kind in memory.counts()}
