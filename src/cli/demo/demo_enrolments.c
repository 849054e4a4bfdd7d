/*
 * truce demo enrolments: students enrol and unenrol through a message queue. Its consumers are
 * killed again and again. The naive code applies the messages as they come, with $addToSet and
 * $pull; then truce applies the same messages. Both results are compared with an in-order run.
 *
 * This process is the queue. It delivers messages in the order of their arrival, several at a time.
 * It delivers them again if the consumer died before it acknowledged them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "bson/value.h"
#include "cli/commands.h"
#include "cli/core/worker_pool.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"
#include "cli/set/set.h"

#define CLASSES 12 /* The number of distinct classes. */
/* The number of messages that are delivered at a time, like the prefetch of a queue. */
#define HANDED_OUT     25
#define KILL_EVERY_NS  1000000000
#define KILLS_AT_LEAST 5

struct message_plan {
    int student, class;
    bool insert;
    int64_t seq;
};

struct enrolments {
    struct cli *cli;
    int messages, students, consumers;
    /* The messages in the order of their publication: seq 1, 2, 3 ... */
    struct message_plan *published;
    /* published[arrival[i]] is the i-th message to arrive. */
    int *arrival;
    /* The length of `arrival`: more than `messages`, because some arrive twice. */
    int arrivals;
    /* winner[student * CLASSES + class]: the number of the last message, negated for a delete, or 0
     * if there is no message. */
    int64_t *winner;
    struct demo_stage stage;
};

struct outcome {
    /* The number of students whose classes are wrong, and of consumers that were killed. */
    int wrong;
    int64_t killed;
    double seconds;
};

/* ---- the messages ---- */

/* Makes the messages, and the winner of each student and class: the last message decides. */
static void enrolments_publish(struct enrolments *demo, struct random *random)
{
    demo->published = bson_malloc((size_t)demo->messages * sizeof *demo->published);
    demo->winner = bson_malloc0((size_t)demo->students * CLASSES * sizeof *demo->winner);
    for (int i = 0; i < demo->messages; i++) {
        struct message_plan *message = &demo->published[i];
        int64_t *standing;

        message->student = (int)truce__random_below(random, (uint64_t)demo->students);
        message->class = (int)truce__random_below(random, CLASSES);
        standing = &demo->winner[message->student * CLASSES + message->class];
        message->insert = *standing <= 0; /* Alternates: enrol, unenrol, enrol again, and so on. */
        message->seq = i + 1;
        *standing = message->insert ? message->seq : -message->seq;
    }
}

/* Duplicates one message in twenty, and then shuffles all messages. */
static void enrolments_shuffle_arrivals(struct enrolments *demo, struct random *random)
{
    demo->arrivals = demo->messages + demo->messages / 20;
    demo->arrival = bson_malloc((size_t)demo->arrivals * sizeof *demo->arrival);
    for (int i = 0; i < demo->arrivals; i++)
        demo->arrival[i] =
            i < demo->messages ? i : (int)truce__random_below(random, (uint64_t)demo->messages);
    for (int i = demo->arrivals - 1; i > 0; i--) {
        int other = (int)truce__random_below(random, (uint64_t)i + 1);
        int kept = demo->arrival[i];

        demo->arrival[i] = demo->arrival[other];
        demo->arrival[other] = kept;
    }
}

static void append_message(struct buffer *frame, int64_t line, const struct message_plan *message)
{
    char text[200];
    uint32_t size = (uint32_t)snprintf(text, sizeof text,
                                       "{\"operation\": \"%s\", \"student_id\": %d, "
                                       "\"class\": \"CS %d\", \"sequence_number\": %" PRId64 "}",
                                       message->insert ? "insert" : "delete", message->student,
                                       101 + message->class, message->seq);

    truce__buffer_append(frame, &line, 8);
    truce__buffer_append(frame, &size, 4);
    truce__buffer_append(frame, text, size);
}

/* ---- the queue ---- */

