package truce

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Tracer makes spans for jobs, and lets the trace context travel in their metadata. The package
// truceotel has one for OpenTelemetry:
//
//	db = db.WithTracer(truceotel.New())
type Tracer interface {
	// Metadata returns the fields of the context that the metadata of new jobs get, or nil.
	Metadata(ctx context.Context) map[string]string
	// Claimed records that a call, which began at a time, claimed jobs.
	Claimed(ctx context.Context, queue string, began time.Time, jobs []*Job)
	// Start begins a span for a handler ("process"), or for the report of the end of a job ("done",
	// "fail", "snooze", or "discard"). The function ends the span; its error is nil or the failure.
	Start(ctx context.Context, operation string, job *Job) (context.Context, func(error))
}

// WithTracer returns the same database with a tracer.
func (db *Database) WithTracer(t Tracer) *Database {
	other := *db
	other.tracer = t
	return &other
}

// Work calls a function for a job in a span of the tracer ("process"). Workers and trucetest call
// it; call it for jobs that you claim without a worker.
func (j *Job) Work(ctx context.Context, work func(ctx context.Context) error) error {
	return j.span(ctx, "process", work)
}

func (j *Job) span(
	ctx context.Context, operation string, work func(ctx context.Context) error,
) error {
	if j.db.tracer == nil {
		return work(ctx)
	}
	inner, end := j.db.tracer.Start(ctx, operation, j)
	err := errors.New("the traced function panicked or called runtime.Goexit")
	defer func() { end(err) }()
	err = work(inner)
	return err
}

// ---- the trace context in the metadata of jobs ---------------------------------------------------

// traced returns the command with the trace context in the metadata of the jobs that it adds.
func (db *Database) traced(ctx context.Context, name string, request bson.Raw) bson.Raw {
	if db.tracer == nil || !slices.Contains([]string{"truceEnqueue", "truceFlow", "truceCommit",
		"truceJobCommit", "truceJobStep"}, name) {
		return request
	}
	fields := db.tracer.Metadata(ctx)
	if len(fields) == 0 {
		return request
	}
	switch name {
	case "truceEnqueue":
		return withMetadata(request, fields)
	case "truceFlow":
		return withList(request, "jobs", func(bson.Raw) bool { return true }, fields)
	case "truceCommit":
		return tracedCommit(request, fields)
	default:
		return withList(request, "changes", isEnqueue, fields)
	}
}

func isEnqueue(change bson.Raw) bool { return nameOf(change) == "truceEnqueue" }

// tracedCommit does not let the context identify a commit with a key: another attempt has another
// context. Such a commit is identified by its changes without the context.
func tracedCommit(request bson.Raw, fields map[string]string) bson.Raw {
	const name = "truceCommit"
	made := withList(request, name, isEnqueue, fields)
	_, keyErr := request.LookupErr("key")
	_, inputErr := request.LookupErr("input")
	if keyErr != nil || inputErr == nil || len(made) == len(request) {
		return made
	}
	d := &document{buf: slices.Clone(made[:len(made)-1])}
	input := d.begin(bson.TypeEmbeddedDocument, "input")
	d.putRaw("changes", request.Lookup(name))
	d.end(input)
	return finished(d, made)
}

// withMetadata adds fields to the metadata of a job, unless the job has them.
func withMetadata(job bson.Raw, fields map[string]string) bson.Raw {
	stored, err := job.LookupErr("metadata")
	metadata, is := stored.DocumentOK()
	if err == nil && !is {
		return job // The server refuses the job.
	}
	d := newDocument()
	eachElement(job, func(key string, value bson.RawValue) {
		if key != "metadata" {
			d.putRaw(key, value)
		}
	})
	start := d.begin(bson.TypeEmbeddedDocument, "metadata")
	eachElement(metadata, d.putRaw)
	for key, value := range fields {
		if _, err := metadata.LookupErr(key); err != nil {
			d.putText(key, value)
		}
	}
	d.end(start)
	return finished(d, job)
}

// withList adds fields to the metadata of the selected elements of a list.
func withList(
	request bson.Raw, list string, selects func(bson.Raw) bool, fields map[string]string,
) bson.Raw {
	d := newDocument()
	eachElement(request, func(key string, value bson.RawValue) {
		array, is := value.ArrayOK()
		if key != list || !is {
			d.putRaw(key, value)
			return
		}
		start := d.begin(bson.TypeArray, key)
		eachElement(bson.Raw(array), func(index string, value bson.RawValue) {
			if one, is := value.DocumentOK(); is && selects(one) {
				d.putDocument(index, withMetadata(one, fields))
			} else {
				d.putRaw(index, value)
			}
		})
		d.end(start)
	})
	return finished(d, request)
}

func eachElement(of bson.Raw, use func(key string, value bson.RawValue)) {
	elements, _ := of.Elements()
	for _, element := range elements {
		use(element.Key(), element.Value())
	}
}

// finished returns the document that was made, or the other one if it is too large.
func finished(d *document, other bson.Raw) bson.Raw {
	made, err := d.finish()
	if err != nil {
		return other
	}
	return made
}
