"""Guards over the repository: rules that no tool of `make check` knows.

Each rule is a function from a file's text to its violations, tried on samples that break it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import pkgutil
import re
import subprocess
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import axe_eq.program
from axe_eq.program import ops

ROOT = Path(__file__).parents[2]
MOST_LINES = 600
MOST_LITERAL = 400

# May say operators' names: the operators' own declarations and the namespaces users call.
NAMES_OPERATORS = {f"axe_eq/program/{name}.py" for name in ("ops", "standard", "selectors")}

# Words of another vocabulary that are also operators' names, per file that may decide by them.
OTHER_WORDS = {
    "axe_eq/__init__.py": {"array"},  # a namespace
    "axe_eq/kernel/expr.py": {"and", "min", "max"},  # symbols of integer index expressions
    "axe_eq/layout/symbolic/text.py": {"slice"},  # operations on layouts
    "axe_eq/layout/notation/triton_encodings.py": {"slice"},  # encodings of Triton
}


def tracked() -> list[Path]:
    """Files git tracks or would track; in an unpacked archive, those in no hidden folder."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        files = [ROOT / name for name in listed.stdout.splitlines()]
    else:
        files = [path for path in ROOT.rglob("*") if not _is_derived(path.relative_to(ROOT))]
    return sorted(path for path in files if path.is_file())


def _is_derived(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts[:-1])


def python_files(*folders: str) -> list[Path]:
    inside = [ROOT / folder for folder in folders]
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in inside)
    ]


def violations(paths: list[Path], rule: Callable[[str], list[str]]) -> list[str]:
    """Everything `rule` finds, as "path:line: what"."""
    return [
        f"{path.relative_to(ROOT)}:{found}"
        for path in paths
        for found in rule(path.read_text(encoding="utf-8"))
    ]


# -- size and leftovers ---------------------------------------------------------------------------


def too_long(text: str) -> list[str]:
    lines = text.count("\n")
    return [f"{lines}: lines, at most {MOST_LINES}"] if lines > MOST_LINES else []


def _remarks(text: str) -> Iterator[tuple[int, str]]:
    """Comments and docstrings of Python, with their lines."""
    for token in tokenize.generate_tokens(StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0].lineno if node.body else 1
            yield first, ast.get_docstring(node, clean=False) or ""


LEFTOVER = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\s*\(?#\d+)")


def leftovers(text: str) -> list[str]:
    if not LEFTOVER.search(text):
        return []  # most files need no tokens
    return [f"{line}: leftover without #issue" for line, r in _remarks(text) if LEFTOVER.search(r)]


def leftovers_in_prose(text: str) -> list[str]:
    lines = enumerate(text.splitlines(), 1)
    return [f"{number}: leftover without #issue" for number, line in lines if LEFTOVER.search(line)]


def test_no_python_file_is_too_long() -> None:
    paths = [path for path in tracked() if path.suffix == ".py"]
    assert violations(paths, too_long) == []
    assert too_long("x\n" * (MOST_LINES + 1)) != []


def test_nothing_is_left_to_do_without_an_issue() -> None:
    code = [path for path in tracked() if path.suffix == ".py"]
    prose = [path for path in tracked() if path.suffix in (".md", ".toml") or not path.suffix]
    assert violations(code, leftovers) + violations(prose, leftovers_in_prose) == []
    assert leftovers("x = 1  # TODO later") == ["1: leftover without #issue"]
    assert leftovers('def f():\n    """FIXME."""') == ["2: leftover without #issue"]
    assert leftovers("x = 'TODO'  # TODO(#12) and FIXME #3") == []
    assert leftovers_in_prose("a\nTODO: b") == ["2: leftover without #issue"]


# -- packaging ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def defines_pack(text: str) -> bool:
    return "PACK" in _constants(ast.parse(text))


def test_every_folder_of_code_is_type_checked(project: dict[str, Any]) -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in tracked() if path.suffix == ".py"}
    assert folders - set(project["tool"]["mypy"]["files"]) == set()


def test_every_pack_in_the_tree_is_an_entry_point(project: dict[str, Any]) -> None:
    packs = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")
        for path in python_files("rules", "backends")
        if defines_pack(path.read_text(encoding="utf-8"))
    }
    listed = project["project"].get("entry-points", {}).get("axe_eq.packs", {})
    assert {f"{module}:PACK" for module in packs} == set(listed.values())
    assert defines_pack("PACK: Pack = Pack('x')")
    assert not defines_pack("def f():\n  PACK = 1")


def test_the_installed_entry_points_are_those_of_pyproject(project: dict[str, Any]) -> None:
    installed = importlib.metadata.distribution("axe-eq").entry_points.select(group="axe_eq.packs")
    listed = project["project"].get("entry-points", {}).get("axe_eq.packs", {})
    assert {entry.name: entry.value for entry in installed} == listed, "pip install -e . again"


