"use strict";
/*
 * Spans of OpenTelemetry for jobs, and the trace context that travels in their metadata.
 *
 * Enqueued jobs get the current trace context as `traceparent` (and `tracestate`) in their
 * metadata. A worker makes three spans for a job, named as the conventions for messaging say:
 *
 *     claim QUEUE      the call that claimed the job; it is linked to each claimed job
 *     process QUEUE    the handler, in the trace of the caller that enqueued the job
 *     done QUEUE       the report of the end; also fail, snooze, and discard
 *
 * The package @opentelemetry/api is optional. It is used if the program has registered a provider,
 * so that other programs need not have it.
 *
 * A commit with a key is identified by its changes. Another attempt has another trace context, so
 * the commit is then identified by its changes without the context (`input`).
 */
const errors = require("./errors.js");

/* The API stores here what the program registers. */
const REGISTERED = Symbol.for("opentelemetry.js.api.1");
const LISTS = ["truceJobCommit", "truceJobStep"];
const PARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

let loaded;

/* Returns the API, or null if the program does not use it. */
function apiOf() {
    if (globalThis[REGISTERED] === undefined) return null;
    if (loaded === undefined) {
        try {
            loaded = require("@opentelemetry/api");
        } catch (error) {
            if (error.code !== "MODULE_NOT_FOUND") throw error;
            loaded = null;
        }
    }
    return loaded;
}

/* ---- the context in metadata ----------------------------------------------------------------- */

/* Returns the fields of the current trace context, or undefined. */
function carrierOf(api) {
    const found = api?.trace.getActiveSpan()?.spanContext();
    if (!found || !api.isSpanContextValid(found)) return undefined;
    const flags = (found.traceFlags & 0xff).toString(16).padStart(2, "0");
    const state = found.traceState?.serialize();
    return {
        traceparent: `00-${found.traceId}-${found.spanId}-${flags}`,
        ...(state && { tracestate: state }),
    };
}

/* Returns the context of the call that enqueued the job. */
function originOf(api, job) {
    const { traceparent, tracestate } = job.metadata;
    const found = typeof traceparent === "string" ? PARENT.exec(traceparent) : null;
    if (!found) return undefined;
    const origin = {
        traceId: found[1],
        spanId: found[2],
        traceFlags: parseInt(found[3], 16),
        isRemote: true,
        traceState:
            typeof tracestate === "string" ? api.createTraceState(tracestate) : undefined,
    };
    return api.isSpanContextValid(origin) ? origin : undefined;
}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/* Returns the job with the context. A job of a wrong type is returned unchanged, and refused
 * later. */
function withContext(job, carrier) {
    if (!isObject(job) || !isObject(job.metadata ?? {})) return job;
    return { ...job, metadata: { ...carrier, ...job.metadata } };
}

const isEnqueue = (change) => isObject(change) && "truceEnqueue" in change;
const listOf = (name) =>
    name === "truceCommit" ? name : LISTS.includes(name) ? "changes" : undefined;

/* Returns the command with the current trace context in the metadata of the jobs that it adds. */
function traced(document) {
    const carrier = carrierOf(apiOf());
    if (!carrier) return document;
    const name = Object.keys(document)[0];
    if (name === "truceEnqueue") return withContext(document, carrier);
    if (name === "truceFlow" && Array.isArray(document.jobs))
        return { ...document, jobs: document.jobs.map((job) => withContext(job, carrier)) };
    const field = listOf(name);
    const changes = document[field];
    if (!Array.isArray(changes) || !changes.some(isEnqueue)) return document;
    const made = {
        ...document,
        [field]: changes.map((one) => (isEnqueue(one) ? withContext(one, carrier) : one)),
    };
    if (document.key !== undefined) made.input = document.input ?? { changes };
    return made;
}

/* ---- spans ----------------------------------------------------------------------------------- */

function attributes(queue, operation, type) {
    return {
        "messaging.system": "truce",
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": type,
    };
}

function jobAttributes(job, operation, type) {
    return {
        ...attributes(job.queue, operation, type),
        "messaging.message.id": String(job.id),
        "truce.job.attempt": Number(job.attempt),
    };
}

const tracerOf = (api) => api.trace.getTracer("truce");

/* The contexts of the calls that claimed jobs. */
const claims = new WeakMap();

/* Records the span of a call that claimed jobs. Calls that found no job have no span. */
function claimed(queue, jobs, began) {
    const api = apiOf();
    if (!api || jobs.length === 0) return;
    const links = jobs.map((job) => originOf(api, job)).filter((origin) => origin !== undefined);
    const span = tracerOf(api).startSpan(`claim ${queue}`, {
        kind: api.SpanKind.CLIENT,
        startTime: began,
        links: links.map((context) => ({ context })),
        attributes: {
            ...attributes(queue, "claim", "receive"),
            "messaging.batch.message_count": jobs.length,
        },
    });
    span.end();
    for (const job of jobs) claims.set(job, span.spanContext());
}

function fail(api, span, error) {
    if (error instanceof errors.Suspended) return;
    span.recordException(error instanceof Error ? error : String(error));
    span.setStatus({ code: api.SpanStatusCode.ERROR, message: error?.message ?? String(error) });
}

/* Runs a function within a span. An error that it throws is recorded. */
async function within(api, name, options, context, function_) {
    const span = tracerOf(api).startSpan(name, options, context);
    try {
        return await api.context.with(api.trace.setSpan(context, span), function_);
    } catch (error) {
        fail(api, span, error);
        throw error;
    } finally {
        span.end();
    }
}

/* Runs a function that works on a job, and reports its end, in a span. */
async function work(job, function_) {
    const api = apiOf();
    if (!api) return function_();
    const origin = originOf(api, job);
    const claim = claims.get(job);
    const options = {
        kind: api.SpanKind.CONSUMER,
        links: claim && api.isSpanContextValid(claim) ? [{ context: claim }] : [],
        attributes: jobAttributes(job, "process", "process"),
    };
    const root = api.ROOT_CONTEXT;
    const context = origin ? api.trace.setSpanContext(root, origin) : root;
    return within(api, `process ${job.queue}`, options, context, function_);
}

/* Records the error of a handler in the span of its job. */
function failed(error) {
    const api = apiOf();
    const span = api?.trace.getActiveSpan();
    if (span) fail(api, span, error);
}

/* Runs a function that reports the end of a job, in a span. */
async function end(job, operation, function_) {
    const api = apiOf();
    if (!api) return function_();
    const options = {
        kind: api.SpanKind.CLIENT,
        attributes: jobAttributes(job, operation, "settle"),
    };
    return within(api, `${operation} ${job.queue}`, options, api.context.active(), function_);
}

module.exports = { claimed, end, failed, traced, work };
