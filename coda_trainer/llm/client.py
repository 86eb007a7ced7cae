"""LLM: asks a language model within caps, keeps its answers, and repairs one once."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from coda_envs.errors import ConfigError, LLMError, ProgramError
from coda_trainer.llm.answers import read_object
from coda_trainer.llm.question import Answer, Picture, Question
from coda_trainer.llm.recordings import Recordings
from coda_trainer.llm.settings import LLMSettings
from coda_trainer.llm.usage import Usage

T = TypeVar("T")

#: Formats from the strictest on; a server that refuses one is asked in the next.
FORMATS = ("json_schema", "json", "text")
#: So many calls in a row without an answer, and no more are made.
MAX_FAILURES = 3
#: How much of a bad answer is shown to the model that shall repair it.
SHOWN_CHARACTERS = 4000
#: Why a model stops where it will not answer.
REFUSED = ("refusal", "content_filter")
#: Any server takes some key; one on this machine seldom looks at it.
NO_KEY = "none"


class LLM:
    """One model at one server, for a limited job such as a round's diagnoses.

    It sends what it is given and reads what comes back; nothing that a model says is executed.
    Raises :class:`ConfigError` where the settings cannot work, before anything is sent.
    """

    def __init__(self, settings: LLMSettings) -> None:
        self.settings = settings.check()
        self.usage = Usage(settings)
        self._recordings = Recordings(Path(settings.recordings)) if settings.recordings else None
        self._formats = list(FORMATS[FORMATS.index(settings.answer_format) :])
        self._failures = 0
        self._key = os.environ.get(settings.key_variable) or NO_KEY
        self._client = None if settings.replay else _client(settings, self._key)

    @property
    def stopped(self) -> str:
        """Why nothing more is asked, in words; empty while calls may be made."""
        if self._failures >= MAX_FAILURES:
            return f"{MAX_FAILURES} calls in a row had no answer"
        return self.usage.exhausted

    def ask(self, question: Question) -> Answer:
        """The model's answer, from the recordings where it is there.

        Raises :class:`LLMError` where a cap is reached, nothing is recorded in a replay, or the
        server gives no answer.
        """
        settings = self.settings
        key = question.key(
            model=settings.model,
            temperature=settings.temperature,
            seed=settings.seed,
            answer_format=settings.answer_format,
            answer_tokens=settings.answer_tokens,
        )
        answer = self._recordings.find(key) if self._recordings else None
        if answer is None:
            if settings.replay:
                raise LLMError(
                    f"the question {key[:12]} has no answer in {settings.recordings}.",
                    remedy="record it with replay: false, or use the settings it was recorded with",
                )
            if self.stopped:
                raise LLMError(f"{settings.model} is not asked: {self.stopped}.")
            answer = self._call(question)
            if self._recordings:
                self._recordings.add(key, answer)
        self.usage.count(answer, _characters(question))
        return answer

    def ask_for(self, question: Question, read: Callable[[dict[str, Any]], T]) -> T:
        """What ``read`` makes of the answer's JSON object.

        Where the object is missing or ``read`` raises :class:`ProgramError`, the model is told so
        and asked once more. Raises :class:`LLMError` where that answer is of no use either, or the
        model refused.
        """
        first = self._spoken(question)
        try:
            return read(read_object(first.text))
        except ProgramError as error:
            problem = str(error)
        self.usage.repaired += 1
        if first.finish == "length":
            # Some servers fill a strict format with white space until the answer's end.
            self._formats = self._formats[-1:]
        again = replace(question, parts=(*question.parts, _repair(first, problem)))
        second = self._spoken(again)
        try:
            return read(read_object(second.text))
        except ProgramError as error:
            raise LLMError(
                f"the answer of {self.settings.model} cannot be used, also after one repair: "
                f"{error}"
            ) from error

    def _spoken(self, question: Question) -> Answer:
        answer = self.ask(question)
        if answer.finish in REFUSED:
            raise LLMError(f"{self.settings.model} refused to answer ({answer.finish}).")
        return answer

    def _call(self, question: Question) -> Answer:
        """One call, in simpler formats where the server refuses the wanted one."""
        import openai

        self.usage.calls += 1
        while True:
            try:
                answer = self._within_time(question, self._formats[0])
                self._failures = 0
                return answer
            except openai.BadRequestError as error:
                if len(self._formats) > 1:
                    del self._formats[0]
                    continue
                raise self._failed(error) from error
            except (openai.OpenAIError, TimeoutError, ValueError) as error:
                raise self._failed(error) from error

    def _failed(self, error: Exception) -> LLMError:
        self._failures += 1
        self.usage.failed += 1
        # A server may repeat the key that it does not like.
        said = " ".join(str(error).split()).replace(self._key, "***")[:200]
        return LLMError(
            f"{self.settings.model} at {self.settings.base_url} gave no answer: "
            f"{type(error).__name__}: {said}",
            remedy="see that the server runs, knows the model and takes the key",
        )

    def _within_time(self, question: Question, format: str) -> Answer:
        """The answer, or :class:`TimeoutError`. The HTTP client's own limit is one between two
        bytes: a server that sends one now and then would hold the run for ever."""
        box: list[Answer | Exception] = []

        def work() -> None:
            try:
                box.append(self._send(question, format))
            except Exception as error:
                box.append(error)

        thread = threading.Thread(target=work, daemon=True, name="llm call")
        thread.start()
        limit = self.settings.timeout * (1 + self.settings.retries)
        thread.join(limit)
        if not box:
            raise TimeoutError(f"no whole answer within {limit:g} s")
        if isinstance(box[0], Exception):
            raise box[0]
        return box[0]

    def _send(self, question: Question, format: str) -> Answer:
        settings = self.settings
        content = [_part(part) for part in question.parts]
        extra: dict[str, Any] = {}
        if format == "json_schema":
            schema = {"name": question.name, "schema": dict(question.schema), "strict": True}
            extra["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif format == "json":
            extra["response_format"] = {"type": "json_object"}
        assert self._client is not None
        reply = self._client.chat.completions.create(
            model=settings.model,
            messages=[
                {"role": "system", "content": question.system},
                {"role": "user", "content": content},
            ],
            temperature=settings.temperature,
            seed=settings.seed,
            max_tokens=settings.answer_tokens,
            **extra,
        )
        return _answer(reply)


def _client(settings: LLMSettings, key: str) -> Any:
    try:
        # Takes over a second, and most runs ask no model.
        import openai
    except ImportError as error:
        raise ConfigError(
            "the package openai is not installed.", remedy='pip install "coda-robotics[llm]"'
        ) from error
    return openai.OpenAI(
        base_url=settings.base_url,
        api_key=key,
        timeout=settings.timeout,
        max_retries=settings.retries,
    )


def _answer(reply: Any) -> Answer:
    """The fields that matter of a reply, which a server may have left out or made up.

    Raises :class:`ValueError` where there is no message.
    """
    choices = getattr(reply, "choices", None)
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = getattr(choice, "message", None)
    if message is None:
        raise ValueError("the reply holds no message")
    refusal = getattr(message, "refusal", None)
    text = getattr(message, "content", None)
    finish = "refusal" if refusal else str(getattr(choice, "finish_reason", None) or "stop")
    usage = getattr(reply, "usage", None)
    given, taken = (_count(getattr(usage, n, None)) for n in ("prompt_tokens", "completion_tokens"))
    return Answer(text if isinstance(text, str) else "", finish, given, taken)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _part(part: str | Picture) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    data = base64.b64encode(part.png).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _repair(answer: Answer, problem: str) -> str:
    cut = " It was cut off: be brief." if answer.finish == "length" else ""
    return (
        f"You answered before:\n{answer.text.strip()[:SHOWN_CHARACTERS]}\n"
        f"That cannot be used: {problem}{cut} Answer again, with one JSON object and nothing else."
    )


def _characters(question: Question) -> int:
    return len(question.system) + sum(len(p) for p in question.parts if isinstance(p, str))