struct queue {
    struct enrolments *demo;
    struct pool *pool;
    /* The index of the next arrival to deliver. */
    int next;
    /* The number of messages that were acknowledged. */
    int acknowledged;
    /* The number of kills, and the time of the last one (monotonic). */
    int64_t kills, killed_ns;
};

static truce_status enrolments_take_answer(void *arg, void *tag, const uint8_t *bytes, size_t size,
                                           bson_error_t *error)
{
    struct queue *queue = arg;
    bson_t answer;
    bson_iter_t failed;

    if (!bson_init_static(&answer, bytes, size))
        return truce__fail(TRUCE_IO, error, "a consumer's answer is not a document");
    if (bson_iter_init_find(&failed, &answer, "failed") && BSON_ITER_HOLDS_UTF8(&failed))
        return truce__fail(TRUCE_IO, error, "%s", bson_iter_utf8(&failed, NULL));
    queue->acknowledged += (int)(intptr_t)tag;
    return TRUCE_OK;
}

/* Fills the queue of each worker with messages in the order of their arrival. */
static void enrolments_hand_out(struct queue *queue)
{
    const struct enrolments *demo = queue->demo;

    for (int worker = 0; worker < demo->consumers; worker++) {
        while (!pool_full(queue->pool, worker) && queue->next < demo->arrivals) {
            struct buffer frame = {0};
            int count = 0;

            for (; count < HANDED_OUT && queue->next < demo->arrivals; count++, queue->next++)
                append_message(&frame, queue->next, &demo->published[demo->arrival[queue->next]]);
            pool_give(queue->pool, worker, &frame, (void *)(intptr_t)count);
        }
    }
}

/* Kills a consumer every second. In a shorter run, the kills are at equal distances. */
static void kill_one(struct queue *queue)
{
    const struct enrolments *demo = queue->demo;
    int64_t now = truce__clock_monotonic_ns();
    int64_t due = (int64_t)demo->arrivals * (queue->kills + 1) / (KILLS_AT_LEAST + 1);

    if (now - queue->killed_ns < KILL_EVERY_NS &&
        (queue->acknowledged < due || queue->kills >= KILLS_AT_LEAST))
        return;
    pool_kill(queue->pool, (int)(queue->kills % demo->consumers));
    queue->kills++;
    queue->killed_ns = now;
}

static truce_status run_queue(struct queue *queue, bson_error_t *error)
{
    const struct enrolments *demo = queue->demo;
    truce_status status = TRUCE_OK;

    queue->killed_ns = truce__clock_monotonic_ns();
    while (!status && queue->acknowledged < demo->arrivals) {
        enrolments_hand_out(queue);
        status = pool_step(queue->pool, 20, error);
        if (queue->acknowledged < demo->arrivals)
            kill_one(queue);
    }
    return status;
}

/* ---- checking against the in-order run ---- */

static int enrolments_class_of(const char *name)
{
    int number = atoi(name + strlen("CS ")) - 101;

    return number >= 0 && number < CLASSES ? number : -1;
}

/* Returns whether the list is the result of in-order, exactly-once delivery. If `numbers` is true,
 * sequence numbers are compared, too. */
static bool enrolments_is_right(const struct enrolments *demo, int student, struct value list,
                                bool numbers)
{
    const int64_t *winner = &demo->winner[student * CLASSES];
    int count[CLASSES] = {0};
    struct fields fields;

    if (list.type == BSON_TYPE_ARRAY) {
        fields = truce__fields(list);
        while (truce__fields_next(&fields)) {
            bson_t entry;
            bson_iter_t name, seq;
            int class;

            truce__value_bson(fields.value, &entry);
            if (!bson_iter_init_find(&name, &entry, "name") || !BSON_ITER_HOLDS_UTF8(&name))
                return false;
            class = enrolments_class_of(bson_iter_utf8(&name, NULL));
            if (class < 0 || count[class]++)
                return false;
            if (numbers && (!bson_iter_init_find(&seq, &entry, "seq") ||
                            bson_iter_as_int64(&seq) != winner[class]))
                return false;
        }
    }
    for (int class = 0; class < CLASSES; class ++) {
        if (count[class] != (winner[class] > 0))
            return false;
    }
    return true;
}

