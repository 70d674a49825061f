"""A small abstract interpreter: runs a script's statements with what is known of values, and records every call.

Both sides of a condition are run, unless the job decides it (one process, one host, no GPU); what they assign is
joined. A loop's body is run once. A function of the script is run where it is called, with the arguments of that call,
the conditions and loops around it; then again for another kind of call, a few times at most. Nothing of the script is
executed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Literal

from trainwright.script.calls import loaded
from trainwright.script.conditions import as_test, compare, fails, returned, sides, within
from trainwright.script.events import OF_RANK, Event, Exit, Guard, JobStart
from trainwright.script.functions import Functions
from trainwright.script.reader import Module, Script
from trainwright.script.syntax import Function
from trainwright.script.values import BY_ITSELF, Code, Scope, Value, chosen, constant, for_one, join, unknown


class Interpreter(Functions):
    """Runs a script; :attr:`events` are its calls.

    Args:
        script: the parsed script.
        launch: how the job starts it.
    """

    def __init__(self, script: Script, launch: JobStart) -> None:
        super().__init__(launch)
        self.script = script
        self.by_name = self._module_names(script)
        self.globals: dict[Module, Scope] = {}
        # What names are where a loop is left early.
        self.left: list[list[dict[str, Value]]] = []
        # Names that are read, imported from a file, or written as texts.
        self.words: set[str] = set()

    def run(self) -> list[Event]:
        """Run the script, then every function that nobody was seen to call; return all calls."""
        try:
            if self.script.entry is not None:
                self.load(self.script.entry)
            self.detached = True
            trains = any(event.last in _TRAINS for event in self.events)
            for code in self.defined:
                if not code.runs and isinstance(code.node, Function) and not (trains and self._dead(code)):
                    self.guards, self.loops, self.contexts, self.stack = (), (), (), ()
                    self.call_code(code, [], {}, code.owner.made if code.owner is not None else None)
        except (_OutOfFuel, RecursionError):
            self.cut = True
        return self.events

    def _dead(self, code: Code) -> bool:
        """Return whether nothing in the script names a function, and no library calls it by its name."""
        owner, name = code.owner, code.alias or code.name
        if owner is not None and any(owner.origins()):
            return owner.made is None and not self._read(owner.name)
        return not (code.registered or name.startswith("__") or self._read(name))

    def _read(self, name: str) -> bool:
        if not self.words:
            for module in self.script.modules:
                for node in module.nodes:
                    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                        self.words.add(node.id if isinstance(node, ast.Name) else node.attr)
                    elif isinstance(node, ast.ImportFrom):
                        self.words |= {alias.name for alias in node.names}
                    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                        self.words.add(node.value)
        return name in self.words

    # ---- modules -----------------------------------------------------------------------------------------------------

    @staticmethod
    def _module_names(script: Script) -> dict[str, Module]:
        names: dict[str, Module] = {}
        entry = script.entry
        folder = entry.name.rpartition("/")[0] + "/" if entry is not None and "/" in entry.name else ""
        for module in script.modules:
            for start in ("", folder, *script.folders):
                if module.name.startswith(start):
                    dotted = module.name[len(start) :].removesuffix(".py").replace("/", ".")
                    names.setdefault(dotted.removesuffix(".__init__"), module)
        return names

    def load(self, module: Module) -> Scope:
        """Run the top level of a file, once."""
        if module in self.globals:
            return self.globals[module]
        scope = self.globals[module] = Scope()
        before = (self.module, self.guards, self.loops, self.contexts, self.stack)
        self.module, self.guards, self.loops, self.contexts, self.stack = module, (), (), (), ()
        # The launcher of PyTorch/XLA imports the script and calls _mp_fn.
        started = module is self.script.entry and self.launch.launcher != "xla"
        scope.names["__name__"] = constant("__main__" if started else module.name)
        scope.names["__file__"] = constant(module.name, "root:relative", sure=False)
        self.block(module.tree.body, scope)
        if module is self.script.entry and not started and (main := scope.names.get("_mp_fn")) and main.code:
            self.call_code(main.code, [unknown("local_rank", "rank")], {}, None)
        self.module, self.guards, self.loops, self.contexts, self.stack = before
        return scope

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                if alias.name in self.by_name:
                    self.load(self.by_name[alias.name])
                scope.names[alias.asname or whole] = self.library(whole)
                self.imported.append((alias.name, self.guards))
            return
        base = node.module or ""
        if node.level:
            parts = self.module.name.removesuffix(".py").split("/")[: -node.level]
            base = ".".join([*parts, *([base] if base else [])])
        for alias in node.names:
            whole = f"{base}.{alias.name}" if base else alias.name
            self.imported.append((whole, self.guards))
            own = self.by_name.get(base)
            if alias.name == "*":
                if own is not None and own is not self.module:
                    scope.names.update(self.load(own).names)
                continue
            found = self.load(own).names.get(alias.name) if own is not None and own is not self.module else None
            scope.names[alias.asname or alias.name] = found or self.library(whole)

    def library(self, name: str) -> Value:
        """Return the value of an imported name."""
        own = self.by_name.get(name)
        if own is None:
            return Value(name=name)
        return Value(name=name, code=Code(own, own.tree, self.load(own)))

    # ---- statements --------------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[ast.stmt], scope: Scope) -> bool:
        """Run statements; return whether they never reach their end."""
        before = self.guards
        ended = False
        for statement in statements:
            ended = self.statement(statement, scope)
            if ended:
                break
        self.guards = before
        return ended

    def statement(self, node: ast.stmt, scope: Scope) -> bool:
        """Run a statement; return whether what follows is not reached."""
        self.fuel -= 1
        if self.fuel < 0:
            raise _OutOfFuel
        match node:
            case ast.Expr():
                value = self.value(node.value, scope)
                return "never" in value.tags
            case ast.Assign():
                value = self.value(node.value, scope)
                for target in node.targets:
                    self.assign(target, value, scope)
            case ast.AnnAssign():
                if node.value is not None:
                    self.assign(node.target, self.value(node.value, scope), scope)
            case ast.AugAssign():
                name = ast.copy_location(ast.BinOp(loaded(node.target), node.op, node.value), node)
                self.assign(node.target, self.value(name, scope), scope)
            case ast.If():
                return self._if(node, scope)
            case ast.For() | ast.AsyncFor():
                iterated = self.value(node.iter, scope)
                self._misuse(node.iter, iterated, "json")
                self.iterated[node] = iterated
                items = self.each(iterated)
                self.assign(node.target, items, scope)
                self._loop(node, scope)
            case ast.While():
                self._while(node, scope)
            case ast.With() | ast.AsyncWith():
                return self.with_block(node.items, node.body, scope)
            case ast.Try() | ast.TryStar():
                return self._try(node, scope)
            case ast.Return():
                self._return(node, scope)
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                scope.names[node.name] = self._define(node, scope)
            case ast.ClassDef():
                scope.names[node.name] = self._class(node, scope)
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.Break() | ast.Continue():
                self._end_pass(node, scope)
                return True
            case ast.Raise():
                return True
            case ast.Assert():
                self.value(node.test, scope)
            case ast.Global() | ast.Nonlocal():
                self.shared |= {(id(scope), name) for name in node.names}
            case ast.Delete():
                self._delete(node, scope)
            case ast.Match():
                self._match(node, scope)
        return False

    def _delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                base, key = self.value(target.value, scope), self.value(target.slice, scope).single()
                if base.attrs is not None and key in base.attrs:
                    base.attrs = {name: value for name, value in base.attrs.items() if name != key}

    def _return(self, node: ast.Return, scope: Scope) -> None:
        self._leave("return", node, self.loops[self.outside :])
        if self.returned:
            value = self.value(node.value, scope) if node.value else constant(None)
            self.returned[-1].append(returned(value, self.guards, node.value))

    def _end_pass(self, node: ast.Break | ast.Continue, scope: Scope) -> None:
        self._leave("break" if isinstance(node, ast.Break) else "continue", node, self.loops[-1:])
        if self.left:
            self.left[-1].append(dict(scope.names))

    def _leave(self, kind: Literal["break", "continue", "return"], node: ast.stmt, loops: tuple[ast.AST, ...]) -> None:
        """Note that loops are left early, if a condition decides it."""
        if loops and self.guards:
            self.exits.append(Exit(kind, node, self.module, self.guards, loops, len(self.events), self.detached))

    def _if(self, node: ast.If, scope: Scope) -> bool:
        test = as_test(self.value(node.test, scope))
        self._asked(node.test, test)
        decided = self.decided(test)
        if decided is not None:
            return self.block(node.body if decided else node.orelse, scope)
        yes, no = sides(test, node.test)
        before, start, mark = dict(scope.names), len(self.events), len(self.set_there)
        known = set(before)
        ended = self._branch(node.body, scope, yes)
        after, scope.names = scope.names, before
        if node.orelse:
            taken, mark = self.put_back(mark), len(self.set_there)
        else_ended = self._branch(node.orelse, scope, no)
        if node.orelse:
            self.put_again(taken, mark)
        if ended and not else_ended:
            # A process that fails ends the whole job.
            if no.kind not in (*OF_RANK, "own", "clock") or not fails(node.body[-1]):
                self.guards = (*self.guards, no)
        elif else_ended and not ended:
            scope.names = after
            self.guards = (*self.guards, yes)
        elif not ended:
            made = self.made_since(start)
            apart = yes.kind in OF_RANK and not self._in_turn(node.test)
            for name in (scope.names.keys() - after.keys() - known) if apart else ():
                if scope.get(name) is scope.names[name]:
                    self.unset[id(scope), name] = (scope.names[name], no)
            for name, value in after.items():
                there = scope.names.get(name)
                if there is None and apart and scope.get(name) is None:
                    self.unset[id(scope), name] = (value, yes)
                joined = value if there is None else chosen((value, there), made)
                if joined is not value and joined is not there and there is not None:
                    self._told_apart(joined, value, there, yes)
                scope.names[name] = joined
        return ended and else_ended

    def _in_turn(self, test: ast.expr) -> bool:
        """Return whether a loop comes to each process in turn: ``for turn in range(8): if rank == turn``."""
        names = {each.id for each in ast.walk(test) if isinstance(each, ast.Name)}
        loops = (loop for loop in self.loops if isinstance(loop, ast.For))
        return any(isinstance(n, ast.Name) and n.id in names for loop in loops for n in ast.walk(loop.target))

    def _match(self, node: ast.Match, scope: Scope) -> None:
        """Run the cases that the subject may match, each beside the others."""
        subject, before, outside = self.value(node.subject, scope), dict(scope.names), self.guards
        ends: list[dict[str, Value]] = []
        every = False
        for case in node.cases:
            test, text = self._matches(case.pattern, subject, node.subject, scope)
            decided = self.decided(test) if case.guard is None else None
            if decided is False:
                continue
            yes, no = sides(test, text)
            scope.names = dict(before)
            if not (self.block(case.body, scope) if decided else self._branch(case.body, scope, yes)):
                ends.append(scope.names)
            every = bool(decided)
            if every:
                break
            self.guards = (*self.guards, no) if case.guard is None and no.kind != "other" else self.guards
        self.guards = outside
        scope.names = before
        for names in ends if ends else ():
            for name, value in names.items():
                there = before.get(name)
                before[name] = value if there is None or (every and len(ends) == 1) else join(there, value)

    def _matches(self, pattern: ast.pattern, subject: Value, written: ast.expr, scope: Scope) -> tuple[Value, ast.expr]:
        """Return whether a pattern matches, as a condition: of ``Place(rank=0)`` that the rank is 0."""
        if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
            if pattern.name is not None:
                scope.names[pattern.name] = subject
            return constant(True), written
        if isinstance(pattern, ast.MatchValue):
            text = ast.copy_location(ast.Compare(written, [ast.Eq()], [pattern.value]), written)
            return compare(subject, ast.Eq(), self.value(pattern.value, scope)), text
        if isinstance(pattern, ast.MatchClass) and len(pattern.kwd_attrs) == 1 and not pattern.patterns:
            name = pattern.kwd_attrs[0]
            inner = ast.copy_location(ast.Attribute(written, name, ast.Load()), written)
            return self._matches(pattern.kwd_patterns[0], self.attribute(subject, name), inner, scope)
        return Value(), written

    @staticmethod
    def _told_apart(joined: Value, value: Value, other: Value, test: Guard) -> None:
        """Note of a name that has one of two values after a condition how processes differ in it."""
        if "agreed" in joined.tags:
            joined.tags -= BY_ITSELF | {"only-one", "uneven", "by-rank", "random", "zero:rank", "nonzero:rank"}
        elif test.kind in OF_RANK:
            joined.tags |= {"uneven"}
            if test.kind in ("one", "host") and value.items is not None and other.items is not None:
                for_one(value, other)
            # `saver = None`, and a saver only in the first process: `if saver:` is a condition on the rank.
            only = other if test.kind == "one" else value
            if (
                test.kind in ("one", "others")
                and (only.may_be(None) or only.may_be(False))
                and only.single() is not ...
            ):
                joined.tags |= {"only-one"}
        elif test.kind in ("own", "clock"):
            joined.tags |= {test.kind}

    def _branch(self, body: Sequence[ast.stmt], scope: Scope, guard: Guard) -> bool:
        before = self.guards
        self.guards = within(before, guard)
        self.depth += 1
        ended = self.block(body, scope)
        self.depth -= 1
        self.guards = before
        return ended

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
        before = self.loops
        self.loops = (*before, node)
        self.left.append([])
        self._varies(node, scope)
        self.block(node.body, scope)
        for names in self.left.pop():
            for name, value in names.items():
                there = scope.names.get(name)
                scope.names[name] = value if there is None else join(there, value)
        self.loops = before
        self.block(node.orelse, scope)

    def _while(self, node: ast.While, scope: Scope) -> None:
        timed = "clock" in self.value(node.test, scope).tags
        self._loop(node, scope)
        own = not self.value(node.test, scope).tags.isdisjoint({"own", "played"})  # after a pass
        # NVIDIA's prefetcher returns None at the end of a share, and shares have the same length.
        own = own and not (isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.IsNot))
        self.clocked += [(self.module, node)] if timed and not self.detached else []
        self.own_loops += [(self.module, node)] if own and not self.detached else []

    @staticmethod
    def _varies(node: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
        """Let nothing be decided by what names are before a loop that sets them: ``step = 0``."""
        for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}:
            there = scope.names.get(name)
            if there is not None and there.sure:
                scope.names[name] = there.with_tags("counted")
                scope.names[name].sure = False

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope) -> bool:
        before = dict(scope.names)
        self.tried += bool(node.handlers)
        ended = self.block(node.body, scope)
        self.tried -= bool(node.handlers)
        after = scope.names
        for handler in node.handlers:
            scope.names = dict(before)
            if not self._branch(handler.body, scope, Guard("error", ast.Constant("an exception"), True)):
                for name, value in scope.names.items():
                    after[name] = join(after[name], value) if name in after else value
                ended = False
        scope.names = after
        if node.orelse:
            ended = self.block(node.orelse, scope) or ended
        self.block(node.finalbody, scope)
        return ended


_TRAINS = ("backward", "fit", "train", "apply_gradients", "minimize")


class _OutOfFuel(Exception):
    pass
