"""Finds the places of a module where a usual mistake can be planted."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOCKS = re.compile(r"lock|guard|condition|mutex", re.IGNORECASE)
_UNITS = ("_us", "_s", "_count")
_QUIET = re.compile(r"super\(\)|(log|logger|warnings|gc)\b")
"""Calls whose effects are not part of any promise."""

_IS_SQL = re.compile(r"\b(SELECT|UPDATE|DELETE|INSERT|WHERE|ORDER BY|JOIN|AND|VALUES)\b")
_TERM = (
    r"([\w.@]+ (?:=|<=|>=|<>|<|>|IS NOT|IS) [\w.%:@+ ]+?)"
    r"(?= AND | OR | FOR | ORDER | LIMIT | RETURNING | GROUP |[\")])"
)
_SQL = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r" FOR (?:NO KEY )?UPDATE(?: OF \w+)?(?: SKIP LOCKED)?", ""),
        (r" FOR (?:KEY )?SHARE(?: OF \w+)?", ""),
        (r" SKIP LOCKED", ""),
        (r"(?<= )<=(?= )", "<"),
        (r"(?<= )<(?= )", "<="),
        (r"(?<= )>=(?= )", ">"),
        (r"(?<= )>(?= )", ">="),
        (r"\bDESC\b", "ASC"),
        (r"ORDER BY ([\w.]+)(?! ASC| DESC)(?=[ ,\")])", r"ORDER BY \1 DESC"),
        (r"\bgreatest\(", "least("),
        (r"\bleast\(", "greatest("),
        (r"\bmin\(", "max("),
        (r"\bmax\(", "min("),
        (r" AND " + _TERM, r" AND (\1 OR TRUE)"),
        (r" WHERE " + _TERM, r" WHERE (\1 OR TRUE)"),
        (r" \+ 1\b", " + 0"),
        (r"\bNOT (?=EXISTS|IN\b)", ""),
        (r"\bIS NOT NULL", "IS NULL"),
        (r"\bIS NULL", "IS NOT NULL"),
        (r" ON CONFLICT DO NOTHING", ""),
        (r"\bDISTINCT ", ""),
    ]
]


class Fault(NamedTuple):
    """A change of one place in a module.

    Attributes:
      file: The module's file, from the package on.
      where: The function or constant that holds the place.
      old: The text of the place, without line breaks.
      new: The text that the change makes of it.
      number: Its number among those of the file with the same texts.
      start: First byte of the replaced text.
      end: First byte after it.
      text: The replacement.
    """

    file: str
    where: str
    old: str
    new: str
    number: int
    start: int
    end: int
    text: str

    @property
    def key(self) -> str:
        """Return a text that names the fault, and stays when lines move."""
        number = f" (#{self.number})" if self.number > 1 else ""
        return f"{self.file} {self.where}: {self.old} -> {self.new}{number}"

    def applied_to(self, source: bytes) -> bytes:
        """Return the source with the fault."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def faults_of(file: str, source: bytes) -> list[Fault]:
    """Return the faults that can be planted in a module, or in a file of SQL."""
    if file.endswith(".sql"):
        return list(_faults_of_sql(file, source))
    finder = _Finder(file, source)
    finder.visit(ast.parse(source))
    return finder.faults


def _faults_of_sql(file: str, source: bytes) -> Iterator[Fault]:
    text = re.sub(r"--[^\n]*|\n", lambda gap: " " * len(gap[0]), source.decode("ascii"))
    seen: Counter[tuple[str, str]] = Counter()
    for pattern, replacement in _SQL:
        for match in pattern.finditer(text):
            changed = re.sub(" +OR TRUE", " OR TRUE", match.expand(replacement))
            fault = Fault(file, "module", "", "", 1, *match.span(), changed)
            old, new = _around_change(_one_line(source), _one_line(fault.applied_to(source)))
            seen[old, new] += 1
            yield fault._replace(old=old, new=new, number=seen[old, new])