static bool was_touched(const struct enrolments *demo, int student)
{
    for (int class = 0; class < CLASSES; class ++) {
        if (demo->winner[student * CLASSES + class])
            return true;
    }
    return false;
}

/* Counts the students whose classes are wrong. A second document of a student is wrong, and so is a
 * missing one if a message changes this student. */
static truce_status enrolments_check(const struct enrolments *demo, truce_store *store,
                                     bool numbers, int *wrong, bson_error_t *error)
{
    bool *right = bson_malloc0((size_t)demo->students * sizeof *right);
    bool *seen = bson_malloc0((size_t)demo->students * sizeof *seen);
    truce_cursor *cursor = NULL;
    const bson_t *document;
    truce_status status = truce_find(store, "students", NULL, NULL, &cursor, error);

    while (!status) {
        bson_iter_t id;
        int64_t student;

        status = truce_cursor_next(cursor, &document, error);
        if (status || !document)
            break;
        if (!bson_iter_init_find(&id, document, "student_id"))
            continue;
        student = bson_iter_as_int64(&id);
        if (student < 0 || student >= demo->students)
            continue;
        right[student] =
            !seen[student] &&
            enrolments_is_right(demo, (int)student,
                                truce__value_field(truce__value_document(document), "classes", 7),
                                numbers);
        /* A second document of a student is wrong, whatever its content. */
        seen[student] = true;
    }
    if (cursor)
        truce_cursor_close(cursor);
    *wrong = 0;
    for (int i = 0; i < demo->students; i++)
        *wrong += !right[i] && (seen[i] || was_touched(demo, i));
    bson_free(right);
    bson_free(seen);
    return status;
}

/* ---- one way ---- */

static truce_status prepare_usual(truce_store *store, bson_error_t *error)
{
    bson_t index = BSON_INITIALIZER, key;
    truce_status status;

    bson_append_document_begin(&index, "key", -1, &key);
    bson_append_int32(&key, "student_id", -1, 1);
    bson_append_document_end(&index, &key);
    bson_append_bool(&index, "unique", -1, true);
    status = truce_index_create(store, "students", &index, error);
    bson_destroy(&index);
    return status;
}

/* Plays the story once, with code as it is usually written or with truce, and counts the students
 * whose classes are wrong. */
static truce_status run_way(struct enrolments *demo, bool usual, struct outcome *outcome,
                            bson_error_t *error)
{
    const char *argv[] = {"set",
                          "worker",
                          "students",
                          "--store",
                          demo->stage.uri,
                          "--list",
                          "classes",
                          "--key",
                          "student_id",
                          "--name",
                          "name",
                          "--message-element",
                          "class",
                          usual ? "--usual" : NULL,
                          NULL};
    struct queue queue = {.demo = demo};
    truce_store *store = NULL;
    int64_t started_ns;
    truce_status status;

    status = demo_stage_clear(&demo->stage, error);
    if (!status)
        status = truce_store_open(demo->stage.uri, NULL, &store, error);
    if (!status && usual)
        status = prepare_usual(store, error);
    started_ns = truce__clock_monotonic_ns();
    if (!status)
        status =
            pool_new(argv, demo->consumers, enrolments_take_answer, &queue, &queue.pool, error);
    if (!status)
        status = run_queue(&queue, error);
    outcome->seconds = (double)(truce__clock_monotonic_ns() - started_ns) / 1e9;
    outcome->killed = queue.pool ? pool_deaths(queue.pool) : 0;
    pool_free(queue.pool);
    if (!status)
        status = enrolments_check(demo, store, !usual, &outcome->wrong, error);
    truce_store_close(store);
    return status;
}

