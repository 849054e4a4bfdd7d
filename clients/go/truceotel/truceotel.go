// Package truceotel makes spans of OpenTelemetry for the jobs of truce, and lets the trace context
// travel in the metadata of jobs (W3C: traceparent and tracestate).
//
//	db = db.WithTracer(truceotel.New())
//
// A worker makes three spans for a job, named as the conventions for messaging say:
//
//	claim QUEUE      the call that claimed the job; it is linked to each claimed job
//	process QUEUE    the handler, in the trace of the caller that enqueued the job
//	done QUEUE       the report of the end; also fail, snooze, and discard
package truceotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"truce.invalid/truce"
)

var fields = propagation.TraceContext{}

type tracer struct{ spans trace.Tracer }

// New returns a tracer with the provider, or with the global one.
func New(providers ...trace.TracerProvider) truce.Tracer {
	provider := otel.GetTracerProvider()
	if len(providers) > 0 {
		provider = providers[0]
	}
	return &tracer{spans: provider.Tracer("truce.invalid/truce")}
}

func (t *tracer) Metadata(ctx context.Context) map[string]string {
	carrier := propagation.MapCarrier{}
	fields.Inject(ctx, carrier)
	return carrier
}

// origin returns a context with the span of the caller that enqueued the job.
func origin(ctx context.Context, job *truce.Job) context.Context {
	carrier := propagation.MapCarrier{}
	for _, name := range fields.Fields() {
		if text := job.Document.Text("metadata", name); text != "" {
			carrier[name] = text
		}
	}
	return fields.Extract(trace.ContextWithSpanContext(ctx, trace.SpanContext{}), carrier)
}

func attributes(queue, operation, kind string) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "truce"),
		attribute.String("messaging.destination.name", queue),
		attribute.String("messaging.operation.name", operation),
		attribute.String("messaging.operation.type", kind),
	}
}

func (t *tracer) Claimed(ctx context.Context, queue string, began time.Time, jobs []*truce.Job) {
	var links []trace.Link
	for _, job := range jobs {
		if found := trace.SpanContextFromContext(origin(ctx, job)); found.IsValid() {
			links = append(links, trace.Link{SpanContext: found})
		}
	}
	_, span := t.spans.Start(ctx, "claim "+queue, trace.WithTimestamp(began),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links...),
		trace.WithAttributes(attributes(queue, "claim", "receive")...),
		trace.WithAttributes(attribute.Int("messaging.batch.message_count", len(jobs))))
	span.End()
	for _, job := range jobs {
		job.Trace = span.SpanContext()
	}
}

func (t *tracer) Start(
	ctx context.Context, operation string, job *truce.Job,
) (context.Context, func(error)) {
	kind, name := trace.SpanKindClient, "settle"
	options := []trace.SpanStartOption{}
	if operation == "process" {
		kind, name = trace.SpanKindConsumer, "process"
		ctx = origin(ctx, job)
		if claim, has := job.Trace.(trace.SpanContext); has && claim.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: claim}))
		}
	}
	options = append(options, trace.WithSpanKind(kind),
		trace.WithAttributes(attributes(job.Queue, operation, name)...),
		trace.WithAttributes(attribute.String("messaging.message.id", job.ID.Hex()),
			attribute.Int64("truce.job.attempt", job.Attempt)))
	inner, span := t.spans.Start(ctx, operation+" "+job.Queue, options...)
	return inner, func(err error) {
		if err != nil && !errors.Is(err, truce.ErrSuspended) {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}
