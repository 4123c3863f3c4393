"""The contract, wrapped for Python. It is part of your project: change it if you need to.

The component is a snapshot that is taken after ``app.py`` was imported. ``lobster_files``
packs the standard library and the project's packages into it, so that they can be imported
later, too; what is imported at the top of the file costs nothing when the step runs.
"""

import json
import os
import sys
import traceback

import lobster_files

lobster_files.drop_foreign()

import wit_world
from componentize_py_types import Err
from wit_world.imports import host

try:
    from wit_world.imports import types
except ImportError:
    # In the world step-http, whose HTTP has types, too.
    from wit_world.imports import lobster_step_types as types

try:
    from wit_world.imports import environment
except ImportError:
    # Built for the bare contract.
    environment = None

# What Python's library imports behind the back of its callers.
import _strptime  # noqa: F401  datetime.strptime
import encodings.ascii
import encodings.cp1252
import encodings.idna
import encodings.latin_1
import encodings.utf_16  # noqa: F401

ITEMS_AT_ONCE = 64
BYTES_AT_ONCE = 65536


class StepError(Exception):
    """How a step says that it failed. ``code`` is for programs: words joined by dashes."""

    def __init__(self, code, message, retryable=False):
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable


class Step:
    """Subclass it, fill in the attributes and write ``run``."""

    name = version = summary = ""
    #: JSON Schemas. ``input`` and ``output`` are of one item, None for bytes.
    args = {"type": "object"}
    input = None
    output = None
    #: ``("read", "/data", "why")`` and so on; a fourth ``True`` makes it optional.
    wants = ()
    #: ``fuel``, ``memory``, ``output``, ``timeout_ms``.
    limits = {}

    def run(self, args, input, output):
        raise NotImplementedError


class Input:
    def __init__(self, input):
        self._input = input

    @property
    def kind(self):
        """``EMPTY`` (none at all), ``BYTES`` or ``ITEMS``."""
        return self._input.payload().name

    def items(self):
        """The items, one after the other. Bytes are one text item."""
        while texts := self._input.next(ITEMS_AT_ONCE):
            for text in texts:
                yield json.loads(text)

    def bytes(self):
        """The bytes in chunks; items come as JSON Lines."""
        while chunk := self._input.read(BYTES_AT_ONCE):
            yield chunk


class Output:
    def __init__(self, output):
        self._output = output
        self._items = []

    def emit(self, item):
        """Gives one item. A step gives items or bytes, not both."""
        self._items.append(json.dumps(item, ensure_ascii=False, allow_nan=False))
        if len(self._items) >= ITEMS_AT_ONCE:
            self.flush()

    def write(self, data):
        """Gives bytes."""
        self._output.write(data)

    def flush(self):
        """Hands on what is still buffered; done for you at the end."""
        if self._items:
            self._output.emit(self._items)
        self._items = []


def log(level, message, **fields):
    """A line in the step's log: trace, debug, info, warn or error."""
    host.log(host.Level[level.upper()], message, json.dumps(fields) if fields else "")


def progress(done, total=None, message=None):
    """How far the step is, for the person who waits."""
    host.progress(done, total, message)


def state_get(key):
    """What an earlier step or call of this run kept, or None."""
    text = host.state_get(key)
    return None if text is None else json.loads(text)


def state_set(key, value):
    """Keeps a value for the rest of the run."""
    host.state_set(key, json.dumps(value, ensure_ascii=False))


def _capability(kind, value=None):
    made = getattr(types, f"Capability_{kind.capitalize()}")
    return made(value) if kind in ("read", "write", "env", "net") else made()


def _begin():
    """What the snapshot must not decide for every run."""
    if environment:
        # Only what is granted; in the snapshot are the variables of the machine that built it.
        os.environ.clear()
        os.environ.update(environment.get_environment())
    random = sys.modules.get("random")
    if random:
        # From WASI: seeded by the step and its arguments, or real where `random` is granted.
        random.seed()


def exported(step):
    """Makes the class that componentize-py looks for."""
    lobster_files.keep()

    class Exported(wit_world.WitWorld):
        def describe(self):
            schema = lambda value: None if value is None else json.dumps(value)
            wants = [
                types.Want(_capability(kind, value), reason, bool(optional))
                for kind, value, reason, *optional in step.wants
            ]
            limits = [step.limits.get(name) for name in ("fuel", "memory", "output", "timeout_ms")]
            return types.Description(
                step.name,
                step.version,
                step.summary,
                json.dumps(step.args),
                schema(step.input),
                schema(step.output),
                wants,
                types.SuggestedLimits(*limits),
                [],
            )

        def run(self, args, input, output):
            sink = Output(output)
            try:
                _begin()
                step().run(json.loads(args), Input(input), sink)
                sink.flush()
            except StepError as error:
                raise Err(types.StepError(error.code, error.message, error.retryable)) from None
            except Err as error:
                # A stream of the host refused; keep its code.
                code = getattr(error.value, "code", "io")
                raise Err(types.StepError(code, getattr(error.value, "message", str(error.value)), False)) from None
            except Exception as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{place.filename.rsplit('/', 1)[-1]}:{place.lineno}"
                message = f"{type(error).__name__}: {error} ({where})"
                if isinstance(error, ModuleNotFoundError):
                    message += lobster_files.cure(error)
                raise Err(types.StepError("exception", message, False)) from None

    return Exported
