"""Shapes are checked in tests: a function whose annotations name the shape of an array is called through beartype.

`tests/conftest.py` installs `checked` as jaxtyping's import hook, so users pay nothing. Only the shapes are looked at:
other wrong arguments must reach the function, which answers them with a sentence.
"""

from collections.abc import Callable
from typing import Any, get_args

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

CONF = BeartypeConf(is_pep484_tower=True)  # an int is a float


def names_a_shape(hint: Any) -> bool:
    return (isinstance(hint, type) and issubclass(hint, AbstractArray)) or any(map(names_a_shape, get_args(hint)))


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its shapes checked; a class and a function that names none stay as they are."""
    hints = {} if isinstance(function, type) else getattr(function, "__annotations__", {})
    shapes = {name: hint for name, hint in hints.items() if names_a_shape(hint)}
    if not shapes:
        return function
    function.__annotations__ = shapes
    try:
        made: Callable[..., Any] = beartype(conf=CONF)(function)
    finally:
        function.__annotations__ = hints
    return made
