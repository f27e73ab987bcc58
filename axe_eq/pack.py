"""Packs: one registration of operators, laws, schedules, targets, instructions and emitters.

Packs are found by entry points of the group ``axe_eq.packs``, those of this distribution too.
Loading a pack imports it, which declares its operators. Its laws take part in a search only where
the pack is asked for. A pack whose laws hold on reals alone is marked so.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points, packages_distributions
from operator import attrgetter
from threading import RLock
from typing import Any

from axe_eq.debug import switches
from axe_eq.errors import AxeError, PackError, cause, defined_at, missing_package, raised_at, said
from axe_eq.kernel.cells import declare_spelling, forget_spellings
from axe_eq.kernel.families import RowFamily, declare_row_family
from axe_eq.kernel.monoids import Make, declare_parts, forget_parts
from axe_eq.program.ops import CELLS, MONOIDS, SELECTORS, Cell, Monoid, Selector, Table
from axe_eq.rule.law import Law
from axe_eq.rule.law import law as make_law
from axe_eq.target import Target

GROUP = "axe_eq.packs"
ALIKE = 0.75  # of the letters of a name, so that another is suggested for it


@dataclass(eq=False)
class Pack:
    """One registration; any subset of its parts may be empty.

    >>> pack = axe.Pack("mine", version="1")
    >>> pack.name
    'mine'

    Attributes:
        name: how packs are named on the command line and in law keys ("pack/law").
        version: version of the pack; certificates carry it.
        exact: its laws hold bit for bit; False marks a real pack (true on reals only).
        schedules: ways to implement cones, see `axe_eq.extract.price.pricer`.
        targets: machines, by name.
        emitters: target family -> emitter.
        runners: target family -> runner.
        interpreters: target family -> what runs its lowered kernels without the machine, see
            `axe_eq.check.kernelcheck.Interpreter`.
        transports: name -> what carries a mesh plan's messages between processes, see
            `axe_eq.mesh.transport.Transport`.
        spelled: target family -> the first cell that it spells for it, and where.
        row_families: (target family, name) -> how instruction rows of that name are used.
    """

    name: str
    version: str = "1"
    exact: bool = True
    summary: str = ""
    operators: list[str] = field(default_factory=list)
    schedules: list[Any] = field(default_factory=list)
    targets: dict[str, Target] = field(default_factory=dict)
    emitters: dict[str, Any] = field(default_factory=dict)
    runners: dict[str, Any] = field(default_factory=dict)
    interpreters: dict[str, Any] = field(default_factory=dict)
    transports: dict[str, Any] = field(default_factory=dict)
    spelled: dict[str, tuple[str, str]] = field(default_factory=dict)
    row_families: dict[tuple[str, str], RowFamily] = field(default_factory=dict)
    _laws: dict[str, Law] = field(default_factory=dict, init=False, repr=False)
    _proofs: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        # Keys of laws are "pack/law"; certificates carry names and versions as texts.
        if not re.fullmatch(r"[\w.-]+", str(self.name)):
            raise PackError(f"pack {self.name!r}", "has no usable name", "letters, digits, _ . -")
        if not isinstance(self.version, str):
            raise PackError(f"pack {self.name!r}", f"has version {self.version!r}", "a text")
        for schedule in self.schedules:
            self._name_schedule(schedule)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process has it too: it goes by name."""
        return by_reference, (reference(self),)

    def __deepcopy__(self, memo: object) -> Pack:
        return self

    def law(
        self, *, source: str = "", **flags: Any
    ) -> Callable[[Callable[..., tuple[Any, ...]]], Law]:
        """Decorator: a law of this pack; flags as in `axe_eq.rule.law.Law`.

        A law of an exact pack is exact unless its flags say otherwise; one of a real pack never is.

        Raises:
            PackError: the docstring states no equality, there is no source, or the name is taken.
        """

        def wrap(fn: Callable[..., tuple[Any, ...]]) -> Law:
            try:
                exact = bool(flags.pop("exact", True)) and self.exact
                made = make_law(source=source, exact=exact, **flags)(fn)
            except PackError as error:
                error.thing = f"pack {self.name!r}, {error.thing}"
                raise
            if self._laws.setdefault(made.name, made) is not made:
                raise PackError(
                    f"law '{self.name}/{made.name}'", "is declared twice", "one declaration"
                )
            return made

        return wrap

    def proof_laws(self, *places: str) -> None:
        """Name functions that declare laws which only proofs use, called when laws are asked for.

        ``PACK.proof_laws("gates_proofs:declare")``: ``declare(PACK)`` declares laws that are marked
        ``search=False`` or ``normal=True``. A search for a schedule uses none of these, so that it
        imports no such module.

        Args:
            places: "module:name" of each; the name may have parts, "LAWS.add_to".
        """
        self._proofs += places

    @property
    def laws(self) -> Mapping[str, Law]:
        """Name -> law, of all of them.

        Raises:
            PackError: those that are only for proofs do not load, or one is for searches too.
        """
        with _declaring:
            while self._proofs:
                before = dict(self._laws)
                try:
                    self._declare_proofs(self._proofs[0])
                except BaseException:
                    self._laws = before  # the next one who asks gets the same error
                    raise
                self._proofs.pop(0)
        return self._laws

    def _declare_proofs(self, place: str) -> None:
        known = set(self._laws)
        try:
            _imported(place, "")(self)
        except (AxeError, MemoryError):
            raise
        except Exception as error:  # packs are somebody else's code
            raise PackError(
                f"pack {self.name!r}, proof laws {place!r}", f"do not load ({cause(error)})",
                "an importable function of the pack", at=raised_at(error),
            ) from error  # fmt: skip
        for name in self._laws.keys() - known:
            if self._laws[name].searches:
                raise PackError(
                    f"law '{self.name}/{name}' of proof laws {place!r}", "is for searches too",
                    "search=False, or its declaration where the pack itself is declared",
                )  # fmt: skip

    @property
    def search_laws(self) -> Mapping[str, Law]:
        """Name -> law, of those that searches for schedules use; imports nothing."""
        return {name: law for name, law in self._laws.items() if law.searches}

    def cell(self, cell: Cell) -> Cell:
        """Declare a cell."""
        self._declares(f"cell {cell.name}")
        return CELLS.add(cell)

    def spelling(self, family: str, cell: str, **texts: str) -> None:
        """Declare how a cell is written on a target family: kind of number -> text.

        ``PACK.spelling("cuda", "mysquare", f32="({0} * {0})")``: see `kernel.cells`.

        Raises:
            PackError: no such cell, kind of number or operand, or it is spelled otherwise already.
        """
        caller = sys._getframe(1)
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        try:
            declare_spelling(family, cell, texts)
        except PackError as error:
            error.thing, error.at = f"pack {self.name!r}, {error.thing}", place
            raise
        self.spelled.setdefault(family, (cell, place))

    def monoid(self, monoid: Monoid, parts: Make | None = None) -> Monoid:
        """Declare a monoid.

        Args:
            monoid: it.
            parts: for one whose state is several arrays, how kernels compute it: a function from
                the dtypes of its operands to `axe_eq.kernel.monoids.Parts`.

        Raises:
            PackError: its name is taken, or it merges or lifts by what is no such cell.
        """
        for cell, arity in ((monoid.merges, 2), (monoid.lifts, 1)):
            if cell and not _is_cell(cell, arity):
                wrong = f"is of {cell!r}, which is no declared cell of {arity} operands"
                raise PackError(f"pack {self.name!r}, monoid {monoid.name!r}", wrong, "one")
        self._declares(f"monoid {monoid.name}")
        if parts is not None:
            declare_parts(monoid.name, parts)
        return MONOIDS.add(monoid)

    def selector(self, selector: Selector) -> Selector:
        """Declare a selector."""
        self._declares(f"selector {selector.name}")
        return SELECTORS.add(selector)

    def _declares(self, operator: str) -> None:
        before = _owners.get(operator)
        if before is not None and before is not self and before.name == self.name:
            _forget(operator)  # the module of the pack runs again
        self.operators.append(operator)
        _owners[operator] = self

    def schedule(self, schedule: Any) -> Any:
        """Register a schedule (also usable as a decorator of a class or function).

        Raises:
            PackError: another pack has a schedule of that name, or it lacks a part (`name`,
                `families`, `refuse`, `price`).
        """
        self._name_schedule(schedule)
        self.schedules.append(schedule)
        return schedule

    def _name_schedule(self, schedule: Any) -> None:
        for part, (fits, expected) in _SCHEDULE_PARTS.items():
            if not fits(getattr(schedule, part, None)):
                has = (
                    f"has {part}={said(getattr(schedule, part))}"
                    if hasattr(schedule, part)
                    else f"has no {part}"
                )
                called = said(getattr(schedule, "name", schedule))
                raise PackError(f"schedule {called} of pack {self.name!r}", has, expected)
        owner, _ = _schedules.get(schedule.name, (self.name, None))
        if owner != self.name:
            raise PackError(
                f"schedule {schedule.name!r} of pack {self.name!r}",
                f"has the name of one of pack {owner!r}", "a name of its own",
            )  # fmt: skip
        _schedules[schedule.name] = self.name, schedule

    def row_family(self, target_family: str, family: RowFamily) -> RowFamily:
        """Register how instruction rows of a family are used on targets of a target family.

        ``PACK.row_family("cuda", RowFamily("relu", derive, meanings, texts))``: rows named
        ``relu.f32`` of a target are planned by it.

        Raises:
            PackError: it lacks a part, or takes the name of another pack's family or call.
        """
        try:
            declare_row_family(self.name, target_family, family)
        except PackError as error:
            error.thing = f"pack {self.name!r}, {error.thing}"
            raise
        self.row_families[target_family, family.name] = family
        return family

    def target(self, target: Target) -> Target:
        """Register a machine."""
        self.targets[target.name] = target
        return target


