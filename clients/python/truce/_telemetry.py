"""
Spans of OpenTelemetry for jobs, and the trace context that travels in their metadata.

Enqueued jobs get the current trace context as `traceparent` (and `tracestate`) in their metadata.
A worker makes three spans for a job, named as the conventions for messaging say.

- `claim QUEUE` is the call that claimed the job. It is linked to each claimed job.
- `process QUEUE` is the handler, in the trace of the caller that enqueued the job.
- `done QUEUE` is the report of the end. It can also be `fail`, `snooze`, or `discard`.

The package opentelemetry-api is optional. It is used if the program has imported it, so that other
programs do not pay for the import.

A commit with a key is identified by its changes. Another attempt has another trace context, so the
commit is then identified by its changes without the context (`input`).
"""
from __future__ import annotations

import importlib
import sys
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Sequence

from . import errors
from ._values import Document

_LISTS = ("truceJobCommit", "truceJobStep")
_OPERATIONS = {
    "truceDone": "done",
    "truceJobCommit": "done",
    "truceFail": "fail",
    "truceSnooze": "snooze",
    "truceDiscard": "discard",
}


def _api() -> Any:
    """Returns the module opentelemetry.trace if the program has imported it, or None."""
    return sys.modules.get("opentelemetry.trace")


def _propagator() -> Any:
    module = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
    return module.TraceContextTextMapPropagator()


# ---- the context in metadata ---------------------------------------------------------------------


def _with_context(job: Any, carrier: Mapping[str, str]) -> Any:
    """Returns the job with the context. A wrong one is returned as it is, and refused later."""
    metadata = job.get("metadata") if isinstance(job, Mapping) else 0
    if metadata is not None and not isinstance(metadata, Mapping):
        return job
    return {**job, "metadata": {**carrier, **(metadata or {})}}


def _is_enqueue(change: Any) -> bool:
    return isinstance(change, Mapping) and "truceEnqueue" in change


def _with_contexts(changes: Sequence[Any], carrier: Mapping[str, str]) -> List[Any]:
    return [_with_context(one, carrier) if _is_enqueue(one) else one for one in changes]


def traced(document: Document) -> Document:
    """Returns the command with the current trace context in the metadata of the jobs it adds."""
    trace = _api()
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return document
    name = next(iter(document), "")
    carrier: Dict[str, str] = {}
    if name == "truceEnqueue":
        _propagator().inject(carrier)
        made: Document = _with_context(document, carrier)
        return made
    if name == "truceFlow" and isinstance(document.get("jobs"), (list, tuple)):
        _propagator().inject(carrier)
        return {**document, "jobs": [_with_context(job, carrier) for job in document["jobs"]]}
    field = name if name == "truceCommit" else "changes" if name in _LISTS else ""
    changes = document.get(field) or ()
    if not any(_is_enqueue(one) for one in changes):
        return document
    _propagator().inject(carrier)
    commit = {**document, field: _with_contexts(changes, carrier)}
    if document.get("key") is not None and document.get("input") is None:
        commit["input"] = {"changes": changes}
    return commit


# ---- spans ---------------------------------------------------------------------------------------


def _tracer(trace: Any) -> Any:
    return trace.get_tracer("truce")


def _attributes(queue: str, operation: str, kind: str) -> Dict[str, Any]:
    return {
        "messaging.system": "truce",
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }


def _job_attributes(job: Any, operation: str, kind: str) -> Dict[str, Any]:
    more = {"messaging.message.id": str(job.id), "truce.job.attempt": job.attempt}
    return {**_attributes(job.queue, operation, kind), **more}


def _origin(job: Any) -> Any:
    """Returns the context of the call that enqueued the job."""
    metadata = job.metadata
    carrier = {name: metadata.get(name) for name in ("traceparent", "tracestate")}
    texts = {name: value for name, value in carrier.items() if isinstance(value, str)}
    return _propagator().extract(texts, context={})


def now() -> int:
    return time.time_ns()


def claimed(queue: str, jobs: Sequence[Any], began: int) -> None:
    """Records the span of a call that claimed jobs. Calls that found no job have no span."""
    trace = _api()
    if trace is None or not jobs:
        return
    origins = [trace.get_current_span(_origin(job)).get_span_context() for job in jobs]
    span = _tracer(trace).start_span(
        f"claim {queue}",
        kind=trace.SpanKind.CLIENT,
        start_time=began,
        links=[trace.Link(origin) for origin in origins if origin.is_valid],
        attributes={
            **_attributes(queue, "claim", "receive"),
            "messaging.batch.message_count": len(jobs),
        },
    )
    span.end()
    for job in jobs:
        job._claim_context = span.get_span_context()


@contextmanager
def work(job: Any) -> Iterator[None]:
    """A span for the handler of a job, and for the report of its end."""
    trace = _api()
    if trace is None:
        yield
        return
    claim = job._claim_context
    with _tracer(trace).start_as_current_span(
        f"process {job.queue}",
        context=_origin(job),
        kind=trace.SpanKind.CONSUMER,
        links=[trace.Link(claim)] if claim is not None and claim.is_valid else [],
        attributes=_job_attributes(job, "process", "process"),
    ):
        yield


def failed(error: BaseException) -> None:
    """Records the error of a handler in the span of its job."""
    trace = _api()
    if trace is None or isinstance(error, errors.Suspended):
        return
    span = trace.get_current_span()
    span.record_exception(error)
    span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))


@contextmanager
def end(job: Any, command: str) -> Iterator[None]:
    """A span for the report of the end of a job."""
    trace = _api()
    if trace is None:
        yield
        return
    operation = _OPERATIONS[command]
    with _tracer(trace).start_as_current_span(
        f"{operation} {job.queue}",
        kind=trace.SpanKind.CLIENT,
        attributes=_job_attributes(job, operation, "settle"),
    ):
        yield
