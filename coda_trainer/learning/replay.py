"""Replay: recorded episodes as chunk transitions, drawn in batches."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from coda_envs.errors import LearningError, RunError
from coda_envs.scene import Scene
from coda_trainer.episode import Episode
from coda_trainer.learning.chunk_critic import DenseReward
from coda_trainer.learning.episode_rows import EpisodeRows, Record
from coda_trainer.learning.episode_states import (
    check_episode,
    check_finite,
    episode_states,
    observation_columns,
)
from coda_trainer.learning.reader import Reader

#: States that the base reads at a time, which bounds what it holds at once.
BLOCK = 2048

FILES = ("replay.json", "replay.npz")


@dataclass(frozen=True)
class TransitionBatch:
    """B chunk transitions: at a step t, h actions were asked for and k ≤ h ran.

    ``features``, ``next_features [B, F]``: state at t and at t + k. ``encoding [B, E]``,
    ``base [B, h, A]`` and ``next_encoding``, ``next_base``: what the frozen base makes of the two
    observations. ``chunk [B, h, A]``: the executed actions, zero where not valid; ``valid
    [B, h]``: i < k. ``reward [B]``: G = Σ_{i<k} γ^i r_{t+i} of the sparse rewards.
    ``dense [B]``: Σ_{i<k} γ^i r(s_{t+i+1}) of the dense reward that the draw was given, 0 without.
    ``observed [B]``: the discounted sparse return that the episode went on to get from t, 0 where
    it did not succeed. ``steps [B]``: k. ``terminated [B]``: the episode terminated at t + k;
    where it was cut off there instead, this is False, and the value goes on. ``demonstration
    [B]``, ``source [B]``: where from; ``stage [B]``: the stage at whose entry the episode started,
    empty where it started at the beginning.
    All float32 but the last eight (float64 three times, int64, bool, bool, str, str).
    """

    features: np.ndarray
    next_features: np.ndarray
    encoding: np.ndarray
    next_encoding: np.ndarray
    base: np.ndarray
    next_base: np.ndarray
    chunk: np.ndarray
    valid: np.ndarray
    reward: np.ndarray
    dense: np.ndarray
    observed: np.ndarray
    steps: np.ndarray
    terminated: np.ndarray
    demonstration: np.ndarray
    source: np.ndarray
    stage: np.ndarray

    def __len__(self) -> int:
        return len(self.chunk)


class Replay:
    """Episodes of one family, with demonstrations in a share of their own.

    Every step of an episode starts a transition; none spans two episodes. Rewards are stored
    sparse: shaping belongs to the learner, so that a refined potential never meets stale rewards.
    Rollouts are bounded in bytes: the oldest go, each as a whole. Demonstrations come on top and
    are never dropped. What the frozen base makes of each observation is computed once, when the
    episode arrives, and again by :meth:`rebase`.
    """

    def __init__(self, reader: Reader, execute: int, capacity_bytes: int = 1 << 30) -> None:
        """``reader``: see :data:`Reader`; ``execute``: h; ``capacity_bytes``: for rollouts."""
        if execute < 1 or capacity_bytes < 1:
            raise LearningError(
                f"the replay has execute={execute} and capacity_bytes={capacity_bytes}.",
                allowed="whole numbers from 1",
            )
        self.reader = reader
        self.execute = execute
        self.rollouts = EpisodeRows(capacity_bytes)
        self.demonstrations = EpisodeRows(None)

    @property
    def nbytes(self) -> int:
        """Bytes that all stored arrays take."""
        return self.rollouts.nbytes + self.demonstrations.nbytes

    def __len__(self) -> int:
        """Steps that are stored, each the start of a transition."""
        return sum(r.length for rows in self._parts().values() for r in rows.records)

    def add(self, episodes: Sequence[Episode], *, demonstrations: bool = False) -> None:
        """Store episodes in their order.

        Raises :class:`LearningError`, storing none of them, where one is empty, holds a value
        that is not finite, has rewards that are not sparse (one reward of 1 at most), or arrays of
        another shape.
        """
        for episode in episodes:
            check_episode(episode)
        if not episodes:
            return
        states = episode_states(episodes)
        obs = observation_columns(states)
        states["encoding"], states["base"] = self._read(obs)
        rows = self.demonstrations if demonstrations else self.rollouts
        rows.check(states, max(e.length for e in episodes) + 1)
        first = 0
        for episode in episodes:
            part = slice(first, first + episode.length + 1)
            first = part.stop
            record = Record(
                start=0,
                length=episode.length,
                scene=episode.scene,
                seed=episode.seed,
                source=episode.source,
                terminated=episode.terminated,
                success=episode.success,
                stage=episode.stage,
            )
            rows.append(record, {name: values[part] for name, values in states.items()})

    def rebase(self, reader: Reader) -> None:
        """Read every stored observation again, with a new base of the same sizes."""
        self.reader = reader
        for rows in self._parts().values():
            if not rows.records:
                continue
            # All at once: a base reads many states faster than many times a few.
            used = np.concatenate(
                [np.arange(r.start, r.start + r.length + 1) for r in rows.records]
            )
            obs = observation_columns(rows.columns)
            for first in range(0, len(used), BLOCK):
                block = used[first : first + BLOCK]
                encoding, base = self._read({key: v[block] for key, v in obs.items()})
                for name, values in (("encoding", encoding), ("base", base)):
                    if values.shape[1:] != rows.columns[name].shape[1:]:
                        raise LearningError(
                            f"the new base gives a {name} of shape {values.shape[1:]}.",
                            allowed=f"{rows.columns[name].shape[1:]}, as before",
                            remedy="start a new replay for another backbone",
                        )
                    rows.columns[name][block] = values

    def stored(self, name: str) -> np.ndarray:
        """All stored rows of a column (``features``, ``encoding``), for normalisation."""
        parts = [
            rows.columns[name][r.start : r.start + r.length + 1]
            for rows in self._parts().values()
            for r in rows.records
        ]
        if not parts:
            raise LearningError("the replay is empty.", remedy="add episodes before training")
        return np.concatenate(parts)

    def draw(
        self,
        rng: np.random.Generator,
        batch_size: int,
        *,
        discount: float,
        demo_share: float = 0.25,
        source_weights: Mapping[str, float] | None = None,
        stage_weights: Mapping[str, float] | None = None,
        dense: DenseReward | None = None,
    ) -> TransitionBatch:
        """A batch of transitions, uniform over the steps of each share, with replacement.

        ``discount``: γ per environment step. ``demo_share``: share of demonstrations.
        ``source_weights``, ``stage_weights``: factors on the weight of a rollout's steps by its
        source and by the stage at whose entry it started (1 where one is not named). ``dense``: a
        reward to be paid beside the sparse one, computed here like shaping, so that none is ever
        stored. The same generator state gives the same batch.
        Raises :class:`LearningError` where a share that is asked for is empty.
        """
        from_demos = round(batch_size * demo_share)
        if batch_size < 1 or not 0 <= demo_share <= 1:
            raise LearningError(
                f"a draw has batch_size={batch_size} and demo_share={demo_share}.",
                allowed="batch_size ≥ 1 and demo_share in [0, 1]",
            )
        pieces = []
        for name, count in (
            ("demonstrations", from_demos),
            ("rollouts", batch_size - from_demos),
        ):
            if count:
                weight = self._weights(name, count, source_weights, stage_weights)
                pieces.append(self._draw_part(name, rng, count, discount, weight, dense))
        return TransitionBatch(
            **{k: np.concatenate([piece[k] for piece in pieces]) for k in pieces[0]}
        )

    def _weights(
        self,
        name: str,
        count: int,
        source_weights: Mapping[str, float] | None,
        stage_weights: Mapping[str, float] | None,
    ) -> np.ndarray:
        """Weight of a step of each stored episode of a part; demonstrations all weigh the same."""
        rows = self._parts()[name]
        if not rows.records:
            raise LearningError(
                f"the replay holds no {name}, and a batch asks for {count} of them.",
                remedy="add some first, or set the share of demonstrations to what there is",
            )
        weight = np.ones(len(rows.index.length))
        if name == "demonstrations":
            return weight
        for what, tags, factors in (
            ("source", rows.index.source, source_weights or {}),
            ("stage", rows.index.stage, stage_weights or {}),
        ):
            for tag, factor in factors.items():
                if not (np.isfinite(factor) and factor >= 0):
                    raise LearningError(
                        f"{what} {tag!r} has the replay weight {factor}.",
                        allowed="a finite number from 0",
                    )
                weight[tags == tag] *= factor
        if weight.max() <= 0:
            raise LearningError(
                f"every source of the {name} has replay weight 0.",
                remedy="give one a positive weight",
            )
        return weight

    def _draw_part(
        self,
        name: str,
        rng: np.random.Generator,
        count: int,
        discount: float,
        weight: np.ndarray,
        dense: DenseReward | None,
    ) -> dict[str, np.ndarray]:
        rows = self._parts()[name]
        index, columns = rows.index, rows.columns
        edges = np.cumsum(weight * index.length)
        point = rng.random(count) * edges[-1]
        # "right" passes over episodes of weight 0.
        pick = np.minimum(np.searchsorted(edges, point, side="right"), len(weight) - 1)
        into = (point - (edges - weight * index.length)[pick]) / weight[pick]
        t = np.clip(into.astype(np.int64), 0, index.length[pick] - 1)

        k = np.minimum(self.execute, index.length[pick] - t)
        offset = np.arange(self.execute)
        valid = offset < k[:, None]
        at = index.start[pick] + t
        after = at + k
        steps = np.where(valid, at[:, None] + offset, at[:, None])
        rewards = np.where(valid, columns["reward"][steps], 0.0)
        paid = np.zeros(valid.shape)
        if dense is not None:
            # For arriving in the states t + 1 to t + k.
            paid[valid] = dense(columns["features"][steps[valid] + 1])
        later = discount ** offset.astype(np.float64)
        return {
            "features": columns["features"][at],
            "next_features": columns["features"][after],
            "encoding": columns["encoding"][at],
            "next_encoding": columns["encoding"][after],
            "base": columns["base"][at],
            "next_base": columns["base"][after],
            "chunk": columns["action"][steps] * valid[:, :, None].astype(np.float32),
            "valid": valid.astype(np.float32),
            "reward": rewards @ later,
            "dense": paid @ later,
            # The one sparse reward comes with the last step.
            "observed": index.success[pick]
            * discount ** (index.length[pick] - 1 - t).astype(np.float64),
            "steps": k,
            "terminated": index.terminated[pick] & (t + k == index.length[pick]),
            "demonstration": np.full(count, name == "demonstrations"),
            "source": index.source[pick],
            "stage": index.stage[pick],
        }

    def save(self, folder: Path) -> None:
        """Write ``replay.json`` and ``replay.npz`` into an existing folder."""
        described: dict[str, Any] = {
            "execute": self.execute,
            "capacity_bytes": self.rollouts.max_bytes,
            "scenes": {},
            "parts": {},
        }
        arrays: dict[str, np.ndarray] = {}
        for name, rows in self._parts().items():
            for record in rows.records:
                described["scenes"].setdefault(record.scene.id, record.scene.to_dict())
            described["parts"][name] = {
                "head": rows.head,
                "records": [{**vars(r), "scene": r.scene.id} for r in rows.records],
            }
            arrays |= {f"{name}/{column}": values for column, values in rows.columns.items()}
        (folder / FILES[0]).write_text(json.dumps(described, allow_nan=False), encoding="utf-8")
        np.savez(folder / FILES[1], allow_pickle=False, **arrays)

    @classmethod
    def load(cls, folder: Path, reader: Reader) -> Self:
        """The replay that :meth:`save` wrote; it then goes on exactly as the saved one would.

        ``reader`` reads later episodes; stored readings are kept. Raises :class:`RunError` that
        names the folder where the files are missing or damaged.
        """
        try:
            described = json.loads((folder / FILES[0]).read_text(encoding="utf-8"))
            replay = cls(reader, described["execute"], described["capacity_bytes"])
            scenes = {i: Scene.model_validate(s) for i, s in described["scenes"].items()}
            # Opened here: NumPy leaves a damaged file open.
            with (
                (folder / FILES[1]).open("rb") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):
                for name, rows in replay._parts().items():
                    part = described["parts"][name]
                    records = (
                        Record(**{**r, "scene": scenes[r["scene"]]}) for r in part["records"]
                    )
                    own = [key for key in arrays.files if key.startswith(name + "/")]
                    columns = {key.removeprefix(name + "/"): arrays[key] for key in own}
                    rows.restore(part["head"], records, columns)
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise RunError(
                f"{folder} holds no usable replay: {' '.join(str(error).split())}.",
                allowed=" and ".join(FILES),
                remedy="resume from another checkpoint",
            ) from error
        return replay

    def _parts(self) -> dict[str, EpisodeRows]:
        return {"demonstrations": self.demonstrations, "rollouts": self.rollouts}

    def _read(self, obs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Encoding ``[N, E]`` and base chunk ``[N, h, A]`` of N observations, in blocks."""
        count = len(next(iter(obs.values())))
        read = [
            self.reader({key: v[i : i + BLOCK] for key, v in obs.items()})
            for i in range(0, count, BLOCK)
        ]
        encoding = np.concatenate([e for e, _ in read]).astype(np.float32)
        base = np.concatenate([b[:, : self.execute] for _, b in read]).astype(np.float32)
        if len(encoding) != count or base.shape[:2] != (count, self.execute):
            raise LearningError(
                f"the base gave encodings {encoding.shape} and chunks {base.shape}.",
                allowed=f"[{count}, E] and [{count}, {self.execute}, A]",
            )
        check_finite("the base's encoding", encoding)
        check_finite("the base's chunk", base)
        return encoding, base
