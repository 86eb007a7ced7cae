"""LLMSettings: which server and model is asked, and how much may be spent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from coda_envs.errors import ConfigError, suggest


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an http or https address such as http://localhost:8000/v1")
    if "@" in parts.netloc:
        # Whatever stands there is not repeated: it may be a password.
        raise ValueError("an address without a user part; give the key by the environment")
    return url


class LLMSettings(BaseModel):
    """Frozen, closed data. No key is among it: that comes from the environment alone."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    base_url: Annotated[str, AfterValidator(_http_url)]
    """Address of the server, up to and with ``/v1``."""
    model: Annotated[str, Field(min_length=1, max_length=200)]
    """The model's name, as the server calls it."""
    key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = "OPENAI_API_KEY"
    """Environment variable that holds the key. A server on this machine may need none."""
    answer_format: Literal["json_schema", "json", "text"] = "json_schema"
    """How the server is asked for JSON. One that refuses a format is asked in the next simpler."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0
    timeout: Annotated[float, Field(gt=0, le=3600)] = 60.0
    """Seconds that one call may take, however slowly its answer comes in."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Further tries of a call that was refused for load or failed on the way."""
    answer_tokens: Annotated[int, Field(ge=1)] = 800
    """Longest answer."""
    max_calls: Annotated[int, Field(ge=0)] = 64
    """Most calls of one client; repairs count. Answers from recordings are none."""
    max_tokens: Annotated[int, Field(ge=0)] = 500_000
    """Most tokens, questions and answers together, after which no call is made."""
    max_cost: Annotated[float, Field(ge=0)] | None = None
    """Most money, in the currency of the prices; needs both prices."""
    price_in: Annotated[float, Field(ge=0)] | None = None
    """Price of a million tokens of questions. Without prices the cost is not measured."""
    price_out: Annotated[float, Field(ge=0)] | None = None
    """Price of a million tokens of answers."""
    recordings: str | None = None
    """Folder of answers: one that is there is used, a new one is added."""
    replay: bool = False
    """Answers from ``recordings`` alone: nothing is sent anywhere, and no key is needed."""

    def check(self) -> LLMSettings:
        """These settings, if a client can be made of them. Raises :class:`ConfigError`."""
        if self.max_cost is not None and (self.price_in is None or self.price_out is None):
            raise ConfigError(
                f"max_cost is {self.max_cost:g}, but there are no prices.",
                remedy="set price_in and price_out, or leave max_cost out",
            )
        if self.replay and self.recordings is None:
            raise ConfigError(
                "replay is true, but there are no recordings.",
                remedy="set recordings to the folder that an earlier run wrote",
            )
        if not self.replay and not self.local and not os.environ.get(self.key_variable):
            raise ConfigError(
                f"the environment variable {self.key_variable} is not set, and "
                f"{urlsplit(self.base_url).hostname} is not this machine.",
                remedy=f"export {self.key_variable}, or set key_variable to the one that has the "
                "key, or use a server on this machine",
            )
        return self

    @property
    def local(self) -> bool:
        """Whether the server is on this machine, where it seldom asks for a key."""
        host = urlsplit(self.base_url).hostname or ""
        return host in ("localhost", "::1") or host.startswith("127.")


def read_settings(options: Mapping[str, Any], option: str) -> LLMSettings:
    """Settings from a user's options. Raises :class:`ConfigError`, which calls an option
    ``option`` and its name: ``the vlm diagnostician's option model``."""
    try:
        return LLMSettings(**options)
    except ValidationError as error:
        # What is misspelt explains what is missing.
        found = sorted(error.errors(), key=lambda e: e["type"] != "extra_forbidden")[0]
        name = ".".join(map(str, found["loc"]))
        if found["type"] == "extra_forbidden":
            allowed = suggest(name, LLMSettings.model_fields)
            raise ConfigError(f"{option}{name} is none that it has.", allowed=allowed) from error
        if found["type"] == "missing":
            raise ConfigError(f"{option}{name} is missing.", remedy=f"set {name}") from error
        raise ConfigError(
            f"{option}{name} is not usable.", allowed=found["msg"].removeprefix("Value error, ")
        ) from error
