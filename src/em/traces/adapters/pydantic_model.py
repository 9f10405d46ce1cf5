"""Pydantic models as tools: the class is what the model fills in, calling an object does the work.

    class CancelOrder(BaseModel):
        order_id: str

        def __call__(self) -> str: ...

A pair of a model and a function is a tool too: the function takes an object of the model.
"""

import functools
import inspect
import typing
from typing import Any

from pydantic import BaseModel

from em.traces.adapters import Adapted, Function, Wrap, of_named, with_signature


def adapted_tool(thing: Any) -> Adapted | None:
    """Return a model with `__call__` as em sees it."""
    if not is_model(thing) or "__call__" not in dir(thing):
        return None
    doc = inspect.getdoc(thing) or ""

    does: Function = thing.__call__  # of the class: it takes an object
    return Adapted(
        name=thing.__name__,
        function=_filling(thing, does, thing.__name__, doc, is_checked=True),
        around=functools.partial(_around_class, thing, does, doc),
        description=doc.partition("\n")[0],
        schema=thing.model_json_schema(),
    )


def adapted_pair(model: type[BaseModel], function: Function) -> Adapted:
    """Return a model with the function that takes it as em sees it."""
    doc = inspect.getdoc(model) or inspect.getdoc(function) or ""

    def around(wrap: Wrap) -> tuple[type[BaseModel], Function]:
        wrapped = wrap(_filling(model, function, model.__name__, doc))
        return model, functools.wraps(function)(lambda filled: wrapped(**fields_of(filled)))

    return Adapted(
        name=model.__name__,
        function=_filling(model, function, model.__name__, doc, is_checked=True),
        around=around,
        description=doc.partition("\n")[0],
        schema=model.model_json_schema(),
    )


def is_model(thing: Any) -> bool:
    """Return whether this is a class of pydantic's."""
    return isinstance(thing, type) and issubclass(thing, BaseModel)


def fields_of(filled: BaseModel) -> dict[str, Any]:
    """Return the fields that were given, as they are."""
    return {name: getattr(filled, name) for name in filled.model_fields_set}


def taking_json(function: Function) -> Function:
    """Return a function whose parameters of models may be given as JSON; itself if it has none."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - a foreign annotation that can't be read is none of ours
        return function
    hints.pop("return", None)
    models = {name: hint for name, hint in hints.items() if is_model(hint)}
    if not models:
        return function

    def read(args: dict[str, Any]) -> dict[str, Any]:
        return {
            name: models[name].model_validate(value)
            if name in models and isinstance(value, dict)
            else value
            for name, value in args.items()
        }

    @functools.wraps(function)
    async def acall(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **read(kwargs))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **read(kwargs))

    return acall if inspect.iscoroutinefunction(function) else call


def _filling(
    model: type[BaseModel], function: Function, name: str, doc: str, *, is_checked: bool = False
) -> Function:
    """Return a function of the model's fields, by their names.

    is_checked: validate them. Otherwise they come from an object that was validated already.
    """

    def made(args: dict[str, Any]) -> BaseModel:
        return model.model_validate(args) if is_checked else model.model_construct(**args)

    return with_signature(of_named(function, made), name, doc, model.model_json_schema())


def _around_class(model: type[BaseModel], does: Function, doc: str, wrap: Wrap) -> type[BaseModel]:
    """Return a class like the model, whose `__call__` is wrapped."""
    wrapped = wrap(_filling(model, does, model.__name__, doc))

    @functools.wraps(model.__call__)
    def call(filled: BaseModel) -> Any:
        return wrapped(**fields_of(filled))

    own = {"__call__": call, "__module__": model.__module__, "__doc__": model.__doc__}
    return type(model.__name__, (model,), {**own, "__qualname__": model.__qualname__})