# Two threads that ask for laws must not both declare them; a law's module may ask in its turn.
_declaring = RLock()


def _is_cell(name: str, arity: int) -> bool:
    return name in CELLS and CELLS[name].arity in (None, arity) and not CELLS[name].n_params


def _are_families(given: Any) -> bool:
    texts = isinstance(given, list | tuple | set | frozenset) and all(
        isinstance(family, str) for family in given
    )
    return texts and bool(given)


# What a schedule has: whether the part fits, and what is expected of it.
_SCHEDULE_PARTS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda given: isinstance(given, str) and bool(given), "a text, how it is called"),
    "families": (_are_families, 'a tuple of target families, such as ("cuda",)'),
    "refuse": (callable, "a method refuse(summary, target)"),
    "price": (callable, "a method price(summary, target)"),
}

# Every loaded pack's operators, as `Pack.operators` calls them.
_owners: dict[str, Pack] = {}


def declaring(operators: Iterable[str]) -> list[Pack]:
    """The packs that declared operators ("cell gap", "monoid max"); those of axe_eq itself none."""
    return [pack for name in sorted({*operators}) if (pack := _owners.get(name)) is not None]


def _forget(operator: str) -> None:
    """Take an operator back, with its spellings and parts, and all that was remembered of it."""
    kind, name = operator.split(" ", 1)
    tables: tuple[Table[Any], ...] = (CELLS, MONOIDS, SELECTORS)
    next(table for table in tables if table.kind == kind).remove(name)
    forget_spellings(name) if kind == "cell" else forget_parts(name)
    roots = {"axe_eq", *(point.module.partition(".")[0] for point in entry_points(group=GROUP))}
    modules = [m for n, m in list(sys.modules.items()) if n.partition(".")[0] in roots]
    for known in [v for m in modules for v in vars(m).values() if type(v) is type(installed)]:
        known.cache_clear()


