/*
 * A simulation by events (time, caller, action), in the order of time.
 *
 *     caller --SEND, half a trip--> shard: a queue, some workers --DONE--> effect
 *        ^                                                                   |
 *        +----------------- BACK, half a trip, a write's copies ------------+
 *
 * A caller does one thing at a time, so it has at most one event. A caller has no event while it
 * waits in a shard's queue, or while it waits in its process for a document that is being folded.
 *
 * The model simulates only the hot document: the others are so many that two callers do not
 * conflict. The hot document has a version (compared by a guard), a holder (a commit that locked
 * it), and a time until which the server writes it, because its writes are serialized.
 *
 * A file has one writer and no network: an operation waits for the writer, then for the next sync
 * that begins.
 */
#include "bench/scale_model.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/random.h"

#define MS         INT64_C(1000000)
#define US         INT64_C(1000)
#define NO_CALLER  -1
#define FOLD_STEPS "lg"

enum what { SEND, DONE, BACK, SYNCED };

struct event {
    int64_t at;
    uint64_t order;
    int caller;
    enum what what;
};

struct caller {
    const char *steps;
    int step, look; /* The current step, and the last step that read the hot document. */
    bool hot, folds;
    int64_t began;
    uint64_t version; /* The version of the hot document at the last read. */
    int tries;
    int shard;
    int next; /* The next caller in the same queue, or -1. */
    /* The followers of the leader of a batch: the first one, and the `next` of each. */
    int followers;
};

struct line {
    int first, last;
};

struct shard {
    struct line queue;
    int busy;
    int64_t worked;
};

struct fold {
    bool going;
    struct line waiting;
};

struct simulation {
    const struct scale_operation *operation;
    const struct scale_world *world;
    struct random random;
    /* The future events, as a heap with the earliest first. `order` numbers all events, so that
     * events of one time keep their order. */
    struct event *heap;
    size_t count;
    uint64_t order;
    int64_t now, from; /* The current time, and the start of the measurement. */
    int64_t begun;     /* The number of operations that have ended in the warm-up. */
    struct caller *callers;
    struct shard *shards;
    struct fold *folds;
    /* The version of the hot document, and the caller whose commit has locked it, or NO_CALLER. */
    uint64_t version;
    int holder;
    /* The end of the last write that has begun. Writes of the hot document, and all writes to a
     * file, run one after the other. */
    int64_t writes_until;
    struct line written; /* The callers whose writes to the file are not synced yet. */
    /* The first of the callers that wait for the running sync. */
    int syncing;
    /* The numbers of operations and of messages in the measurement, and the latency of each
     * operation in ns. */
    int64_t done, messages;
    int64_t *latencies;
    size_t latencies_room;
};

/* ---- events --------------------------------------------------------------------------------- */

