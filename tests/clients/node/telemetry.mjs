// The spans of OpenTelemetry, with the in-memory exporter of its SDK.
import assert from "node:assert/strict";
import { SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from "@opentelemetry/sdk-trace-node";
import * as truce from "truce-db";
import { openTemporary, runJobs } from "truce-db/testing";
import { all, check, end, raises } from "./check.mjs";

const spans = new InMemorySpanExporter();
const silent = { warn() {}, error() {} };
const db = await openTemporary();

// Without a provider, nothing is added and nothing fails.
await db.enqueue("before", { payload: {} });
await runJobs(db, "before", () => {});
assert.equal((await db.jobs("before")).jobs[0].metadata, undefined);

new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] }).register();
const tracer = trace.getTracer("shop");

function finished() {
  const found = {};
  for (const span of spans.getFinishedSpans()) (found[span.name] ??= []).push(span);
  spans.reset();
  return found;
}
const within = (call) => tracer.startActiveSpan("request", async (span) => {
  try {
    await call();
    return span.spanContext();
  } finally {
    span.end();
  }
});
const metadata = async (queue) => (await all(db.iterateJobs(queue))).map((job) => job.metadata ?? {});
const idOf = (span) => span.spanContext().spanId;

await check("the trace context of jobs", async () => {
  await db.enqueue("plain", { payload: {} });
  assert.deepEqual(await metadata("plain"), [{}]);
  const { traceId, spanId } = await within(() => db.enqueue("other", { payload: {}, metadata: { by: "ada" } }));
  assert.deepEqual(await metadata("other"), [{ traceparent: `00-${traceId}-${spanId}-01`, by: "ada" }]);
});
await check("the spans of a worker", async () => {
  const request = await within(() => db.enqueue("mail", { payloads: [{ n: 0 }, { n: 1 }, { n: 2 }] }));
  finished();
  await new truce.Worker(db, "mail", async (job) => {
    tracer.startSpan("own").end();
    if (job.payload.n === 1) throw new RangeError("no");
    if (job.payload.n === 2) await job.snooze(3600000);
  }, { concurrency: 3, untilEmpty: true, logger: silent }).run();
  const found = finished(), works = found["process mail"];
  assert.deepEqual(Object.keys(found).map((name) => [name, found[name].length]).sort(),
    [["claim mail", 1], ["done mail", 1], ["fail mail", 1], ["own", 3], ["process mail", 3], ["snooze mail", 1]]);
  const claim = found["claim mail"][0];
  assert.deepEqual([claim.kind, claim.attributes["messaging.batch.message_count"]], [SpanKind.CLIENT, 3]);
  assert.deepEqual(claim.links.map((link) => link.context.spanId), Array(3).fill(request.spanId));
  for (const work of works) {
    assert.deepEqual([work.spanContext().traceId, work.parentSpanContext.spanId, work.kind], [request.traceId, request.spanId, SpanKind.CONSUMER]);
    assert.equal(work.links[0].context.spanId, idOf(claim));
    assert.equal(work.attributes["messaging.destination.name"], "mail");
  }
  assert.deepEqual(found.own.map((one) => one.parentSpanContext.spanId).sort(), works.map(idOf).sort());
  for (const name of ["done", "fail", "snooze"]) {
    const [ended] = found[`${name} mail`];
    const work = works.find((one) => idOf(one) === ended.parentSpanContext.spanId);
    assert.equal(work.attributes["messaging.message.id"], ended.attributes["messaging.message.id"]);
    assert.equal(work.status.code, name === "fail" ? SpanStatusCode.ERROR : SpanStatusCode.UNSET);
    assert.equal(work.events.length, name === "fail" ? 1 : 0);
  }
});
await check("jobs that run inline, and suspended ones", async () => {
  await db.enqueue("inline", { payload: {} });
  await runJobs(db, "inline", () => {});
  const found = finished();
  assert.deepEqual(Object.keys(found).sort(), ["claim inline", "done inline", "process inline"]);
  assert.equal(found["process inline"][0].parentSpanContext, undefined);
  await db.enqueue("sleeps", { payload: {} });
  await runJobs(db, "sleeps", (job) => job.sleep("a day", 86400000));
  assert.equal(finished()["process sleeps"][0].status.code, SpanStatusCode.UNSET);
  await db.enqueue("fails", { payload: {} });
  await raises(RangeError, () => runJobs(db, "fails", () => {
    throw new RangeError("no");
  }));
  assert.equal(finished()["process fails"][0].status.code, SpanStatusCode.ERROR);
  await db.claimJobs("inline");
  assert.deepEqual(finished(), {}); // no claim, no span
});
await check("commits with a key, steps, flows, and transactions", async () => {
  const options = { key: "k", keyTime: new Date() };
  const fill = (c) => {
    c.enqueue("keyed", { payload: {} });
    c.insert("letters", { _id: 1 });
  };
  const earlier = [];
  for (let i = 0; i < 2; i++) await within(async () => earlier.push((await db.commit(fill, options)).earlier));
  earlier.push((await db.commit(fill, options)).earlier);
  assert.deepEqual(earlier, [false, true, true]);
  assert.deepEqual((await metadata("keyed")).map(Object.keys), [["traceparent"]]);
  await db.enqueue("steps", { payload: {} });
  await runJobs(db, "steps", async (job) => {
    await job.step("one", (c) => void c.enqueue("stepped", { payload: {} }));
    await job.commit((c) => void c.enqueue("ended", { payload: {} }));
  });
  const { traceId } = finished()["process steps"][0].spanContext();
  for (const queue of ["stepped", "ended"]) assert.ok((await metadata(queue))[0].traceparent.includes(traceId));
  await within(() => db.flow("flows", { jobs: [{ name: "a", payload: {} }, { name: "b", payload: {}, after: ["a"] }] }));
  await within(() => db.transact((tx) => tx.enqueue("within", { payload: {} })));
  assert.deepEqual([...(await metadata("flows")), ...(await metadata("within"))].map(Object.keys), Array(3).fill(["traceparent"]));
  await within(async () => {
    for (const call of [() => db.enqueue("q", { payload: {}, metadata: "text" }), () => db.flow("q", { jobs: ["text"] }),
      () => db.commitChanges([{ truceEnqueue: "q", payload: {}, metadata: 5 }])]) await raises(truce.Invalid, call);
  });
  await db.enqueue("wrong", { payload: {}, metadata: { traceparent: "nonsense", tracestate: 17 } });
  await runJobs(db, "wrong", () => {});
});
await db.close();
end("OpenTelemetry");