# Every loaded pack's schedules by name: steps of schedule graphs name theirs.
_schedules: dict[str, tuple[str, Any]] = {}


def schedule_named(name: str) -> Any:
    """The schedule called `name` of any pack that is loaded; None where there is none."""
    return _schedules.get(name, ("", None))[1]


def title_of_schedule(name: str) -> str:
    """How errors call a schedule: with the pack that registered it, where one did."""
    owner = _schedules.get(name, ("", None))[0]
    return f"schedule {name!r} of pack {owner!r}" if owner else f"schedule {name!r}"


def ask_schedule(
    schedule: Any, what: str, *given: Any, expected: str, wrong: Callable[[Any], str | None]
) -> Any:
    """The answer of a schedule's method. It is checked, for a pack is somebody else's code.

    Args:
        schedule: of some pack.
        what: the method.
        given: its arguments.
        expected: what it is to answer, for errors.
        wrong: says what is wrong with an answer; None where nothing is.

    Raises:
        PackError: the method fails, or gives another answer; names the pack, the part and the line.
        AxeError: what the method itself raises of these.
    """
    try:
        answer = getattr(schedule, what)(*given)
    except AxeError:
        raise
    except Exception as error:  # of any kind
        raise PackError(
            title_of_schedule(schedule.name), f"its {what} fails ({cause(error)})", expected,
            at=raised_at(error),
        ) from error  # fmt: skip
    if (problem := wrong(answer)) is not None:
        place = getattr(type(schedule), what, None)
        raise PackError(
            title_of_schedule(schedule.name),
            f"its {what} {problem}",
            expected,
            at=defined_at(place),
        )
    return answer


