"""
libtruce in this process, by cffi in ABI mode. A call releases the GIL.

The library is searched in this order: the file that TRUCE_LIBRARY names, the one within the
package, and the one that the system's loader finds.
"""
from __future__ import annotations

import os
import struct
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import bson
from bson.codec_options import DEFAULT_CODEC_OPTIONS, CodecOptions
from cffi import FFI  # type: ignore[import-untyped,unused-ignore]

from . import errors
from ._values import FIND_ONE, find_one_command, first_found

_INT32 = struct.Struct("<i")
# In the reply of a find: the name of the batch, and the type and size of its first element.
_FIRST = struct.Struct("<12s4xc2xi")
# _ids of these types have a fixed size.
_SAMPLES: Dict[type, Any] = {int: 0, bson.ObjectId: bson.ObjectId()}

_SONAME = "libtruce.so.0"
_NEEDED = (0, 1, 0)
_OLD = "libtruce {version} is too old: this package needs {needed} or later"

ffi: Any = FFI()
ffi.cdef(
    """
    typedef struct { uint32_t flags; uint32_t len; uint8_t padding[120]; } bson_t;
    typedef struct { uint32_t domain; uint32_t code; char message[504]; } bson_error_t;
    typedef struct truce_store truce_store;
    typedef struct {
        bool read_only, must_exist, relaxed;
        uint32_t deadline_ms, snapshot_age_ms, cache_mb;
        uint64_t snapshot_log_bytes;
        const void *hooks;
        const char *database;
        uint64_t reserved[3];
    } truce_store_options;

    const char *truce_version(void);
    const char *truce_status_name(int status);
    int truce_store_open(const char *uri, const truce_store_options *options, truce_store **store,
                         bson_error_t *error);
    void truce_store_close(truce_store *store);
    int truce_command(truce_store *store, const char *database, const bson_t *request,
                      bson_t *reply, bson_error_t *error);
    bool bson_init_static(bson_t *bson, const char *data, size_t length);
    const uint8_t *bson_get_data(const bson_t *bson);
    void bson_destroy(bson_t *bson);
    """
)


def _load() -> Any:
    named = os.environ.get("TRUCE_LIBRARY")
    within = Path(__file__).with_name(_SONAME)
    path = named or (str(within) if within.exists() else _SONAME)
    try:
        found = ffi.dlopen(path)
    except OSError as error:
        raise errors.LibraryError(
            f"cannot load {path}: {error}. Install the wheel truce-db or libtruce, or set "
            f"TRUCE_LIBRARY to the path of {_SONAME}"
        ) from error
    try:
        version = str(ffi.string(found.truce_version()).decode())
        found.truce_command
    except AttributeError as error:
        raise errors.LibraryError(f"{path} is not libtruce, or too old: {error}") from error
    if tuple(int(part) for part in version.split(".")) < _NEEDED:
        needed = ".".join(str(part) for part in _NEEDED)
        raise errors.LibraryError(f"{path}: " + _OLD.format(version=version, needed=needed))
    return found


# The number of forks between this process and the one that imported the package.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)

_lock = threading.RLock()  # Reentrant: a finalizer may run while this thread holds the lock.
_library: Any = None


def library() -> Any:
    """Returns libtruce, which is loaded by the first call."""
    global _library
    with _lock:
        if _library is None:
            _library = _load()
    return _library


def version() -> str:
    """Returns the version of libtruce."""
    return str(ffi.string(library().truce_version()).decode())


class _Frame:
    """The structures of one call. They are reused, because ffi.new is the larger part of a call."""

    __slots__ = ("memory", "request", "reply", "error")

    def __init__(self) -> None:
        # libbson may declare bson_t with an alignment of 128 bytes.
        self.memory = ffi.new("char[]", 3 * 128)
        address = int(ffi.cast("uintptr_t", self.memory))
        address += -address % 128
        self.request = ffi.cast("bson_t *", address)
        self.reply = ffi.cast("bson_t *", address + 128)
        self.error = ffi.new("bson_error_t *")