# -- only extraction chooses ----------------------------------------------------------------------


def operator_names() -> set[str]:
    """Every operator declared once all modules of axe_eq.program are loaded."""
    for module in pkgutil.walk_packages(axe_eq.program.__path__, "axe_eq.program."):
        importlib.import_module(module.name)
    tables = [table for table in vars(ops).values() if isinstance(table, ops.Table)]
    return {name for table in tables for name in table.names() if name.isidentifier()}


def _strings(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """The module's assignments of one value to one name."""
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and node.value:
            node = ast.Assign([node.target], node.value)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants[node.targets[0].id] = node.value
    return constants


def _selected_by(node: ast.AST) -> list[ast.expr]:
    """Expressions whose strings decide what `node` does: compared with, or looked up in."""
    match node:
        case ast.Compare(left=left, comparators=others):
            # A call or an element is compared by what it returns, not by the strings inside it.
            return [x for x in (left, *others) if not isinstance(x, ast.Call | ast.Subscript)]
        case ast.MatchValue(value=value):
            return [value]
        case ast.Call(func=ast.Attribute(attr="startswith" | "endswith"), args=args):
            return args
        case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, *_]):
            return [] if isinstance(key, ast.Constant) else [table]
        case ast.Subscript(value=table, slice=key):
            return [] if isinstance(key, ast.Constant) else [table]
    return []