class Later:
    """An object of a module that is imported when the object is first used.

    Packs are loaded whatever a program is for; most programs use no transport, no runner and none
    of the machines of other families.

    >>> Later("math:sqrt")(4.0)
    2.0
    >>> Later("string:digits").upper()
    '0123456789'

    Args:
        place: "module:name" of it, or of a table that has it.
        entry: its name in that table; "" for the object itself.
    """

    def __init__(self, place: str, entry: str = "") -> None:
        self._place = place, entry

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # asked by who copies or inspects it
            raise AttributeError(name)
        return getattr(self.loaded, name)

    @property
    def loaded(self) -> Any:
        """The object itself."""
        return _imported(*self._place)

    def __call__(self, *given: Any, **named: Any) -> Any:
        """What it answers, where it is a function."""
        return self.loaded(*given, **named)


@cache
def _imported(place: str, entry: str) -> Any:
    module, _, name = place.partition(":")
    try:
        found = attrgetter(name)(import_module(module))
    except ModuleNotFoundError as error:
        owner = module.partition(".")[0]
        of = packages_distributions().get(owner, [owner])[0]
        raise missing_package(error, f"module {module!r}", owner, of) or error from None
    return found[entry] if entry else found


@cache
def installed() -> Mapping[str, Pack]:
    """Every installed pack, by name, in the order of names.

    Raises:
        PackError: a pack does not load, or two have one name.
    """
    packs: dict[str, Pack] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: p.name):
        pack = _load(point)
        if packs.setdefault(pack.name, pack) is not pack:
            raise PackError(
                f"pack {pack.name!r}", "is installed twice", "one distribution per name"
            )
    return packs


def _load(point: Any) -> Pack:
    place = f"entry point {point.name} = {point.value}"
    try:
        pack = point.load()
    except (PackError, MemoryError):
        raise
    except Exception as error:
        missing = None
        if isinstance(error, ModuleNotFoundError):
            owner = point.module.partition(".")[0]
            of = point.dist.name if point.dist else owner
            missing = missing_package(error, f"pack {point.name!r}", owner, of)
        if missing is not None:
            raise missing from error
        cause = f"{type(error).__name__}: {error}"
        raise PackError(
            f"pack {point.name!r}", f"does not load ({cause})", "an importable pack", at=place
        ) from error
    if not isinstance(pack, Pack):
        raise PackError(f"pack {point.name!r}", f"is a {type(pack).__name__}", "a Pack", at=place)
    return pack


def packs(names: Iterable[str | Pack] | None = None, without: Iterable[str] = ()) -> list[Pack]:
    """The packs to use: those named (all installed ones by default), less those in `without`.

    Raises:
        PackError: no such pack.
    """
    known = installed()
    chosen = list(switches().packs or known) if names is None else name_list("packs", names)
    left_out = [*name_list("without", without), *switches().without]
    found = [p if isinstance(p, Pack) else _named(p, known) for p in chosen]
    _check_without(left_out, found)
    _check_families(found, {*known.values(), *found})
    return [p for p in found if p.name not in left_out]