static bool earlier(const struct event *a, const struct event *b)
{
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void model_put(struct simulation *s, int64_t at, int caller, enum what what)
{
    struct event event = {at, s->order++, caller, what};
    size_t i = s->count++;

    for (; i > 0 && earlier(&event, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = event;
}

static struct event model_take(struct simulation *s)
{
    struct event first = s->heap[0], last = s->heap[--s->count];
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < s->count; i = child) {
        if (child + 1 < s->count && earlier(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!earlier(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = last;
    return first;
}

static void line_put(struct simulation *s, struct line *line, int caller)
{
    s->callers[caller].next = NO_CALLER;
    if (line->first == NO_CALLER)
        line->first = caller;
    else
        s->callers[line->last].next = caller;
    line->last = caller;
}

static int line_take(struct simulation *s, struct line *line)
{
    int caller = line->first;

    if (caller != NO_CALLER)
        line->first = s->callers[caller].next;
    return caller;
}

/* ---- operations ----------------------------------------------------------------------------- */

static int64_t around(struct simulation *s, int64_t ns)
{
    return ns / 2 + (int64_t)truce__random_below(&s->random, (uint64_t)ns + 1);
}

static struct fold *fold_of(struct simulation *s, int caller)
{
    return &s->folds[caller / s->world->in_process];
}

static void send_message(struct simulation *s, int caller, int64_t later)
{
    struct caller *c = &s->callers[caller];
    char letter = c->steps[c->step];

    if (isupper((unsigned char)letter) || (c->hot && strchr("lhgtf", letter)))
        c->shard = 0;
    else
        c->shard = (int)truce__random_below(&s->random, (uint64_t)s->world->shards);
    model_put(s, s->now + later + s->world->trip_ns / 2, caller, SEND);
}

static void model_begin(struct simulation *s, int caller)
{
    struct caller *c = &s->callers[caller];

    *c = (struct caller){
        .steps = s->operation->steps, .began = s->now, .version = s->version, .look = NO_CALLER};
    c->hot = (int)truce__random_below(&s->random, 1000) < s->world->hot_permille;
    if (!s->world->shards) {
        model_put(s, s->now, caller, SEND);
        return;
    }
    if (c->hot && s->operation->turn == SCALE_FOLDS) {
        struct fold *fold = fold_of(s, caller);

        c->folds = true;
        if (fold->going) {
            line_put(s, &fold->waiting, caller);
            return;
        }
        fold->going = true;
        c->followers = NO_CALLER;
    }
    send_message(s, caller, s->world->front_ns);
}

/* Returns whether operations count. The first ones do not, because not all callers have begun. */
static bool model_counts(const struct simulation *s)
{
    return s->begun == s->world->callers * s->world->turns / 4;
}

static void count_latency(struct simulation *s, int64_t ns)
{
    if (!model_counts(s)) {
        s->begun++;
        s->from = s->now;
        return;
    }
    if ((size_t)s->done == s->latencies_room) {
        s->latencies_room = s->latencies_room ? 2 * s->latencies_room : 1024;
        s->latencies = realloc(s->latencies, s->latencies_room * sizeof *s->latencies);
        truce_assert(s->latencies);
    }
    s->latencies[s->done++] = ns;
}

/* Ends the operations of a finished batch. The callers that waited in the meantime form the next
 * batch. */
static void end_fold(struct simulation *s, int leader)
{
    struct fold *fold = fold_of(s, leader);
    int next = fold->waiting.first;

    fold->waiting.first = NO_CALLER;
    fold->going = next != NO_CALLER;
    if (fold->going) {
        s->callers[next].followers = s->callers[next].next;
        if (s->callers[next].followers != NO_CALLER)
            s->callers[next].steps = FOLD_STEPS;
        send_message(s, next, 0);
    }
    for (int caller = leader, then; caller != NO_CALLER; caller = then) {
        then = caller == leader ? s->callers[caller].followers : s->callers[caller].next;
        count_latency(s, s->now - s->callers[caller].began);
        model_begin(s, caller);
    }
}

static void model_end(struct simulation *s, int caller)
{
    struct caller *c = &s->callers[caller];

    if (c->folds) {
        end_fold(s, caller);
        return;
    }
    count_latency(s, s->now - c->began);
    model_begin(s, caller);
}

/* ---- a shard -------------------------------------------------------------------------------- */

static bool is_write(char letter)
{
    return strchr("whgtf", tolower((unsigned char)letter)) != NULL;
}

static bool is_hot_write(const struct caller *c)
{
    return c->hot && strchr("hgtf", tolower((unsigned char)c->steps[c->step]));
}

static void model_work(struct simulation *s, int caller)
{
    struct caller *c = &s->callers[caller];
    struct shard *shard = &s->shards[c->shard];
    int64_t ns = around(s, is_write(c->steps[c->step]) ? s->world->write_ns : s->world->read_ns);
    int64_t start = s->now;

    if (is_hot_write(c)) {
        start = s->writes_until > s->now ? s->writes_until : s->now;
        s->writes_until = start + ns;
    }
    shard->busy++;
    if (model_counts(s))
        shard->worked += start + ns - s->now;
    model_put(s, start + ns, caller, DONE);
}

static void arrive(struct simulation *s, int caller)
{
    struct shard *shard = &s->shards[s->callers[caller].shard];

    if (model_counts(s))
        s->messages++;
    if (shard->busy < s->world->workers)
        model_work(s, caller);
    else
        line_put(s, &shard->queue, caller);
}

/* Returns a random pause, after which a step is tried again. */
static int64_t model_pause_of(struct simulation *s, struct caller *c)
{
    int tries = c->tries++;

    return tries ? around(s, MS << (tries < 6 ? tries : 6)) / 2 : 0;
}

/* Applies the message to the hot document. Returns false if it had no effect, and the operation
 * continues. */
static bool take_effect(struct simulation *s, int caller, int64_t *pause)
{
    struct caller *c = &s->callers[caller];
    char letter = (char)tolower((unsigned char)c->steps[c->step]);

    *pause = 0;
    if (!c->hot)
        return true;
    if (letter == 'l') {
        c->look = c->step;
        c->version = s->version;
    } else if (letter == 'g' && c->version != s->version) {
        if (c->look == NO_CALLER)
            c->steps = isupper((unsigned char)c->steps[c->step]) ? "LG" : "lg";
        c->step = c->look == NO_CALLER ? 0 : c->look;
        *pause = model_pause_of(s, c);
        return false;
    } else if (letter == 't' && s->holder != NO_CALLER) {
        if (s->operation->turn == SCALE_AGAIN)
            c->step = 0;
        *pause = model_pause_of(s, c);
        if (s->operation->turn == SCALE_AGAIN) {
            /* One more message aborts the transaction on the server. */
            *pause += s->world->trip_ns;
            if (model_counts(s))
                s->messages++;
        }
        return false;
    } else if (letter == 't') {
        s->holder = caller;
    } else if (letter == 'f') {
        s->holder = NO_CALLER;
    }
    if (strchr("hgf", letter))
        s->version++;
    return true;
}

static void model_answer(struct simulation *s, int caller)
{
    struct caller *c = &s->callers[caller];
    struct shard *shard = &s->shards[c->shard];
    int64_t copy = is_write(c->steps[c->step]) ? s->world->copy_ns : 0, pause;
    int next;

    shard->busy--;
    next = line_take(s, &shard->queue);
    if (next != NO_CALLER)
        model_work(s, next);
    if (take_effect(s, caller, &pause))
        c->step++;
    else
        copy = pause;
    model_put(s, s->now + copy + s->world->trip_ns / 2, caller, BACK);
}

static void model_go_on(struct simulation *s, int caller)
{
    if (s->callers[caller].steps[s->callers[caller].step])
        send_message(s, caller, 0);
    else
        model_end(s, caller);
}

/* ---- a file --------------------------------------------------------------------------------- */

static void write_to_file(struct simulation *s, int caller)
{
    int64_t start = s->writes_until > s->now ? s->writes_until : s->now;

    s->writes_until = start + around(s, s->operation->file_us * US);
    if (model_counts(s))
        s->messages++;
    model_put(s, s->writes_until, caller, DONE);
}

static void model_begin_sync(struct simulation *s)
{
    s->syncing = s->written.first;
    s->written.first = NO_CALLER;
    if (s->syncing != NO_CALLER)
        model_put(s, s->now + around(s, s->world->sync_ns), s->syncing, SYNCED);
}

static void written_to_file(struct simulation *s, int caller)
{
    line_put(s, &s->written, caller);
    if (s->syncing == NO_CALLER)
        model_begin_sync(s);
}

static void synced(struct simulation *s)
{
    int caller = s->syncing, next;

    model_begin_sync(s);
    for (; caller != NO_CALLER; caller = next) {
        next = s->callers[caller].next;
        count_latency(s, s->now - s->callers[caller].began);
        model_begin(s, caller);
    }
}

/* ---- a run ---------------------------------------------------------------------------------- */

static void happen(struct simulation *s, struct event event)
{
    bool file = !s->world->shards;

    s->now = event.at;
    if (event.what == SEND)
        (file ? write_to_file : arrive)(s, event.caller);
    else if (event.what == DONE)
        (file ? written_to_file : model_answer)(s, event.caller);
    else if (event.what == BACK)
        model_go_on(s, event.caller);
    else
        synced(s);
}

static int model_compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static struct scale_figure figure_of(struct simulation *s)
{
    struct scale_figure figure = {0};
    int64_t most = 0, length = s->now - s->from;

    qsort(s->latencies, (size_t)s->done, sizeof *s->latencies, model_compare);
    figure.rate = (double)s->done * 1e9 / (double)length;
    figure.p50_ns = s->latencies[s->done / 2];
    figure.p99_ns = s->latencies[s->done * 99 / 100];
    figure.messages = (double)s->messages / (double)s->done;
    for (int i = 0; i < s->world->shards; i++)
        most = s->shards[i].worked > most ? s->shards[i].worked : most;
    figure.busiest = (double)most / (double)length / s->world->workers;
    return figure;
}

struct scale_figure scale_simulate(const struct scale_operation *operation,
                                   const struct scale_world *world)
{
    int folds = world->callers / world->in_process + 1;
    struct simulation s = {.operation = operation, .world = world, .holder = NO_CALLER};
    struct scale_figure figure;

    s.written.first = s.syncing = NO_CALLER;
    truce__random_seed(&s.random, world->seed);
    s.heap = calloc((size_t)world->callers + 2, sizeof *s.heap);
    s.callers = calloc((size_t)world->callers, sizeof *s.callers);
    s.shards = calloc((size_t)world->shards + 1, sizeof *s.shards);
    s.folds = calloc((size_t)folds, sizeof *s.folds);
    truce_assert(s.heap && s.callers && s.shards && s.folds);
    for (int i = 0; i <= world->shards; i++)
        s.shards[i].queue.first = NO_CALLER;
    for (int i = 0; i < folds; i++)
        s.folds[i].waiting.first = NO_CALLER;
    /* The callers begin at different times. */
    for (int i = 0; i < world->callers; i++) {
        s.now = (int64_t)truce__random_below(&s.random, (uint64_t)world->trip_ns + 1);
        model_begin(&s, i);
    }
    while (s.done < (int64_t)world->callers * world->turns)
        happen(&s, model_take(&s));
    figure = figure_of(&s);
    free(s.heap);
    free(s.callers);
    free(s.shards);
    free(s.folds);
    free(s.latencies);
    return figure;
}
