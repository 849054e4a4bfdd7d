package module

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"truce.invalid/truce"
	"truce.invalid/truce/truceotel"
	"truce.invalid/truce/trucetest"
)

type traces struct {
	*truce.Database
	exporter *tracetest.InMemoryExporter
	spans    trace.Tracer
}

func newTraces(t *testing.T) *traces {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	db := trucetest.OpenFile(t).WithTracer(truceotel.New(provider))
	return &traces{db, exporter, provider.Tracer("shop")}
}

// finished returns the spans by name, and removes them.
func (o *traces) finished() map[string][]tracetest.SpanStub {
	found := map[string][]tracetest.SpanStub{}
	for _, span := range o.exporter.GetSpans() {
		found[span.Name] = append(found[span.Name], span)
	}
	o.exporter.Reset()
	return found
}

// request runs a function in a span.
func (o *traces) request(work func(ctx context.Context)) trace.SpanContext {
	inner, span := o.spans.Start(ctx, "request")
	defer span.End()
	work(inner)
	return span.SpanContext()
}

func (o *traces) parents(t *testing.T, queue string) []any {
	return list(t, o.IterateJobs(ctx, queue, truce.JobsOptions{}), "metadata", "traceparent")
}

func TestTheTraceOfAJobContinues(t *testing.T) {
	o := newTraces(t)
	request := o.request(func(ctx context.Context) {
		_ = ok(o.Enqueue(ctx, "mail", truce.EnqueueOptions{Payloads: []M{{"n": 0}, {"n": 1}, {"n": 2}}, Metadata: M{"by": "ada"}}))(t)
	})
	same(t, o.parents(t, "mail")[0], "00-"+request.TraceID().String()+"-"+request.SpanID().String()+"-01")
	same(t, list(t, o.IterateJobs(ctx, "mail", truce.JobsOptions{}), "metadata", "by"), []any{"ada", "ada", "ada"})
	o.finished()
	w := truce.Worker{DB: o.Database, Queue: "mail", Concurrency: 3, UntilEmpty: true, Logger: slog.New(slog.DiscardHandler),
		Handler: func(ctx context.Context, job *truce.Job) (any, error) {
			_, own := o.spans.Start(ctx, "own")
			own.End()
			switch job.Payload.Int("n") {
			case 1:
				return nil, errors.New("no")
			case 2:
				return nil, job.Snooze(ctx, time.Hour)
			}
			return nil, nil
		}}
	must(t, w.Run(ctx))
	found := o.finished()
	names := map[string]int{}
	for name, spans := range found {
		names[name] = len(spans)
	}
	same(t, names, map[string]int{"claim mail": 1, "process mail": 3, "own": 3, "done mail": 1, "fail mail": 1, "snooze mail": 1})
	claim := found["claim mail"][0]
	same(t, len(claim.Links), 3)
	works := map[trace.SpanID]tracetest.SpanStub{}
	for _, work := range found["process mail"] {
		works[work.SpanContext.SpanID()] = work
		same(t, []any{work.SpanContext.TraceID(), work.Parent.SpanID(), work.SpanKind}, []any{request.TraceID(), request.SpanID(), trace.SpanKindConsumer})
		same(t, work.Links[0].SpanContext.SpanID(), claim.SpanContext.SpanID())
	}
	for _, own := range found["own"] {
		if _, has := works[own.Parent.SpanID()]; !has {
			t.Fatal("a span of the handler is not within the span of the work")
		}
	}
	for name, code := range map[string]codes.Code{"done mail": codes.Unset, "fail mail": codes.Error, "snooze mail": codes.Unset} {
		work := works[found[name][0].Parent.SpanID()]
		same(t, work.Status.Code, code)
		same(t, len(work.Events), map[codes.Code]int{codes.Error: 1}[code])
	}
}

func TestAKeyedCommitIsOneInEachTrace(t *testing.T) {
	o := newTraces(t)
	when := time.Now()
	send := func(ctx context.Context) bool {
		c := o.Commit(truce.CommitOptions{Key: "k", KeyTime: when})
		c.Enqueue("keyed", truce.EnqueueOptions{Payload: M{}})
		c.Insert("letters", M{"_id": 1})
		return ok(c.Run(ctx))(t).Earlier
	}
	var earlier []bool
	for range 2 {
		o.request(func(ctx context.Context) { earlier = append(earlier, send(ctx)) })
	}
	same(t, append(earlier, send(ctx)), []bool{false, true, true})
	same(t, len(o.parents(t, "keyed")), 1)
}

func TestListsOfJobsGetTheTraceContext(t *testing.T) {
	o := newTraces(t)
	_ = ok(o.Enqueue(ctx, "steps", truce.EnqueueOptions{Payload: M{}}))(t)
	trucetest.RunJobs(t, o.Database, "steps", func(ctx context.Context, job *truce.Job) (any, error) {
		step := job.Step("one", nil)
		step.Enqueue("stepped", truce.EnqueueOptions{Payload: M{}})
		must(t, step.Run(ctx))
		end := job.Commit(nil)
		end.Enqueue("ended", truce.EnqueueOptions{Payload: M{}})
		return nil, end.Run(ctx)
	})
	o.request(func(ctx context.Context) {
		_ = ok(o.Flow(ctx, "flows", truce.FlowOptions{Jobs: []M{{"name": "a", "payload": M{}}, {"name": "b", "payload": M{}, "after": []string{"a"}}}}))(t)
		must(t, o.Transact(ctx, func(tx *truce.Database) error {
			_, err := tx.Enqueue(ctx, "within", truce.EnqueueOptions{Payload: M{}, Metadata: M{"traceparent": "own"}})
			return err
		}))
	})
	for queue, count := range map[string]int{"stepped": 1, "ended": 1, "flows": 2} {
		parents := o.parents(t, queue)
		same(t, len(parents), count)
		same(t, slices.Contains(parents, any("")), false)
	}
	same(t, o.parents(t, "within"), []any{"own"})
	process := o.finished()["process steps"][0]
	same(t, o.parents(t, "ended")[0].(string)[3:35], process.SpanContext.TraceID().String())
	_ = ok(o.Enqueue(ctx, "wrong", truce.EnqueueOptions{Payload: M{}, Metadata: M{"traceparent": "nonsense", "tracestate": 17}}))(t)
	trucetest.RunJobs(t, o.Database, "wrong", func(context.Context, *truce.Job) (any, error) { return nil, nil })
	same(t, o.finished()["process wrong"][0].Parent.IsValid(), false)
}