def _check_families(found: Iterable[Pack], every: Collection[Pack]) -> None:
    """Refuse spellings that are read by nobody.

    They are for a family that nobody has and that is nearly called like one, or whose emitter says
    that it reads none. Others are left alone: they are for machines whose pack is not installed
    here.
    """
    families = sorted({t.family for p in every for t in p.targets.values()})
    emitters = {f: e for p in every for f, e in p.emitters.items()}
    for pack in found:
        for family, (cell, place) in pack.spelled.items():
            if not getattr(emitters.get(family), "spells", True):
                raise PackError(
                    f"pack {pack.name!r}, spelling of cell {cell!r} for {family!r}",
                    "is read by nobody: this family writes instructions, no texts of cells",
                    "a law that says what the cell is in other cells", at=place,
                )  # fmt: skip
            near = get_close_matches(family, families, 3, ALIKE)
            if family not in families and near:
                raise PackError(
                    f"pack {pack.name!r}, spelling of cell {cell!r} for {family!r}",
                    "no target has such a family", f"one of {' '.join(families)}",
                    at=place, hint=" or ".join(near),
                )  # fmt: skip


def name_list(what: str, given: Iterable[Any]) -> list[Any]:
    """An argument that lists names, as a list.

    Raises:
        PackError: it is a text, which would be taken letter by letter, or nothing to go through.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise PackError(f"{what}={given!r}", "is no list", "a list of names")
    return list(given)


def _named(name: object, known: Mapping[str, Pack]) -> Pack:
    if not isinstance(name, str) or name not in known:
        raise PackError(
            f"pack {name!r}", "is not installed", f"one of {' '.join(known)}",
            hint="pip install -e FOLDER of a package with an entry point of axe_eq.packs",
        )  # fmt: skip
    return known[name]


def reference(pack: Pack) -> str:
    """Where another process finds a pack, as "module:attribute", which loads no other one.

    Raises:
        PackError: it is neither installed nor a module's attribute.
    """
    for point in entry_points(group=GROUP):
        if installed().get(pack.name) is pack is point.load():
            return point.value
    for name, module in list(sys.modules.items()):
        if name in ("__main__", "__mp_main__"):
            continue
        for attribute, value in list(getattr(module, "__dict__", {}).items()):
            if value is pack:
                return f"{name}:{attribute}"
    raise PackError(
        f"pack {pack.name!r}", "cannot be found by another process",
        "an installed pack, or one that is an attribute of an importable module",
    )  # fmt: skip


def by_reference(text: str) -> Pack:
    """The pack that `reference` described; importing its module loads it.

    Raises:
        PackError: no such pack.
    """
    module, _, attribute = text.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        raise PackError(
            f"pack {text!r}", f"does not load ({cause})", "an importable pack"
        ) from error
    if not isinstance(found, Pack):
        raise PackError(f"pack {text!r}", f"is a {type(found).__name__}", "a Pack")
    return found


def _check_without(dropped: Sequence[object], found: Sequence[Pack]) -> None:
    if not dropped:  # most programs: to know all names imports the laws of proofs
        return
    laws = {key for p in found for n in p.laws for key in (n, f"{p.name}/{n}")}
    known = laws | {p.name for p in found} | set(installed())
    for name in dropped:
        if not isinstance(name, str):
            raise PackError(f"without {name!r}", "is no name", "names of laws and packs")
        if name not in known:
            bare = {key.rpartition("/")[2] for key in known}
            near = get_close_matches(name.rpartition("/")[2], sorted(bare), 3, ALIKE)
            raise PackError(
                f"without {name!r}", "is neither a law nor a pack",
                "a name that 'axe packs list --json' lists", hint=" or ".join(near),
            )  # fmt: skip


def laws_of(
    chosen: Iterable[Pack],
    without: Iterable[str] = (),
    *,
    numerics: str = "real",
    search: bool = False,
) -> dict[str, Law]:
    """Laws of these packs by key "pack/law", less those named in `without` (by name or key).

    Under the numerics "exact" only those that hold bit for bit; of a `search` for a schedule only
    those that take part in it.
    """
    dropped = {*without, *switches().without}
    return {
        f"{pack.name}/{name}": law
        for pack in chosen
        for name, law in (pack.search_laws if search else pack.laws).items()
        if name not in dropped and f"{pack.name}/{name}" not in dropped
        if law.exact or numerics == "real"
    }
