"""The spans of OpenTelemetry, with the in-memory exporter of its SDK, in process and for asyncio."""
import asyncio
import datetime
import logging

import truce
from checks import check, report
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from truce import aio
from truce.testing import open_temporary, run_jobs

logging.getLogger("truce").setLevel(logging.CRITICAL)
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("shop")


def finished():
    found = {}
    for span in spans.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    spans.clear()
    return found


def ids(span):
    return span.get_span_context().trace_id, span.get_span_context().span_id


def metadata(db, queue):
    return [job.get("metadata", {}) for job in db.iterate_jobs(queue)]


def check_jobs(found, queue, request, results):
    """The spans of three jobs that were enqueued within `request`: one done, one failed, one snoozed."""
    trace_id, _ = ids(request)
    claims, works = found[f"claim {queue}"], found[f"process {queue}"]
    check(f"{queue}: spans", {name: len(found.get(f"{name} {queue}", ())) for name in results} == results, list(found))
    check(f"{queue}: the trace continues", all(ids(work)[0] == trace_id and ids_of(work.parent) == ids(request) for work in works))
    check(f"{queue}: the kind of work", all(work.kind is SpanKind.CONSUMER for work in works))
    linked = [link.context.span_id for claim in claims for link in claim.links]
    check(f"{queue}: claims are linked to the jobs", linked == [ids(request)[1]] * len(works), linked)
    claimed = {ids(claim) for claim in claims}
    check(f"{queue}: work is linked to its claim", all(ids_of(work.links[0].context) in claimed for work in works))
    by_id = {ids(work): work for work in works}
    for name in ("done", "fail", "snooze"):
        for end in found.get(f"{name} {queue}", ()):
            work = by_id.get(ids_of(end.parent))
            check(f"{queue}: {name} is within its work", work is not None and work.end_time >= end.end_time)
            check(f"{queue}: the error of {name}", (work.status.status_code is StatusCode.ERROR) == (name == "fail"))
            check(f"{queue}: the id of {name}", work.attributes["messaging.message.id"] == end.attributes["messaging.message.id"])
            if name == "fail":
                check(f"{queue}: the exception", [event.name for event in work.events] == ["exception"])


def ids_of(context):
    return (context.trace_id, context.span_id) if context else None


def work(job):
    """Ends the job as its payload says; its own span is a child of the span of the work."""
    with tracer.start_as_current_span("own"):
        if job.payload["n"] == 1:
            raise ValueError("no")
    if job.payload["n"] == 2:
        job.snooze(3600000)


def check_blocking(db):
    db.enqueue("plain", payload={})
    check("no span, no context", metadata(db, "plain") == [{}])
    with tracer.start_as_current_span("request") as request:
        for n in range(3):
            db.enqueue("mail", payload={"n": n}, metadata={"by": "ada"})
    context = request.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    check("the metadata", metadata(db, "mail") == [{"traceparent": parent, "by": "ada"}] * 3, metadata(db, "mail"))
    finished()
    truce.Worker(db, "mail", work, until_empty=True).run()
    found = finished()
    check_jobs(found, "mail", request, {"claim": 3, "process": 3, "done": 1, "fail": 1, "snooze": 1})
    check("own spans", {ids_of(own.parent) for own in found["own"]} == {ids(one) for one in found["process mail"]})
    attributes = found["process mail"][0].attributes
    check("attributes", attributes["messaging.system"] == "truce" and attributes["messaging.destination.name"] == "mail"
          and attributes["messaging.operation.type"] == "process" and attributes["truce.job.attempt"] == 1)
    with tracer.start_as_current_span("request"):
        db.enqueue("with", payload={})
    with db.claim_jobs("with")[0]:
        raise RuntimeError("no")
    check("`with job`", sorted(finished()) == ["claim with", "fail with", "process with", "request"])
    db.enqueue("inline", payload={})
    run_jobs(db, "inline", lambda job: None)
    found = finished()
    check("run_jobs, a new trace", sorted(found) == ["claim inline", "done inline", "process inline"]
          and found["process inline"][0].parent is None)
    check("no claim, no span", db.claim_jobs("inline") == [] and not finished())


def check_lists(db):
    """A commit with a key takes effect once, though each attempt has another trace context."""
    when = datetime.datetime.now(datetime.timezone.utc)
    earlier = []
    for _ in range(2):
        with tracer.start_as_current_span("request"):
            with db.commit(key="k", key_time=when) as c:
                c.enqueue("keyed", payload={})
                c.insert("letters", {"_id": 1})
        earlier.append(c.earlier)
    with db.commit(key="k", key_time=when) as c:  # without a span
        c.enqueue("keyed", payload={})
        c.insert("letters", {"_id": 1})
    check("a commit with a key", [*earlier, c.earlier] == [False, True, True], earlier)
    check("its job", [list(one) for one in metadata(db, "keyed")] == [["traceparent"]], metadata(db, "keyed"))
    check("the changes have no context", "metadata" not in c.changes[0])

    def follow(job):
        with job.step("one") as step:
            step.enqueue("stepped", payload={})
        with job.commit() as end:
            end.enqueue("ended", payload={})

    db.enqueue("steps", payload={})
    run_jobs(db, "steps", follow)
    context = finished()["process steps"][0].get_span_context()
    for queue in ("stepped", "ended"):
        check(f"a job that was {queue} by a job", [f"{context.trace_id:032x}" in one["traceparent"] for one in metadata(db, queue)] == [True])
    with tracer.start_as_current_span("request"):
        db.flow("flows", jobs=[{"name": "a", "payload": {}}, {"name": "b", "payload": {}, "after": ["a"]}])
        with open_temporary() as file:
            with file.transaction() as inner:
                inner.enqueue("within", payload={})
            check("a transaction", [list(one) for one in metadata(file, "within")] == [["traceparent"]])
    check("a flow", [list(one) for one in metadata(db, "flows")] == [["traceparent"]] * 2)
    with tracer.start_as_current_span("request"):
        for call in (lambda: db.enqueue("q", payload={}, metadata="text"), lambda: db.flow("q", jobs=["text"]),
                     lambda: db.flow("q", jobs="text"), lambda: db.commit_changes([{"truceEnqueue": "q", "payload": {}, "metadata": 5}])):
            try:
                call()
                check("wrong jobs are refused", False)
            except truce.Invalid:
                pass
    db.enqueue("wrong", payload={}, metadata={"traceparent": "nonsense", "tracestate": 17})
    finished()
    run_jobs(db, "wrong", lambda job: None)
    check("a context that is wrong", finished()["process wrong"][0].parent is None)


async def check_asyncio():
    async with aio.open("memory:") as db:
        with tracer.start_as_current_span("request") as request:
            await db.enqueue("mail", payloads=[{"n": n} for n in range(3)])
        finished()

        async def handle(job):
            await asyncio.sleep(0.01)
            with tracer.start_as_current_span("own"):
                if job.payload["n"] == 1:
                    raise ValueError("no")
            if job.payload["n"] == 2:
                await job.snooze(3600000)

        await aio.Worker(db, "mail", handle, concurrency=3, until_empty=True).run()
        found = finished()
        check_jobs(found, "mail", request, {"claim": 1, "process": 3, "done": 1, "fail": 1, "snooze": 1})
        check("own spans of coroutines", {ids_of(own.parent) for own in found["own"]} == {ids(one) for one in found["process mail"]})


with truce.open("memory:") as db:
    check_blocking(db)
    check_lists(db)
asyncio.run(check_asyncio())
report("OpenTelemetry")
