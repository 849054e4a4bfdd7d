#include "tests/support/turns.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/random.h"
#include "base/status.h"

#define CHOICES_MAX 400
#define LATE_MAX    4
#define OPTIONS_MAX 64
#define BURST       40

enum decision { GO, DIE_BEFORE, DIE_AFTER, LOSE, LATE };
static const char *const decision_names[] = {"", " dies before", " dies after", " loses", " late"};

struct turns;

/* The store of one client. */
struct client {
    /* Must be the first field: the functions of the store get a pointer to it. */
    truce_store base;
    struct turns *turns;
    int number;
    pthread_t thread;
    /* Guarded by the mutex of `turns`, as the fields below. `waiting`: the client waits for a
     * decision. `done`: its function has returned. `dead`: its calls fail. The client itself reads
     * `dead` without the mutex. */
    bool waiting, done, dead;
    /* The call at which the client waits is a write that may take effect later. */
    bool may_be_late;
    /* The decision was made, so the client continues. */
    bool granted;
    enum decision decision;
};

/* A write that takes effect later. */
struct late {
    /* The slot has a write that has not taken effect yet. */
    bool pending;
    /* The write. Its documents and the name of its collection are the copies below. */
    truce_write write;
    bson_t filter, document, exact;
    char collection[64];
};

struct choice {
    /* The decision about the next call of the client; GO for a late call. */
    enum decision decision;
    /* The number of the client, or -1 - the number of the late call that takes effect. */
    int client;
};

struct turns {
    const struct turns_run *run;
    /* The store in memory that all clients share. */
    truce_store *inner;
    /* Guards the states of the clients, and is held while the explorer chooses. */
    pthread_mutex_t mutex;
    /* Signaled when a client waits, continues, or ends. */
    pthread_cond_t changed;
    struct client clients[TURNS_CLIENTS_MAX];
    /* Used by one thread at a time: the client whose call runs, or the explorer while all clients
     * wait. */
    struct late late[LATE_MAX];
    /* The numbers of faults that may still happen in this run. */
    struct turns_budget left;
};

/* The path of a run: each choice, and the number of its alternatives. */
struct path {
    /* For each step: the index of the choice, and the number of alternatives. */
    int chosen[CHOICES_MAX], of[CHOICES_MAX];
    /* The choices of the current run, for the message of a failure. */
    struct choice choices[CHOICES_MAX];
    /* The number of steps that the next run repeats, and of those that the current run has made. */
    int length, at;
    /* NULL if the choices are made in order. */
    struct random *random;
};

/* ---- the client's side ---- */

/* Waits until the explorer grants the client its next call, and returns the decision about it. A
 * dead client does not wait. */
static enum decision take_turn(struct client *client, bool write)
{
    struct turns *turns = client->turns;
    enum decision decision;

    pthread_mutex_lock(&turns->mutex);
    if (client->dead) {
        pthread_mutex_unlock(&turns->mutex);
        return DIE_BEFORE;
    }
    client->waiting = true;
    client->granted = false;
    client->may_be_late = write;
    pthread_cond_broadcast(&turns->changed);
    while (!client->granted)
        pthread_cond_wait(&turns->changed, &turns->mutex);
    decision = client->decision;
    client->dead |= decision == DIE_BEFORE || decision == DIE_AFTER;
    pthread_mutex_unlock(&turns->mutex);
    return decision;
}

static truce_status dead(bson_error_t *error)
{
    return truce__fail(TRUCE_IO, error, "this client is dead");
}

static truce_status find(truce_store *store, const char *collection, const bson_t *filter,
                         const truce_find_options *options, truce_cursor **cursor,
                         bson_error_t *error)
{
    struct client *client = (struct client *)store;
    enum decision decision = take_turn(client, false);

    if (decision == DIE_BEFORE || decision == DIE_AFTER)
        return dead(error);
    if (decision == LOSE)
        return truce__fail(TRUCE_UNKNOWN, error, "no reply");
    return client->turns->inner->ops->find(client->turns->inner, collection, filter, options,
                                           cursor, error);
}