class _Finder(ast.NodeVisitor):
    """Collects faults."""

    def __init__(self, file: str, source: bytes) -> None:
        self.faults: list[Fault] = []
        self._file = file
        self._source = source
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._scope: list[str] = []
        self._functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self._seen: Counter[tuple[str, str, str]] = Counter()
        self._sql = "postgres" in file

    # Places

    def _span(self, node: ast.AST) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return start, end

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self._source[start:end].decode()

    def _add(self, shown: ast.AST, start: int, end: int, text: str) -> None:
        """Add the replacement of a place; the key shows the node around it."""
        first, last = self._span(shown)
        old = _one_line(self._source[first:last])
        new = _one_line(self._source[first:start] + text.encode() + self._source[end:last])
        old, new = _around_change(old, new)
        where = ".".join(self._scope) or "module"
        self._seen[where, old, new] += 1
        number = self._seen[where, old, new]
        self.faults.append(Fault(self._file, where, old, new, number, start, end, text))

    def _replace(self, node: ast.AST, text: str) -> None:
        self._add(node, *self._span(node), text)

    # Statements

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """Visit the body of a class, but for protocols."""
        if any("Protocol" in self._text(base) for base in node.bases):
            return
        self._scope.append(node.name)
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._change_default(statement.value)
            else:
                self.visit(statement)
        self._scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Visit the defaults and the body of a function."""
        if node.name in {"__repr__", "__str__"}:
            return
        self._scope.append(node.name)
        self._functions.append(node)
        defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        for default in defaults:
            self._change_default(default)
        for statement in node.body:
            self.visit(statement)
        self._functions.pop()
        self._scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  (the name that `ast` wants)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Drop a call whose result is not used."""
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if not isinstance(value, ast.Call):
            if not isinstance(value, ast.Constant):
                self.visit(node.value)
        elif not _QUIET.match(self._text(value.func)):
            self._replace(node, "pass")
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Drop an assignment to an attribute or an item."""
        self._drop_update(node, node.targets[0])
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Drop an update."""
        if self._functions:
            self._replace(node, "pass")
        self.visit(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Visit the value only."""
        self._drop_update(node, node.target)
        if node.value is not None:
            self.visit(node.value)

    def _drop_update(self, node: ast.stmt, target: ast.expr) -> None:
        is_update = isinstance(target, ast.Attribute | ast.Subscript)
        if is_update and self._functions and self._functions[-1].name != "__init__":
            self._replace(node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        """Drop a deletion of items."""
        if not all(isinstance(target, ast.Name) for target in node.targets):
            self._replace(node, "pass")

    def visit_With(self, node: ast.With) -> None:
        """Drop a lock."""
        item = node.items[0]
        is_lock = bool(_LOCKS.search(self._text(item.context_expr)))
        if len(node.items) == 1 and item.optional_vars is None and is_lock:
            start, end = self._span(item.context_expr)
            self._add(item.context_expr, start, end, "__import__('contextlib').nullcontext()")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        """Return the other truth value."""
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
            self._replace(node, f"return {not node.value.value}")
        elif node.value is not None:
            self.visit(node.value)

    def visit_Continue(self, node: ast.Continue) -> None:
        """Leave the loop."""
        self._replace(node, "break")

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave messages of errors as they are."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave assertions as they are."""

    def visit_If(self, node: ast.If) -> None:
        """Negate the condition."""
        self._negate(node.test)
        self.generic_visit(node)

    # Expressions

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Negate the condition."""
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        """Drop a filter."""
        for condition in node.ifs:
            self._replace(condition, "True")
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare) and not (
            isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        ):
            self._replace(test, f"not ({self._text(test)})")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop a negation."""
        if isinstance(node.op, ast.Not):
            self._replace(node, f"bool({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Change each comparison."""
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            old, new = _COMPARISONS[type(operator)]
            self._change_between(node, left, right, old, new)
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Change each `and` and `or`."""
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._change_between(node, left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Forget a step of one; add what is to be subtracted, if it has a unit."""
        if isinstance(node.op, ast.Add | ast.Sub):
            if isinstance(node.right, ast.Constant) and node.right.value == 1:
                self._add(node, *self._span(node.right), "0")
            elif _unit_of(node.left) or _unit_of(node.right):
                old, new = ("+", "-") if isinstance(node.op, ast.Add) else ("-", "+")
                self._change_between(node, node.left, node.right, old, new)
        self.generic_visit(node)

    def _change_between(
        self, node: ast.AST, left: ast.AST, right: ast.AST, old: str, new: str
    ) -> None:
        gap = self._span(left)[1]
        between = self._source[gap : self._span(right)[0]].decode()
        pattern = (
            rf"\b{old}\b".replace(" ", r"\s+") if old.isalpha() or " " in old else re.escape(old)
        )
        match = re.search(pattern, between)
        assert match, f"{old} in {self._text(node)}"
        self._add(node, gap + match.start(), gap + match.end(), new)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        """Move the bounds of a slice by one."""
        if isinstance(node.slice, ast.Slice):
            for bound in filter(None, (node.slice.lower, node.slice.upper)):
                self._add(node, *self._span(bound), f"{self._text(bound)} + 1")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Change minimum and maximum; swap arguments of one kind."""
        if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
            self._add(node, *self._span(node.func), _CALLS[node.func.id])
        else:
            for first, second in zip(node.args, node.args[1:], strict=False):
                self._swap(node, first, second)
        self.generic_visit(node)

    def _swap(self, node: ast.Call, first: ast.expr, second: ast.expr) -> None:
        kind = self._kind_of(first)
        if kind and kind == self._kind_of(second) and self._text(first) != self._text(second):
            (start, end), (next_start, next_end) = self._span(first), self._span(second)
            between = self._source[end:next_start].decode()
            self._add(node, start, next_end, f"{self._text(second)}{between}{self._text(first)}")

    def _kind_of(self, value: ast.expr) -> str:
        if unit := _unit_of(value):
            return unit
        if isinstance(value, ast.Name) and self._functions:
            arguments = self._functions[-1].args
            for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
                if argument.arg == value.id and argument.annotation is not None:
                    return self._text(argument.annotation)
        return ""

    def _change_default(self, value: ast.expr) -> None:
        if isinstance(value, ast.Constant) and isinstance(value.value, int):
            number = value.value
            self._replace(value, str(not number if isinstance(number, bool) else number + 1))

    # Statements of SQL

    def visit_Constant(self, node: ast.Constant) -> None:
        """Change statements of SQL."""
        if isinstance(node.value, str):
            self._change_sql(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Change statements of SQL."""
        self._change_sql(node)

    def _change_sql(self, node: ast.expr) -> None:
        text = self._text(node)
        if not self._sql or not _IS_SQL.search(text):
            return
        start = self._span(node)[0]
        for pattern, replacement in _SQL:
            for match in pattern.finditer(text):
                first = start + len(text[: match.start()].encode())
                end = start + len(text[: match.end()].encode())
                self._add(node, first, end, match.expand(replacement))


def _one_line(text: bytes) -> str:
    return re.sub(r"\s+", " ", text.decode())


def _around_change(old: str, new: str, margin: int = 40) -> tuple[str, str]:
    """Cut the parts of long texts that are far from where they differ."""
    shorter = min(len(old), len(new))
    same = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    rest = next((n for n in range(shorter - same) if old[-1 - n] != new[-1 - n]), shorter - same)
    start = max(0, same - margin)
    return tuple(  # type: ignore[return-value]
        text[start : min(len(text), max(len(text) - rest, same) + margin)] for text in (old, new)
    )


def _unit_of(value: ast.expr) -> str:
    name = str(getattr(value, "attr", None) or getattr(value, "id", ""))
    return next((unit for unit in _UNITS if name.endswith(unit)), "")
