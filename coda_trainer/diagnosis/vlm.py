"""The vlm diagnostician: a vision-language model at any OpenAI-compatible server."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image

from coda_envs.cameras import CAMERAS
from coda_envs.env import ManipulationEnv
from coda_envs.errors import ConfigError, LLMError, short, suggest
from coda_envs.programs.diagnosis import Diagnosis
from coda_trainer.diagnosis.base import DiagnosisContext
from coda_trainer.diagnosis.evidence import key_steps, observed
from coda_trainer.diagnosis.prompt import make_question, read_answer
from coda_trainer.diagnosis.trace import TraceDiagnostician
from coda_trainer.episode import Episode
from coda_trainer.llm.client import LLM
from coda_trainer.llm.question import Picture
from coda_trainer.llm.settings import read_settings
from coda_trainer.replay_frames import frames_at

#: What stands in for the model where it gives no diagnosis.
Fallback = Literal["abstain", "trace"]


class VLMDiagnostician:
    """Asks a model about each failure: task, factors, events, and keyframes of two cameras.

    Failures are asked about in an order drawn from the context's seed, so that a cap on the calls
    takes any of them. Where the model gives no diagnosis (a cap, no server, a refusal, an answer
    that is still wrong after one repair) the ``fallback`` does, under its own label; ``abstain``
    says why in the sentence. A claim is worth no more than its control evaluation, whoever made it.
    """

    def __init__(
        self,
        *,
        images: bool = True,
        image_size: int = 256,
        fallback: Fallback = "abstain",
        **settings: Any,
    ) -> None:
        """``images``: off for a model that cannot see. ``image_size``: height and width (pixels).
        ``settings``: see :mod:`coda_trainer.llm.settings`. Raises :class:`ConfigError`."""
        if fallback not in get_args(Fallback):
            raise ConfigError(
                f"fallback is {short(fallback)}.",
                allowed=suggest(str(fallback), get_args(Fallback)),
            )
        if not isinstance(images, bool) or not 32 <= image_size <= 1024:
            raise ConfigError(
                f"images is {short(images)} and image_size {short(image_size)}.",
                allowed="true or false, and 32 to 1024 pixels",
            )
        self._llm = LLM(read_settings(settings, "the vlm diagnostician's option "))
        self._images, self._size, self._fallback = images, image_size, fallback
        self.label = f"vlm {self._llm.settings.model}{'' if images else ' (without pictures)'}"

    def usage(self) -> dict[str, Any]:
        """Calls, tokens and cost so far."""
        return self._llm.usage.to_dict()

    def diagnose(self, failures: Sequence[Episode], context: DiagnosisContext) -> list[Diagnosis]:
        """See :class:`~coda_trainer.diagnosis.base.Diagnostician`."""
        answers: dict[int, Diagnosis] = {}
        missing: dict[int, str] = {}
        env = None
        if self._images:
            env = ManipulationEnv(context.family.name, control_hz=context.control_hz)
        try:
            for index in np.random.default_rng(context.seed).permutation(len(failures)).tolist():
                try:
                    answers[index] = self._ask(failures[index], context, env)
                except LLMError as error:
                    missing[index] = error.problem
        finally:
            if env is not None:
                env.close()
        left = sorted(missing)
        stand_in = self._instead([failures[i] for i in left], context, [missing[i] for i in left])
        answers |= dict(zip(left, stand_in, strict=True))
        return [answers[i] for i in range(len(failures))]

    def _ask(
        self, episode: Episode, context: DiagnosisContext, env: ManipulationEnv | None
    ) -> Diagnosis:
        pictures: dict[tuple[int, str], Picture] = {}
        if env is not None and not self._llm.stopped:
            steps = key_steps(episode, context.family.schema)
            frames = frames_at(env, episode, steps, CAMERAS, (self._size, self._size))
            pictures = {
                (step, camera): _picture(episode, step, camera, frame, context.control_hz)
                for (step, camera), frame in frames.items()
            }
        question = make_question(episode, context, pictures)
        return self._llm.ask_for(
            question, lambda data: read_answer(data, episode, context, self.label)
        )

    def _instead(
        self, failures: Sequence[Episode], context: DiagnosisContext, reasons: Sequence[str]
    ) -> list[Diagnosis]:
        """Diagnoses of the failures that the model gave none of, for these ``reasons``."""
        if self._fallback == "trace" and failures:
            return TraceDiagnostician().diagnose(failures, context)
        return [
            Diagnosis(
                **observed(episode, context, self.label),
                abstain=True,
                sentence=f"No answer: {reason}"[:500],
            )
            for episode, reason in zip(failures, reasons, strict=True)
        ]


def _picture(
    episode: Episode, step: int, camera: str, frame: np.ndarray, control_hz: int
) -> Picture:
    """A frame as a PNG. It is known by what it shows: other graphics cards draw other bytes."""
    shows = (episode.scene.id, episode.seed, control_hz, step, camera, frame.shape)
    digest = hashlib.sha256(repr(shows).encode())
    digest.update(np.ascontiguousarray(episode.actions[:step]).tobytes())
    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, format="PNG")
    return Picture(buffer.getvalue(), digest.hexdigest())