static truce_status count(truce_store *store, const char *collection, const bson_t *filter,
                          const truce_count_options *options, int64_t *counted, bson_error_t *error)
{
    struct client *client = (struct client *)store;
    enum decision decision = take_turn(client, false);

    if (decision == DIE_BEFORE || decision == DIE_AFTER)
        return truce__fail(TRUCE_IO, error, "the client died");
    if (decision == LOSE)
        return truce__fail(TRUCE_UNKNOWN, error, "no reply");
    return client->turns->inner->ops->count(client->turns->inner, collection, filter, options,
                                            counted, error);
}

/* Copies a write into a free slot, from which it takes effect later. Aborts if there is no slot. */
static void put_aside(struct turns *turns, const truce_write *write)
{
    for (int i = 0; i < LATE_MAX; i++) {
        struct late *late = &turns->late[i];

        if (late->pending)
            continue;
        late->pending = true;
        late->write = *write;
        snprintf(late->collection, sizeof late->collection, "%s", write->collection);
        late->write.collection = late->collection;
        bson_init(&late->filter);
        bson_init(&late->exact);
        bson_init(&late->document);
        if (write->filter)
            bson_concat(&late->filter, write->filter);
        if (write->document)
            bson_concat(&late->document, write->document);
        if (write->exact)
            bson_concat(&late->exact, write->exact);
        late->write.filter = write->filter ? &late->filter : NULL;
        late->write.exact = write->exact ? &late->exact : NULL;
        late->write.document = write->document ? &late->document : NULL;
        return;
    }
    abort();
}

static void clear_outcomes(truce_write_outcome *outcomes, size_t count, truce_status status)
{
    for (size_t i = 0; i < count; i++) {
        truce_write_result_release(&outcomes[i].result);
        outcomes[i] = (truce_write_outcome){.status = status};
    }
}

static truce_status bulk(truce_store *store, const truce_write *writes, size_t count,
                         const truce_bulk_options *options, truce_write_outcome *outcomes,
                         bson_error_t *error)
{
    struct client *client = (struct client *)store;
    struct turns *turns = client->turns;
    enum decision decision = take_turn(client, count == 1);
    truce_status status;

    memset(outcomes, 0, count * sizeof *outcomes);
    if (decision == DIE_BEFORE || decision == LATE) {
        if (decision == LATE)
            put_aside(turns, &writes[0]);
        status = decision == LATE ? TRUCE_UNKNOWN : TRUCE_IO;
        clear_outcomes(outcomes, count, status);
        return truce__fail(status, error, "no reply");
    }
    status = turns->inner->ops->bulk(turns->inner, writes, count, options, outcomes, error);
    if (decision == LOSE || decision == DIE_AFTER) {
        status = decision == LOSE ? TRUCE_UNKNOWN : TRUCE_IO;
        clear_outcomes(outcomes, count, status);
        return truce__fail(status, error, "no reply");
    }
    return status;
}

static truce_status find_and_modify(truce_store *store, const char *collection,
                                    const bson_t *filter, const bson_t *update,
                                    const truce_modify_options *options, bson_t *document,
                                    truce_write_result *result, bson_error_t *error)
{
    struct client *client = (struct client *)store;
    struct turns *turns = client->turns;
    enum decision decision = take_turn(client, true);
    truce_status status;

    if (decision == DIE_BEFORE || decision == LATE) {
        if (decision == LATE)
            put_aside(turns, &(truce_write){.kind = TRUCE_WRITE_UPDATE,
                                            .collection = collection,
                                            .filter = filter,
                                            .document = update,
                                            .options = {.upsert = options->upsert}});
        bson_init(document);
        *result = (truce_write_result){0};
        return truce__fail(decision == LATE ? TRUCE_UNKNOWN : TRUCE_IO, error, "no reply");
    }
    status = turns->inner->ops->find_and_modify(turns->inner, collection, filter, update, options,
                                                document, result, error);
    if (decision == LOSE || decision == DIE_AFTER) {
        bson_reinit(document);
        truce_write_result_release(result);
        *result = (truce_write_result){0};
        status = truce__fail(decision == LOSE ? TRUCE_UNKNOWN : TRUCE_IO, error, "no reply");
    }
    return status;
}

