"""`NKIObject`: classes of kernels, whose class attributes are their arguments."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from enum import Enum
from typing import Any


class NKIObject:
    """Base of classes that kernels use; a subclass without `__init__` takes its fields."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if issubclass(cls, Enum):
            return
        # Attributes without annotations are fields as well, under `dataclass` too.
        fields = inspect.get_annotations(cls)
        for name, value in vars(cls).items():
            if not name.startswith("_") and not callable(value) and not hasattr(value, "__get__"):
                fields.setdefault(name, Any)
        cls.__annotations__ = fields

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields = _fields(type(self))
        given = dict(zip(fields, args, strict=False)) | kwargs
        if len(args) > len(fields) or not set(given) <= set(fields):
            raise TypeError(f"{type(self).__name__} has fields {list(fields)}, not {list(given)}")
        for name, default in fields.items():
            if name not in given and default is dataclasses.MISSING:
                raise TypeError(f"{type(self).__name__} lacks a value of {name}")
            setattr(self, name, given[name] if name in given else copy.copy(default))
        if hasattr(self, "__post_init__"):
            self.__post_init__()


def _fields(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for c in reversed(cls.__mro__):
        for name in inspect.get_annotations(c):
            default = c.__dict__.get(name, dataclasses.MISSING)
            if isinstance(default, dataclasses.Field):
                made = default.default_factory
                default = default.default if made is dataclasses.MISSING else made()
            found[name] = default
    return found
