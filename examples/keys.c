/*
 * Diffs in a commit: several threads add keys to three documents, red, green, and any.
 *
 * Each key is added to one colour and to any (A. Hammarquist, EuroPython 2012). The code reads the
 * documents without guards, computes the new versions, and adds the differences to the commit. If
 * another thread has changed a document in the meantime, truce_transact runs the function again.
 *
 *     cc keys.c $(pkg-config --cflags --libs truce) -lpthread -o keys && ./keys colours
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <truce/truce.h>

#define THREADS 4
/* The number of keys that each thread adds. */
#define KEYS 25

struct addition {
    truce_store *store;
    const char *colour;
    char key[2];
};

static void must(truce_status status, const bson_error_t *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", truce_status_name(status), error->message);
        exit(1);
    }
}

static truce_status look(truce_store *store, const char *name, bson_t *document,
                         bson_error_t *error)
{
    bson_t *filter = BCON_NEW("_id", BCON_UTF8(name));
    truce_status status = truce_find_one(store, "data", filter, NULL, document, error);

    bson_destroy(filter);
    return status;
}

static int64_t count_of(const bson_t *document)
{
    bson_iter_t iter;

    return bson_iter_init_find(&iter, document, "count") ? bson_iter_as_int64(&iter) : 0;
}

/* Returns a copy of the document with one more key. */
static bson_t *with_key(const bson_t *before, const char *key)
{
    bson_t *after = bson_new(), keys;
    bson_iter_t iter, old;
    uint32_t length = 0;
    char index[16];

    bson_copy_to_excluding_noinit(before, after, "count", "keys", "_rev", NULL);
    BSON_APPEND_INT64(after, "count", count_of(before) + 1);
    BSON_APPEND_ARRAY_BEGIN(after, "keys", &keys);
    if (bson_iter_init_find(&iter, before, "keys") && bson_iter_recurse(&iter, &old)) {
        for (; bson_iter_next(&old); length++)
            bson_append_iter(&keys, NULL, 0, &old);
    }
    snprintf(index, sizeof index, "%u", length);
    bson_append_utf8(&keys, index, -1, key, -1);
    bson_append_array_end(after, &keys);
    return after;
}

/* Adds the key to the document `name`, as a diff in the commit. */
static truce_status add_to(truce_commit *commit, const struct addition *addition, const char *name,
                           bson_error_t *error)
{
    bson_value_t id = truce_id_utf8(name);
    bson_t before, *after, diff = BSON_INITIALIZER;
    truce_status status = look(addition->store, name, &before, error);

    after = with_key(&before, addition->key);
    if (!status) {
        bson_destroy(&diff);
        status = truce_changes_diff(&before, after, &diff, error);
    }
    if (!status)
        status = truce_commit_change(commit, "data", &id, &diff, error);
    bson_destroy(&diff);
    bson_destroy(after);
    bson_destroy(&before);
    return status;
}

static truce_status add_key(truce_commit *commit, void *arg, bson_error_t *error)
{
    truce_status status = add_to(commit, arg, ((struct addition *)arg)->colour, error);

    return status ? status : add_to(commit, arg, "any", error);
}

static void *work(void *arg)
{
    truce_commit_options options = {.tries_max = 10000};
    unsigned seed = (unsigned)(size_t)&seed;
    bson_error_t error;

    for (int i = 0; i < KEYS; i++) {
        struct addition addition = {arg, rand_r(&seed) % 2 ? "red" : "green", "a"};

        addition.key[0] = (char)('a' + rand_r(&seed) % 26);
        must(truce_transact(arg, add_key, &addition, &options, &error), &error);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"red", "green", "any"};
    int64_t counts[3];
    truce_store *store = NULL;
    pthread_t threads[THREADS];
    bson_error_t error;

    if (argc != 2) {
        fprintf(stderr, "usage: keys STORE\n");
        return 2;
    }
    must(truce_store_open(argv[1], NULL, &store, &error), &error);
    for (int i = 0; i < 3; i++) {
        bson_t *fresh =
            BCON_NEW("_id", BCON_UTF8(names[i]), "keys", "[", "]", "count", BCON_INT64(0));

        must(truce_insert(store, "data", fresh, NULL, &error), &error);
        bson_destroy(fresh);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, store);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) {
        bson_t document;

        must(look(store, names[i], &document, &error), &error);
        counts[i] = count_of(&document);
        bson_destroy(&document);
    }
    truce_store_close(store);
    printf("red %d + green %d = any %d\n", (int)counts[0], (int)counts[1], (int)counts[2]);
    return counts[0] + counts[1] == counts[2] && counts[2] == THREADS * KEYS ? 0 : 1;
}