static truce_status index_create(truce_store *store, const char *collection, const bson_t *index,
                                 bson_error_t *error)
{
    struct turns *turns = ((struct client *)store)->turns;

    return turns->inner->ops->index_create(turns->inner, collection, index, error);
}

static truce_status index_list(truce_store *store, const char *collection, bson_t *indexes,
                               bson_error_t *error)
{
    struct turns *turns = ((struct client *)store)->turns;

    return turns->inner->ops->index_list(turns->inner, collection, indexes, error);
}

static void close_nothing(truce_store *store)
{
    (void)store;
}

static const truce_store_ops ops = {.scheme = "turns",
                                    .close = close_nothing,
                                    .find = find,
                                    .count = count,
                                    .bulk = bulk,
                                    .find_and_modify = find_and_modify,
                                    .index_create = index_create,
                                    .index_list = index_list};

bool turns_is_dead(const truce_store *store)
{
    return ((const struct client *)store)->dead;
}

static void *run_client(void *arg)
{
    struct client *client = arg;
    struct turns *turns = client->turns;

    turns->run->client(&client->base, client->number, turns->run->arg);
    pthread_mutex_lock(&turns->mutex);
    client->done = true;
    pthread_cond_broadcast(&turns->changed);
    pthread_mutex_unlock(&turns->mutex);
    return NULL;
}

/* ---- choosing ---- */

/* Lists what can happen next. Dying after a call differs from dying before only if the call is a
 * write. */
static int list_choices(const struct turns *turns, struct choice *choices)
{
    int count = 0;

    for (int i = 0; i < turns->run->clients; i++) {
        const struct client *client = &turns->clients[i];

        if (client->done)
            continue;
        choices[count++] = (struct choice){GO, i};
        if (turns->left.crashes) {
            choices[count++] = (struct choice){DIE_BEFORE, i};
            if (client->may_be_late)
                choices[count++] = (struct choice){DIE_AFTER, i};
        }
        if (turns->left.losses)
            choices[count++] = (struct choice){LOSE, i};
        if (turns->left.lates && client->may_be_late)
            choices[count++] = (struct choice){LATE, i};
    }
    for (int i = 0; i < LATE_MAX; i++) {
        if (turns->late[i].pending)
            choices[count++] = (struct choice){GO, -1 - i};
    }
    return count;
}

static void print_path(const struct path *path)
{
    fprintf(stderr, "the choices were:");
    for (int i = 0; i < path->at; i++) {
        if (path->choices[i].client < 0)
            fprintf(stderr, " land%d", -1 - path->choices[i].client);
        else
            fprintf(stderr, " %d%s", path->choices[i].client,
                    decision_names[path->choices[i].decision]);
    }
    fprintf(stderr, "\n");
}

/* Takes the choice of the path, a random one, or, after branch_max calls, that of a burst. Records
 * it in the path. Aborts at CHOICES_MAX. */
static struct choice choose(struct path *path, const struct choice *choices, int count,
                            int branch_max)
{
    int chosen = 0;

    if (path->at == CHOICES_MAX) {
        print_path(path);
        abort();
    }
    if (path->random)
        chosen = (int)truce__random_below(path->random, (uint64_t)count);
    else if (branch_max && path->at >= branch_max)
        chosen = path->at / BURST % count;
    else if (path->at < path->length)
        chosen = path->chosen[path->at];
    path->chosen[path->at] = chosen;
    path->of[path->at] = branch_max && path->at >= branch_max ? chosen + 1 : count;
    path->choices[path->at] = choices[chosen];
    path->at++;
    return choices[chosen];
}

/* Advances to the next path in order. Returns false after the last one. */
static bool advance(struct path *path)
{
    int length = path->at;

    while (length > 0 && path->chosen[length - 1] + 1 == path->of[length - 1])
        length--;
    if (!length)
        return false;
    path->chosen[length - 1]++;
    path->length = length;
    return true;
}

