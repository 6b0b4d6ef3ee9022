"""Frozen, closed, fingerprinted configuration values, and the one error meant for a user's eyes.

Floor 0: everything may import this, and it imports nothing of ours.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError


class UserError(Exception):
    """Something the user can mend. The message says what was wrong, what is allowed and what to do.

    The command line prints the message without a traceback.
    """


def nearest(word: str, allowed: list[str]) -> str:
    """A clause that names the closest allowed word, or lists them all when none is close."""
    lower = {name.lower(): name for name in allowed}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    if close:
        return f"did you mean {lower[close[0]]!r}?"
    return "allowed: " + ", ".join(sorted(allowed))


class Config(BaseModel):
    """An experiment is a value: frozen, closed to unknown keys, equal by content.

    Configs are inert. They do no I/O and build no model; validation looks only at the values themselves.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _closed(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            for key in data:
                if key not in cls.model_fields:
                    raise PydanticCustomError(
                        "unknown_key",
                        "unknown key {key}; {hint}",
                        {"key": repr(key), "hint": nearest(str(key), list(cls.model_fields))},
                    )
        return data

    @classmethod
    def read(cls, data: Any, source: str = "") -> Self:
        """Validate plain data.

        Args:
            data: nested mappings, lists and scalars, as YAML gives them.
            source: where the data came from (a file name), put in front of each message.

        Raises:
            UserError: one line for each mistake, with its place and its value.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise UserError("\n".join(_explain(item, source) for item in error.errors())) from None

    def fingerprint(self) -> str:
        """16 hexadecimal digits of what differs from the defaults, so that a new field keeps old identities."""
        return fingerprint(type(self).__name__, self.model_dump(mode="json", exclude_defaults=True))


def fingerprint(*parts: Any) -> str:
    """16 hexadecimal digits of JSON-serialisable parts, the same on every machine and Python."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _explain(item: Any, source: str) -> str:
    place = ".".join(str(part) for part in item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    value = item.get("input")
    # pydantic's own messages never show the value; ours mostly do.
    ours = item["type"] == "value_error" and (repr(value) in message or (isinstance(value, str) and value in message))
    shown = "" if ours or isinstance(value, Mapping | BaseModel) else f" (got {value!r})"
    return ": ".join(part for part in (source, place, message) if part) + shown
