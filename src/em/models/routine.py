"""Routine: a trace compiled into steps with references; runs without a model."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from em.models.canonical import Json
from em.models.trace import Effect

OnError = Literal["fail", "continue"]
FieldType = Literal[
    "text", "number", "integer", "confirm", "select", "multiselect", "secret", "json"
]


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Try again when a step fails; `errors` limits it to those whose type or text matches."""

    attempts: int = 3
    backoff: float = 0.1
    errors: Sequence[str] = ()


class Checks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Expressions that must hold before and after a step."""

    pre: Sequence[str] = ()
    post: Sequence[str] = ()


class Default(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`on_error: {default: …}`: go on with this value."""

    default: Any


class PromptField(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One thing to ask a person."""

    name: str
    type: FieldType = "text"
    label: str = ""
    options: Sequence[Any] = ()
    required: bool = True
    default: Any = None


class Prompt(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to ask a person."""

    message: str
    fields: Sequence[PromptField] = ()


class _Common(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="type",
):
    """What every step may have."""

    id: str
    description: str = ""
    when: str | None = None
    save_as: str | None = None
    for_each: Any = None
    as_: str = msgspec.field(default="item", name="as")
    parallel: int = 1
    retry: Retry | None = None
    timeout: float | None = None
    on_error: OnError | Default = "fail"
    checks: Checks | None = None
    effect: Effect | None = None
    idempotency_key: str | None = None


class ToolStep(_Common, frozen=True, kw_only=True, tag="tool.call"):
    """Call a tool."""

    tool: str
    args: Json = {}


class UdfStep(_Common, frozen=True, kw_only=True, tag="udf.call"):
    """Call a function of the routine's own."""

    function: str
    args: Json = {}


class AssertStep(_Common, frozen=True, kw_only=True, tag="assert"):
    """Stop unless an expression holds."""

    check: str
    message: str = ""


class PromptStep(_Common, frozen=True, kw_only=True, tag="prompt.user"):
    """Ask a person."""

    prompt: Prompt


class ReturnStep(_Common, frozen=True, kw_only=True, tag="return"):
    """End with a value."""

    value: Any = None


Step = ToolStep | UdfStep | AssertStep | PromptStep | ReturnStep


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tool that the routine calls."""

    name: str
    description: str = ""
    args_schema: Json | None = None
    result_schema: Json | None = None
    effect: Effect | None = None
    effect_inferred: bool = False


class Secret(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value that is never written: taken from the environment when the routine runs."""

    name: str
    env: str = ""
    description: str = ""

    @property
    def variable(self) -> str:
        """The environment variable that holds it."""
        return self.env or f"EM_SECRET_{self.name.upper()}"


class Routine(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Steps with references, the tools they call, and the shape of input and output."""

    version: Literal["1"] = "1"
    name: str
    description: str = ""
    tools: Sequence[ToolSpec] = ()
    input_schema: Json | None = None
    output_schema: Json | None = None
    secrets: Sequence[Secret] = ()
    steps: Sequence[Step] = ()
