"""Somebody's own policy in, a ranked list of tested difficulties out, with pictures.

    python examples/diagnose_my_policy.py --out diagnosis

The policy here is a small one, cloned from 80 demonstrations in half a minute. What is it that it
cannot do? Replace :func:`my_policy` by yours: any backbone, which need not be trainable
(``tiny_policy.py`` shows what one has). From the command line the same is

    coda diagnose my_policy.py:MyPolicy --family pick-place     (a policy in a file)
    coda diagnose runs/demo-1                                   (the policy of a run)
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from coda_envs.family import get_family
from coda_trainer.backbone import TrainableBackbone
from coda_trainer.diagnosis.base import make_diagnostician
from coda_trainer.diagnosis.examine import Examination, examine
from coda_trainer.discovery import make_backbone
from coda_trainer.learning.actor import ActorSpec
from coda_trainer.learning.behaviour_cloning import chunk_arrays, train_backbone
from coda_trainer.learning.demonstrations import collect_demonstrations
from coda_trainer.learning.rollout import EnvSpec, RolloutPool
from coda_trainer.report.examination import write_examination

#: A backbone's name, ``module:Class``, or ``path/to/file.py:Class``.
BACKBONE = "regression_chunk"
FAMILY = get_family("pick-place")


def my_policy(pool: RolloutPool, folder: Path, demonstrations: int = 80) -> ActorSpec:
    """A policy to examine, as data: its class, and the folder of its weights."""
    policy, rng = make_backbone(BACKBONE, seed=0), np.random.default_rng(0)
    assert isinstance(policy, TrainableBackbone)
    shown = collect_demonstrations(pool, FAMILY, demonstrations, 0.05, rng, pushes=0.7)
    chunks = chunk_arrays(shown, policy.spec.horizon)
    train_backbone(policy, chunks, updates=1500, batch_size=256, rng=rng)
    policy.save(folder)
    return ActorSpec(BACKBONE, folder=folder)


def examination(episodes: int = 256, claims: int = 4, demonstrations: int = 80) -> Examination:
    """What the policy fails at, each claim tested."""
    torch.set_num_threads(1)
    with RolloutPool(EnvSpec()) as pool, tempfile.TemporaryDirectory() as folder:
        actor = my_policy(pool, Path(folder), demonstrations)
        return examine(
            pool,
            actor,
            FAMILY,
            make_diagnostician("trace"),
            episodes=episodes,
            claims=claims,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )


def main() -> None:
    """Examine, write the page, and list what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("diagnosis"), help="folder of the page")
    parser.add_argument("--episodes", type=int, default=256, help="episodes to look for failures")
    options = parser.parse_args()
    found = examination(options.episodes)
    files = write_examination(found, options.out)
    for number, difficulty in enumerate(found.difficulties, start=1):
        told = difficulty.to_dict()
        print(
            f"{number}. {told['verdict']}: {told['factor']} {told['direction']}, at "
            f"{told['stage']} ({told['failures']} of {told['of_episodes']} episodes)"
        )
    print("Wrote", *files)


if __name__ == "__main__":
    main()
