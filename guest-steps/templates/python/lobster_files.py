"""Modules and data files, kept in the component.

A component is a snapshot that is taken after ``app.py`` was imported, and no file of the
machine that built it exists when it runs. Python imports much of its library only when a
function needs it (``datetime.strptime`` imports ``_strptime``), and packages read data files.
So ``keep`` packs what can be imported into the snapshot, and answers Python's questions about
those files from there. All other paths go to WASI as ever: to directories that are granted.

It is part of your project: change it if you need to.
"""

import builtins
import errno
import io
import os
import posix
import stat
import sys
import zlib

import _io

#: What is never imported by a step, and is large.
NEVER = {
    "__pycache__", "cases", "ensurepip", "idlelib", "lib2to3", "node_modules", "pip", "pydoc_data", "setuptools",
    "site-packages", "target", "test", "tests", "tkinter", "turtledemo", "venv", "wit", "wit-python",
}  # fmt: skip
NOT_KEPT = (".wasm", ".pyc", ".so", ".pyi", ".c", ".h")
LARGEST = 4 << 20
#: The file by which ``lobster_build.py`` marks the directory of the step's packages.
OURS = ".from"

#: Path -> where its bytes are in `_packed`, and how many it has when unpacked.
_kept = {}
_directories = {}
_packed = b""
_real = {"stat": posix.stat, "lstat": posix.lstat, "listdir": posix.listdir, "open": _io.open, "open_code": _io.open_code}


def drop_foreign():
    """Takes the packages of the machine that builds off the path, so that none gets in by chance."""
    sys.path[:] = [path for path in sys.path if _is_ours(path)]


def keep(roots=None):
    """Packs all modules that can be imported now, and the data files of packages beside them."""
    global _packed
    if _kept:
        return
    sys.dont_write_bytecode = True
    packer = _Packer()
    for root in roots or [path for path in sys.path if _is_ours(path)]:
        packer.add(root, only_modules=os.path.exists(os.path.join(root, "_collections_abc.py")))
    _packed = packer.finish()
    # What is not there now never will be.
    sys.path[:] = [path for path in sys.path if path in _directories]
    sys.path_importer_cache.clear()
    posix.stat = os.stat = _stat
    posix.lstat = os.lstat = _lstat
    posix.listdir = os.listdir = _listdir
    _io.open_code = _open_code
    _io.open = io.open = builtins.open = _open


def _is_ours(root):
    """Whether a directory of modules belongs to the step: the tool also finds the packages that
    happen to be installed on the machine that builds."""
    is_foreign = any(os.path.isdir(f"{root}/{name}") for name in ("pip", "componentize_py", "setuptools"))
    return os.path.isdir(root) and not (is_foreign and not os.path.exists(f"{root}/{OURS}"))


class _Packer:
    """Packs files with two buffers that are made once and cleared in the end: what is freed on
    the way would stay in the snapshot."""

    def __init__(self):
        self._file = bytearray(LARGEST)
        self._packed = bytearray()
        self._compress = zlib.compressobj(6, zlib.DEFLATED, -15)

    def add(self, directory, only_modules):
        names = []
        for name in sorted(_real["listdir"](directory)):
            path = f"{directory}/{name}"
            about = _real["stat"](path)
            if name.startswith(".") or name in NEVER:
                continue
            if stat.S_ISDIR(about.st_mode):
                self.add(path, only_modules)
                names.append(name)
            elif about.st_size <= LARGEST and not name.endswith(NOT_KEPT) and (name.endswith(".py") or not only_modules):
                self._pack(path)
                names.append(name)
        _directories[directory] = names

    def _pack(self, path):
        begin = len(self._packed)
        with memoryview(self._file) as buffer, _real["open"](path, "rb", buffering=0) as file:
            size = 0
            while count := file.readinto(buffer[size:]):
                size += count
            self._packed += self._compress.compress(buffer[:size])
        # So that each file can be unpacked without those before it.
        self._packed += self._compress.flush(zlib.Z_FULL_FLUSH)
        _kept[path] = (begin, len(self._packed), size)

    def finish(self):
        packed = bytes(self._packed)
        for buffer in (self._file, self._packed):
            buffer[:] = bytes(len(buffer))
        return packed


def _path(path):
    """The kept path that is meant, or None."""
    try:
        path = os.fspath(path)
    except TypeError:
        return None
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    if path not in _kept and path not in _directories:
        path = os.path.normpath(path)
    return path if path in _kept or path in _directories else None


def _about(path):
    if path in _directories:
        mode, size = stat.S_IFDIR | 0o555, 0
    else:
        mode, size = stat.S_IFREG | 0o444, _kept[path][2]
    return os.stat_result((mode, 0, 0, 1, 0, 0, size, 0, 0, 0))


def _stat(path, *rest, **named):
    kept = None if isinstance(path, int) else _path(path)
    return _real["stat"](path, *rest, **named) if kept is None else _about(kept)


def _lstat(path, *rest, **named):
    kept = _path(path)
    return _real["lstat"](path, *rest, **named) if kept is None else _about(kept)


def _listdir(path="."):
    kept = None if isinstance(path, int) else _path(path)
    if kept is None:
        return _real["listdir"](path)
    if kept not in _directories:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), kept)
    return list(_directories[kept])


def _bytes(path):
    if path in _directories:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    begin, end, _ = _kept[path]
    return zlib.decompressobj(-15).decompress(_packed[begin:end])


def _open_code(path):
    kept = _path(path)
    return _real["open_code"](path) if kept is None else io.BytesIO(_bytes(kept))


def _open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *rest, **named):
    kept = None if isinstance(file, int) else _path(file)
    if kept is None:
        return _real["open"](file, mode, buffering, encoding, errors, newline, *rest, **named)
    if set(mode) & set("wax+"):
        raise PermissionError(errno.EROFS, "it is part of the component", kept)
    data = io.BytesIO(_bytes(kept))
    return data if "b" in mode else io.TextIOWrapper(data, encoding or "utf-8", errors, newline)


def cure(error):
    """What to do about a module that was not found."""
    module = (error.name or "").partition(".")[0]
    if not module:
        return ""
    return (
        f"; the module {module} is not in the component: name its package in requirements.txt, "
        "and import it at the top of the file"
    )