static void land(struct turns *turns, int number)
{
    struct late *late = &turns->late[number];
    truce_write_outcome outcome;
    truce_bulk_options options = {0};
    bson_error_t error;

    /* No client waits for the result. */
    if (turns->inner->ops->bulk(turns->inner, &late->write, 1, &options, &outcome, &error))
        outcome.status = TRUCE_UNKNOWN;
    truce_write_result_release(&outcome.result);
    bson_destroy(&late->filter);
    bson_destroy(&late->exact);
    bson_destroy(&late->document);
    late->pending = false;
}

static void wait_for_clients(struct turns *turns)
{
    for (int i = 0; i < turns->run->clients; i++) {
        while (!turns->clients[i].waiting && !turns->clients[i].done)
            pthread_cond_wait(&turns->changed, &turns->mutex);
    }
}

static void grant(struct turns *turns, struct choice choice)
{
    struct client *client = &turns->clients[choice.client];

    turns->left.crashes -= choice.decision == DIE_BEFORE || choice.decision == DIE_AFTER;
    turns->left.losses -= choice.decision == LOSE;
    turns->left.lates -= choice.decision == LATE;
    client->decision = choice.decision;
    client->waiting = false;
    client->granted = true;
    pthread_cond_broadcast(&turns->changed);
}

static bool all_done(const struct turns *turns)
{
    for (int i = 0; i < turns->run->clients; i++) {
        if (!turns->clients[i].done)
            return false;
    }
    return true;
}

/* Runs the clients choice by choice until all have ended and all late calls have taken effect. Each
 * client waits at a call while the explorer chooses. */
static void run_choices(struct turns *turns, struct path *path)
{
    struct choice choices[OPTIONS_MAX];

    pthread_mutex_lock(&turns->mutex);
    for (;;) {
        struct choice choice;
        int count;

        wait_for_clients(turns);
        count = list_choices(turns, choices);
        if (!count)
            break;
        choice = choose(path, choices, count, turns->run->branch_max);
        if (choice.client < 0)
            land(turns, -1 - choice.client);
        else
            grant(turns, choice);
        if (all_done(turns) && !list_choices(turns, choices))
            break;
    }
    pthread_mutex_unlock(&turns->mutex);
}

/* Makes one run on a new store in memory. */
static void run_once(const struct turns_run *run, struct path *path)
{
    struct turns turns = {.run = run, .left = run->budget};
    bool crashed[TURNS_CLIENTS_MAX];
    bson_error_t error;

    if (truce_store_open("memory:", NULL, &turns.inner, &error))
        abort();
    pthread_mutex_init(&turns.mutex, NULL);
    pthread_cond_init(&turns.changed, NULL);
    run->begin(turns.inner, run->arg);
    path->at = 0;
    for (int i = 0; i < run->clients; i++) {
        turns.clients[i] = (struct client){
            .base = {&ops, turns.inner->capabilities & ~(uint32_t)TRUCE_CAN_REWRITE},
            .turns = &turns,
            .number = i};
        pthread_create(&turns.clients[i].thread, NULL, run_client, &turns.clients[i]);
    }
    run_choices(&turns, path);
    for (int i = 0; i < run->clients; i++) {
        pthread_join(turns.clients[i].thread, NULL);
        crashed[i] = turns.clients[i].dead;
        truce_store_close(&turns.clients[i].base);
    }
    run->end(turns.inner, crashed, run->arg);
    pthread_cond_destroy(&turns.changed);
    pthread_mutex_destroy(&turns.mutex);
    truce_store_close(turns.inner);
}

long turns_explore(const struct turns_run *run, long runs_max, uint64_t seed, bool *complete)
{
    struct path *path = calloc(1, sizeof *path);
    struct random random;
    long runs = 0;
    bool more = true;

    if (!path)
        abort();
    if (seed) {
        truce__random_seed(&random, seed);
        path->random = &random;
    }
    while (more && runs < runs_max) {
        run_once(run, path);
        runs++;
        if (test_failures()) {
            print_path(path);
            break;
        }
        more = seed || advance(path);
    }
    if (complete)
        *complete = !more;
    free(path);
    return runs;
}
