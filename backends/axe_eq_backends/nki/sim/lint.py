"""What a compiler of NKI refuses and Python does not: absent names, and Python that NKI lacks.

A simulated kernel is plain Python, so it may use more of the language than NKI has. The rules are
those of the migration guide to NKI 0.3.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from axe_eq_backends.nki.sim.errors import Finding, NkiError, parsing, remember, shown
from axe_eq_backends.nki.sim.facade import no_name, tables

LINT = "LINT"
USUAL = {"nki": "nki", "nisa": "nki.isa", "nl": "nki.language"}


def check(
    text: str, file: str, dialect: str, names: Mapping[str, Any] | None = None, kernel: str = ""
) -> list[Finding]:
    """What is found in a text of kernels that need not stop a simulation.

    Args:
        text: of the file.
        file: how lines of it are called.
        dialect: whose names there are.
        names: what the text uses without an import.
        kernel: which is run: absent names in functions that it does not use stop nothing. "" for
            any of them.

    Raises:
        NkiError: it is no Python, or uses a name that the dialect does not have.
    """
    remember(text, file)
    with parsing(file):
        tree = ast.parse(text, file)
    aliases = {n: USUAL[n] for n in names or {} if n in USUAL}
    aliases |= dict(_imported(tree, file, dialect))
    found, unused = list[tuple[int, str]](), _unused(tree, kernel)
    for part in tree.body:
        for node in ast.walk(part):
            if isinstance(node, ast.Attribute):
                try:
                    _resolved(node, aliases, file, dialect)
                except NkiError as error:
                    if part not in unused:
                        raise
                    found.append((node.lineno, f"{error.thing}: {error.wrong}; not run here"))
    return [Finding(LINT, said, (file, line)) for line, said in (*found, *_beyond(tree, dialect))]


def _unused(tree: ast.Module, kernel: str) -> set[ast.stmt]:
    """Functions of a text that a kernel of it does not name, itself or through others."""
    functions = {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef)}
    left, reached = {kernel} & {*functions}, set[str]()
    if not left:
        # What is bound in another way may use any of them; what is not there uses none.
        return set() if not kernel or _names(tree, kernel) else {*functions.values()}
    left |= {n.id for s in tree.body if s not in functions.values() for n in ast.walk(s)
             if isinstance(n, ast.Name)} & {*functions}  # fmt: skip
    while left:
        reached.add(name := left.pop())
        named = {n.id for n in ast.walk(functions[name]) if isinstance(n, ast.Name)}
        left |= named & {*functions} - reached
    return {s for name, s in functions.items() if name not in reached}


def _names(tree: ast.Module, kernel: str) -> bool:
    """Whether a text has a name, or may have it from a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.alias) and {node.name, node.asname} & {kernel, "*"}:
            return True
        if isinstance(node, ast.Name | ast.ClassDef):
            name = node.id if isinstance(node, ast.Name) else node.name
            if name == kernel:
                return True
    return False


def _imported(tree: ast.AST, file: str, dialect: str) -> Iterator[tuple[str, str]]:
    """Names that stand for modules of nki; names imported out of them are looked up."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for a in node.names:
                if a.name.partition(".")[0] == "nki":
                    _module(a.name, file, node.lineno, dialect)
                    yield (a.asname, a.name) if a.asname else ("nki", "nki")
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.partition(".")[0] != "nki":
                continue
            _module(node.module, file, node.lineno, dialect)
            for a in node.names:
                whole = f"{node.module}.{a.name}"
                if whole in tables():
                    yield a.asname or a.name, whole
                elif a.name != "*":
                    _name(node.module, a.name, file, node.lineno, dialect)


def _module(name: str, file: str, line: int, dialect: str) -> None:
    if name not in tables():
        known = " ".join(tables())
        raise NkiError(
            f"module {name}", f"is none of NKI {dialect}", f"one of {known}", at=shown((file, line))
        )


def _resolved(
    node: ast.Attribute, aliases: Mapping[str, str], file: str, dialect: str
) -> str | None:
    """The module that an attribute chain stands for, if it does; others have to be names."""
    if isinstance(node.value, ast.Name):
        module = aliases.get(node.value.id)
    elif isinstance(node.value, ast.Attribute):
        module = _resolved(node.value, aliases, file, dialect)
    else:
        return None
    if module is None:
        return None
    whole = f"{module}.{node.attr}"
    if whole in tables():
        return whole
    _name(module, node.attr, file, node.lineno, dialect)
    return None


def _name(module: str, name: str, file: str, line: int, dialect: str) -> None:
    if dialect in tables()[module].get(name, (None, ()))[1]:
        return
    raise NkiError(*no_name(module, name, dialect), at=shown((file, line)))


def _beyond(tree: ast.AST, dialect: str) -> Iterator[tuple[int, str]]:
    """Python that NKI does not have, in functions under `nki.jit`."""
    if dialect == "0.2":
        return
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or not _is_kernel(function):
            continue
        if function.args.kwonlyargs:
            yield (
                function.lineno,
                f"kernel {function.name}: has * in its signature; expected plain arguments",
            )
        for node in ast.walk(function):
            if isinstance(node, ast.Compare):
                for op in node.ops:
                    if isinstance(op, ast.Is | ast.IsNot):
                        yield (
                            node.lineno,
                            f"kernel {function.name}: compares by `is`; expected == or !=",
                        )
            elif isinstance(
                node, ast.Yield | ast.YieldFrom | ast.Await | ast.AsyncFor | ast.AsyncWith
            ):
                yield node.lineno, f"kernel {function.name}: is a generator; expected a function"


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(d) for d in function.decorator_list)