class _Handle:
    """An open truce_store, and the calls that use it.

    A call enters itself into `calls` and then reads `closed`; `close` sets `closed` and then waits
    until `calls` is empty. Both are atomic, so no call needs a lock. The handle is separate from
    NativeStore, so that a finalizer can close it. After a fork, `forks` differs from `_forks`.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        self.calls: List[None] = []
        self.closed = False
        self.forks = _forks

    def refusal(self) -> errors.Invalid:
        """Returns the error of a call that may not use the store."""
        if self.closed:
            return errors.Invalid("the store is closed", 2)
        return errors.Invalid(
            "the store was opened before a fork: open it after the fork only, in each process, or "
            'start processes by "spawn" or "forkserver"',
            2,
        )

    def close(self) -> None:
        """Closes the store when the calls of other threads have ended."""
        if _forks != self.forks:  # The store belongs to the parent process.
            return
        with _lock:
            if self.closed:
                return
            self.closed = True
        while self.calls:
            time.sleep(0.001)
        library().truce_store_close(self.store)

    def finalize(self) -> None:
        """Closes the store unless a thread, which may never end, is within a call."""
        if not self.calls:
            self.close()


def _open(uri: str, options: Mapping[str, Any]) -> Any:
    given = ffi.new("truce_store_options *")
    for name, value in options.items():
        try:
            setattr(given, name, value)
        except (OverflowError, TypeError) as wrong:  # it does not name the option
            is_flag = name in ("read_only", "must_exist", "relaxed")
            expected = "True or False" if is_flag else "a whole number from 0 to 4294967295"
            kind = ValueError if isinstance(wrong, OverflowError) else TypeError
            raise kind(f"{name} must be {expected}, not {value!r}") from None
    store, error = ffi.new("truce_store **"), ffi.new("bson_error_t *")
    found = library()
    status = found.truce_store_open(uri.encode(), given, store, error)
    if status:
        message = ffi.string(error.message).decode(errors="replace")
        raise errors.of_reply(
            {"errmsg": message, "code": error.code},
            "open",
            status=ffi.string(found.truce_status_name(status)).decode(),
        )
    return store[0]


def _uri(path: Union[str, "os.PathLike[str]"]) -> str:
    uri = path if isinstance(path, str) else "file:" + os.fspath(path)
    text = ""
    if uri in ("memory", ":memory:"):
        text = f'invalid path "{uri}": use "memory:" for a store in memory'
        text += f', or "./{uri}" for a file of this name'
    elif uri.startswith(("mongodb:", "mongodb+srv:")):
        text = "open opens a file, and mongodb:// names a server: use connect"
    elif "\0" in uri:
        text = f"the path {uri!r} has a null character"
    if text:
        raise errors.Invalid(text, 2)
    return uri


class NativeStore:
    """A store in this process. Any number of threads may use it."""

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]"],
        codec_options: Optional[CodecOptions[Dict[str, Any]]],
        options: Mapping[str, Any],
    ) -> None:
        uri = _uri(path)
        self._codec: CodecOptions[Dict[str, Any]] = codec_options or DEFAULT_CODEC_OPTIONS
        self._handle = _Handle(_open(uri, options))
        self._library = library()
        self._frames: List[_Frame] = []
        self._names: Dict[str, Any] = {}
        self._finds: Dict[Tuple[str, type], Tuple[bytes, bytes]] = {}
        self._finalizer = weakref.finalize(self, self._handle.finalize)

    def _name(self, database: str) -> Any:
        if database not in self._names:
            if "\0" in database:
                raise errors.Invalid(f"the name of the database {database!r} has a null character", 2)
            self._names[database] = ffi.new("char[]", database.encode())
        return self._names[database]

    def _call(self, database: Optional[str], request: bytes) -> Tuple[int, bytes]:
        """Runs a command, and returns its status and its reply."""
        lib, handle, frames = self._library, self._handle, self._frames
        name = ffi.NULL if database is None else self._name(database)
        data = ffi.from_buffer(request)  # Pins the bytes.
        try:
            frame = frames.pop()
        except IndexError:
            frame = _Frame()
        sent, reply, calls = frame.request, frame.reply, handle.calls
        lib.bson_init_static(sent, data, len(request))
        calls.append(None)
        try:
            if handle.closed or handle.forks != _forks:
                raise handle.refusal()
            status = lib.truce_command(handle.store, name, sent, reply, frame.error)
        finally:
            calls.pop()
        try:
            return status, ffi.buffer(lib.bson_get_data(reply), reply.len)[:]
        finally:
            lib.bson_destroy(reply)
            frames.append(frame)

    def _failure(self, status: int, data: bytes, command: str) -> errors.TruceError:
        text = ffi.string(self._library.truce_status_name(status)).decode()
        reply: Dict[str, Any] = bson.decode(data, self._codec)
        return errors.of_reply(reply, command, status=text)

    def command(self, database: Optional[str], document: Mapping[str, Any]) -> Dict[str, Any]:
        """Runs a command. An error is raised as an exception of its status."""
        try:
            request = bson.encode(document, False, self._codec)
        except errors.ENCODER_ERRORS as error:
            raise errors.of_encoder(error, document) from error
        status, data = self._call(database, request)
        if status:
            raise self._failure(status, data, next(iter(document)))
        return bson.decode(data, self._codec)

    def _by_id(self, collection: str, id: Any) -> Optional[bytes]:
        """Returns the find of a document by the common types of an _id, without their encoder."""
        kind = type(id)
        template = self._finds.get((collection, kind))
        if template is None:
            sample = _SAMPLES.get(kind)
            if sample is None:
                return None
            filled = bson.encode(find_one_command(collection, {"_id": sample}, {}))
            # The end of the _id. The zero byte that ends the filter follows.
            end = len(filled) - len(bson.encode(FIND_ONE)) + 4 - 1
            size = 4 if kind is int else 12
            template = filled[: end - size], filled[end:]
            self._finds[collection, kind] = template
        try:
            value = _INT32.pack(id) if kind is int else id.binary
        except struct.error:  # The int exceeds 32 bits.
            return None
        return template[0] + value + template[1]

    def find_one(
        self,
        database: Optional[str],
        collection: str,
        filter: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> Optional[Dict[str, Any]]:
        """Finds a document. This is `command`, and decodes the document only."""
        codec, request = self._codec, None
        if not options and type(filter) is dict and len(filter) == 1 and "_id" in filter:
            request = self._by_id(collection, filter["_id"])
        if request is None:
            document = find_one_command(collection, filter, options)
            try:
                request = bson.encode(document, False, codec)
            except errors.ENCODER_ERRORS as error:
                raise errors.of_encoder(error, document) from error
        status, data = self._call(database, request)
        if status:
            raise self._failure(status, data, "find")
        # The reply begins with: SIZE {cursor: SIZE {firstBatch: SIZE [0: DOCUMENT
        field, kind, size = _FIRST.unpack_from(data, 16)
        if field != b"\x04firstBatch\0":
            return first_found(bson.decode(data, codec))
        if kind == b"\0":
            return None
        return bson.decode(data[35 : 35 + size], codec)

    def close(self) -> None:
        """Waits for the calls of other threads, and closes the store."""
        self._finalizer.detach()
        self._handle.close()
