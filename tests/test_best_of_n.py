"""Best of N: rows of a batch that pick among samples beside rows that do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rollout_cases import ENV, jobs, same

from coda_envs.family import get_family
from coda_trainer.backbone import ObsBatch
from coda_trainer.learning.actor import Actor, ActorSpec
from coda_trainer.learning.choice import ChoiceSpec, save_critic
from coda_trainer.learning.chunk_critic import ChunkCritic, NoPotential
from coda_trainer.learning.reader import encode
from coda_trainer.learning.residual import ResidualActor, ResidualConfig
from coda_trainer.learning.rollout import RolloutPool

SCHEMA = get_family("pick-place").schema
ROWS, SEED = 6, 3


@pytest.fixture(scope="module")
def seen(flow: ActorSpec) -> tuple[ObsBatch, np.ndarray]:
    """Observations and features of different states."""
    with RolloutPool(ENV) as pool:
        episodes = pool.run(replace(flow, noise=None), jobs(ROWS))
    obs = {k: np.stack([e.observations[k][5] for e in episodes]) for k in episodes[0].observations}
    return obs, np.stack([e.features[5] for e in episodes])


@pytest.fixture(scope="module")
def choosing(
    flow: ActorSpec, seen: tuple[ObsBatch, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> ActorSpec:
    """The policy, corrected by a residual, with a critic that picks where a job says so."""
    folder = tmp_path_factory.mktemp("critic")
    backbone = Actor(replace(flow, noise=None)).backbone
    obs, features = seen
    encoding = encode(backbone, obs)
    generator = torch.Generator().manual_seed(0)
    config = ResidualConfig(execute=backbone.spec.execute)
    residual = ResidualActor(config, encoding.shape[1], generator)
    residual.normaliser.fit(encoding)
    with torch.no_grad():
        residual.network[-1].bias.fill_(0.7)  # type: ignore[union-attr]
    (folder / "residual").mkdir()
    residual.save(folder / "residual")
    critic = ChunkCritic(SCHEMA.size, backbone.spec.execute, 7, NoPotential(), generator, width=16)
    critic.fit(features)
    save_critic(critic, "pick-place", folder)
    choice = ChoiceSpec(folder, candidates=1, best=False)
    return replace(flow, noise=None, residual=folder / "residual", choice=choice)


def acted(
    spec: ActorSpec, seen: tuple[ObsBatch, np.ndarray], widths: list[int | None]
) -> np.ndarray:
    rngs = [np.random.default_rng(i) for i in range(ROWS)]
    return Actor(spec).chunk(seen[0], seed=SEED, features=seen[1], rngs=rngs, candidates=widths)


def test_rows_without_the_tool_do_what_they_would_have_done(
    choosing: ActorSpec, seen: tuple[ObsBatch, np.ndarray]
) -> None:
    plain = acted(replace(choosing, choice=None), seen, [None] * ROWS)
    assert np.array_equal(acted(choosing, seen, [None] * ROWS), plain)
    mixed = acted(choosing, seen, [None, 8, None, 8, 8, None])
    # In a smaller batch sums round differently; a sample differs by far more.
    off = np.abs(mixed - plain).max(axis=(1, 2))
    assert off[[0, 2, 5]].max() < 1e-5
    assert off[[1, 3, 4]].max() > 0.01
    # Without a critic nothing is picked, whatever a job says.
    assert np.array_equal(acted(replace(choosing, choice=None), seen, [8] * ROWS), plain)


def test_a_row_with_the_tool_executes_one_of_its_corrected_samples(
    choosing: ActorSpec, seen: tuple[ObsBatch, np.ndarray]
) -> None:
    actor = Actor(choosing)
    assert actor.residual is not None
    spec = actor.backbone.spec
    samples = actor.backbone.sample(seen[0], 8, seed=SEED)[:, :, : spec.execute]
    encoding = encode(actor.backbone, seen[0])
    corrected = np.stack(
        [actor.residual.act(encoding, samples[:, n].astype(np.float32)) for n in range(8)], axis=1
    )
    picked = acted(choosing, seen, [8] * ROWS)
    distance = np.abs(corrected - picked[:, None]).max(axis=(2, 3))
    assert distance.min(axis=1) == pytest.approx(0.0, abs=1e-6)
    # Not always the first one.
    assert set(distance.argmin(axis=1).tolist()) != {0}
    assert np.abs(corrected - samples).max() > 0.01


def test_a_job_says_how_many_and_the_same_job_runs_the_same(choosing: ActorSpec) -> None:
    asked = [replace(j, candidates=4 if i % 2 else None) for i, j in enumerate(jobs(4))]
    with RolloutPool(ENV) as pool:
        once, again = (pool.run(choosing, asked) for _ in range(2))
        plain = pool.run(replace(choosing, choice=None), asked)
    same(once, again)
    differs = [not np.array_equal(a.actions, b.actions) for a, b in zip(once, plain, strict=True)]
    assert differs[1]
    assert differs[3]