/* ---- the table ---- */

/* Formats 20000 as "20,000". */
static const char *enrolments_format_number(int64_t number, char *text, size_t size)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%" PRId64, number);
    size_t at = 0;

    for (int i = 0; i < length && at + 2 < size; i++) {
        if (i && (length - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = 0;
    return text;
}

static void print_table(const struct enrolments *demo, const struct outcome *usual,
                        const struct outcome *truce)
{
    char a[32], b[32], c[32], d[32];

    printf("enrolments   %s messages out of order, duplicated; %d consumers, killed %" PRId64
           " and %" PRId64 " times\n",
           enrolments_format_number(demo->messages, a, sizeof a), demo->consumers, usual->killed,
           truce->killed);
    printf("             usual way  %8s of %s students wrong\n",
           enrolments_format_number(usual->wrong, b, sizeof b),
           enrolments_format_number(demo->students, c, sizeof c));
    printf(
        "             truce      %8s of %s wrong      %s applied/s     checked against an "
        "in-order run\n",
        enrolments_format_number(truce->wrong, b, sizeof b),
        enrolments_format_number(demo->students, c, sizeof c),
        enrolments_format_number((int64_t)((double)demo->arrivals / truce->seconds), d, sizeof d));
}

static void enrolments_print_json(const struct enrolments *demo, const struct outcome *usual,
                                  const struct outcome *truce)
{
    bson_t answer = BSON_INITIALIZER;

    bson_append_utf8(&answer, "demo", -1, "enrolments", -1);
    bson_append_int32(&answer, "messages", -1, demo->messages);
    bson_append_int32(&answer, "arrivals", -1, demo->arrivals);
    bson_append_int32(&answer, "students", -1, demo->students);
    bson_append_int32(&answer, "consumers", -1, demo->consumers);
    bson_append_int32(&answer, "usual_wrong", -1, usual->wrong);
    bson_append_int64(&answer, "usual_killed", -1, usual->killed);
    bson_append_int32(&answer, "truce_wrong", -1, truce->wrong);
    bson_append_int64(&answer, "truce_killed", -1, truce->killed);
    bson_append_double(&answer, "truce_seconds", -1, truce->seconds);
    cli_print(&answer, JSON_RELAXED);
    bson_destroy(&answer);
}

/* Runs both ways with the same messages, and prints the results. Returns CLI_NO if the result of
 * truce is wrong. */
static int enrolments_play(struct enrolments *demo)
{
    struct outcome usual = {0}, truce = {0};
    struct random random;
    bson_error_t error;
    truce_status status;

    truce__random_seed(&random, truce__random_entropy());
    enrolments_publish(demo, &random);
    enrolments_shuffle_arrivals(demo, &random);
    status = run_way(demo, true, &usual, &error);
    if (!status)
        status = run_way(demo, false, &truce, &error);
    if (status)
        return cli_error(demo->cli, NULL, status, &error);
    if (demo->cli->json)
        enrolments_print_json(demo, &usual, &truce);
    else
        print_table(demo, &usual, &truce);
    return truce.wrong ? CLI_NO : CLI_DONE;
}

int demo_enrolments(struct cli *cli)
{
    struct enrolments demo = {.cli = cli};
    int64_t messages, students, consumers;
    int code;

    if (!cli_number(cli, "messages", 100, 10000000, 20000, &messages) ||
        !cli_number(cli, "students", 1, 1000000, 2000, &students) ||
        !cli_number(cli, "consumers", 1, 64, 5, &consumers))
        return CLI_USAGE;
    demo.messages = (int)messages;
    demo.students = (int)students;
    demo.consumers = (int)consumers;
    code = demo_stage_begin(&demo.stage, cli, "enrolments", NULL);
    if (code)
        return code;
    code = enrolments_play(&demo);
    demo_stage_end(&demo.stage);
    bson_free(demo.published);
    bson_free(demo.arrival);
    bson_free(demo.winner);
    return code;
}