def _words(node: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """Strings in an expression, those of module constants and keys of tables included."""
    if isinstance(node, ast.Name) and node.id in constants:
        node = constants[node.id]
    parts = [key for key in node.keys if key] if isinstance(node, ast.Dict) else [node]
    for part in parts:
        yield from _strings(part)


def name_tests(text: str, names: set[str]) -> list[str]:
    tree = ast.parse(text)
    constants = _constants(tree)
    return [
        f"{getattr(node, 'lineno', 0)}: decides by operator name {word!r}"
        for node in ast.walk(tree)
        for selector in _selected_by(node)
        for word in _words(selector, constants)
        if word.partition(" ")[0] in names
    ]


def test_no_code_outside_packs_tests_an_operator_s_name() -> None:
    names, found = operator_names(), []
    for path in python_files("axe_eq"):
        place = path.relative_to(ROOT).as_posix()
        if place not in NAMES_OPERATORS:
            others = OTHER_WORDS.get(place, set())
            found += violations([path], partial(name_tests, names=names - others))
    assert found == []


def test_every_exception_from_the_rule_on_names_is_needed() -> None:
    for place, words in OTHER_WORDS.items():
        if (ROOT / place).exists():
            found = name_tests((ROOT / place).read_text(encoding="utf-8"), words)
            assert {repr(word) for word in words} == {f.rpartition(" ")[2] for f in found}


@pytest.mark.parametrize(
    "code",
    [
        "if op.name == 'matmul': pass",
        "if 'matmul' != op.name: pass",
        "ok = op.name in ('x', 'matmul')",
        "ok = op.name not in {'matmul'}",
        "ok = op.text == 'matmul 3'",
        "match op.name:\n  case 'x' | 'matmul': pass",
        "match op:\n  case Op(name='matmul'): pass",
        "ok = op.name.startswith('matmul')",
        "PRODUCTS = frozenset({'matmul'})\nok = op.name in PRODUCTS",
        "TABLE: dict[str, int] = {'matmul': 3}\nn = TABLE[op.name]",
        "n = {'matmul': 3}.get(op.name, 0)",
    ],
)
def test_every_way_to_test_an_operator_s_name_is_seen(code: str) -> None:
    assert len(name_tests(code, {"matmul"})) == 1


@pytest.mark.parametrize(
    "code", ["f('matmul')", "x == 'other'", "t['matmul'] == 3", "{'a': 'matmul'}[b]"]
)
def test_saying_an_operator_s_name_is_not_testing_it(code: str) -> None:
    assert name_tests(code, {"matmul"}) == []


# -- stages that apply no law ---------------------------------------------------------------------

LAW_MODULE = re.compile(r"^axe_eq_(rules|backends)\b|^axe_eq\.(rule\.laws?|packs?)\b|\.laws?$")


def law_imports(text: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [f"{node.lineno}: imports {name}" for name in modules if LAW_MODULE.search(name)]
    return found


def test_tracing_and_encoding_know_no_law() -> None:
    words = ("trace", "encode", "decode")
    paths = [path for path in python_files("axe_eq") if path.stem.startswith(words)]
    assert violations(paths, law_imports) == []


@pytest.mark.parametrize(
    "code",
    [
        "import axe_eq_rules.layout",
        "from axe_eq_rules import layout",
        "from axe_eq.rule.law import Law",
        "from axe_eq.rule import law",
        "from axe_eq import packs",
    ],
)
def test_every_way_to_import_a_law_is_seen(code: str) -> None:
    assert len(law_imports(code)) == 1
    assert law_imports("from axe_eq.rule.term import Term\nimport numpy.lawful") == []


# -- emitters -------------------------------------------------------------------------------------


def _docstrings(tree: ast.AST) -> set[int]:
    """Identities of the constants that are docstrings."""
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    firsts = [node.body[0] for node in ast.walk(tree) if isinstance(node, scopes) and node.body]
    return {id(first.value) for first in firsts if isinstance(first, ast.Expr)}


def long_literals(text: str) -> list[str]:
    """String literals, f-strings included, that are long enough to hold a kernel."""
    tree = ast.parse(text)
    docs = _docstrings(tree)
    return [
        f"{node.lineno}: a string of {len(literal)} characters, at most {MOST_LITERAL}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docs
        if len(literal := "".join(_strings(node))) > MOST_LITERAL
    ]


def test_emitters_hold_no_whole_kernel() -> None:
    emitters = [
        path
        for path in python_files("backends", "axe_eq")
        if path.stem == "emit" or "emit" in path.relative_to(ROOT).parts
    ]
    assert violations(emitters, long_literals) == []


def test_a_kernel_in_a_literal_is_seen() -> None:
    assert len(long_literals(f"x = '{'a' * 401}'")) == 1
    assert len(long_literals(f"x = '{'a' * 201}' '{'b' * 200}'")) == 1
    assert len(long_literals(f"x = f'{'a' * 201}{{n}}{'b' * 200}'")) == 1
    assert long_literals(f"def f():\n  '''{'a' * 401}'''\n  return '{'a' * 400}'") == []


# -- documents ------------------------------------------------------------------------------------

LINK = re.compile(r"\]\(<?(?!https?://|mailto:|#)([^)#>\s]+)")


def broken_links(document: Path, text: str) -> list[str]:
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"(`+)[^`\n]+\1", "", text)  # a law may look like a link
    return [link for link in LINK.findall(text) if not (document.parent / link).exists()]


def test_every_link_in_the_documents_leads_somewhere() -> None:
    documents = [path for path in tracked() if path.suffix == ".md"]
    assert ROOT / "README.md" in documents
    broken = {str(p.relative_to(ROOT)): broken_links(p, p.read_text("utf-8")) for p in documents}
    assert {name: links for name, links in broken.items() if links} == {}


def test_a_broken_link_is_seen() -> None:
    text = "[a](docs/gone.md#x) [b](README.md#start) [c](https://x.org/y) `[d](code.md)` [e](#f)"
    assert broken_links(ROOT / "README.md", text) == ["docs/gone.md"]


MACHINE_PATH = re.compile(
    rb"(?<![\w.~$}/-])/(?:work|root|home|Users|mnt|opt|tmp|venv)/\w[^\s'\"`]*"
)


def test_no_file_names_a_place_on_somebody_s_machine() -> None:
    found = {
        str(path.relative_to(ROOT)): match.group().decode(errors="replace")
        for path in tracked()
        if (match := MACHINE_PATH.search(path.read_bytes()))
    }
    assert found == {}


@pytest.mark.parametrize("folder", ["work", "home", "root", "tmp", "Users"])
def test_a_machine_s_path_is_seen(folder: str) -> None:
    assert MACHINE_PATH.search(f"see '/{folder}/me/file'".encode())
    assert not MACHINE_PATH.search(f"https://example.org/{folder}/me and a/{folder}/b".encode())


# -- circles --------------------------------------------------------------------------------------


def imports(name: str, text: str, names: set[str]) -> Iterator[str]:
    """Modules that a module imports when it runs, those inside functions included."""
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        blocks = ast.stmt | ast.excepthandler | ast.match_case  # what holds statements
        waiting.extend(n for n in ast.iter_child_nodes(node) if isinstance(n, blocks))
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found = inner if inner in names else node.module
                if found in names and found != name:
                    yield found


def circles(texts: dict[str, str]) -> list[set[str]]:
    """Modules that import each other, where they are more than two."""
    names = set(texts)
    graph = nx.DiGraph(
        (name, other) for name, text in texts.items() for other in imports(name, text, names)
    )
    return [part for part in nx.strongly_connected_components(graph) if len(part) > 2]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] in ("rules", "backends") else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_more_than_two_files_import_each_other() -> None:
    files = python_files("axe_eq", "rules", "backends")
    assert circles({module_name(path): path.read_text("utf-8") for path in files}) == []


def test_a_circle_is_seen() -> None:
    texts = {"a": "from b import x", "b": "def f():\n    from c import y", "c": "from a import z"}
    assert circles(texts) == [{"a", "b", "c"}]
    typing = "if TYPE_CHECKING:\n    from a import z"
    assert circles({**texts, "c": typing}) == []
