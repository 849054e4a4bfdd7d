/*
 * A job queue: a job makes two people friends.
 *
 * One commit changes both lists of friends and ends the job. If the process is killed at any point,
 * start it again: it continues.
 *
 *     cc friends.c $(pkg-config --cflags --libs truce) -o friends && ./friends people.truce
 */
#include <stdio.h>
#include <stdlib.h>

#include <truce/truce.h>

static void must(truce_status status, const bson_error_t *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", truce_status_name(status), error->message);
        exit(1);
    }
}

/* Adds one person to the friends of the other. */
static truce_status add_friend(truce_commit *commit, const bson_value_t *to,
                               const bson_value_t *friend, bson_error_t *error)
{
    bson_t *update =
        BCON_NEW("$addToSet", "{", "friends", BCON_UTF8(friend->value.v_utf8.str), "}");
    truce_status status = truce_commit_update(commit, "users", to, NULL, update, error);

    bson_destroy(update);
    return status;
}

/* The work of the job: changes both documents through its commit. */
static truce_status befriend(truce_commit *commit, void *arg, bson_error_t *error)
{
    const bson_t *payload = truce_job_payload(arg);
    bson_iter_t iter, first, second;
    truce_status status;

    if (!bson_iter_init(&iter, payload) || !bson_iter_find_descendant(&iter, "users.0", &first) ||
        !bson_iter_init(&iter, payload) || !bson_iter_find_descendant(&iter, "users.1", &second)) {
        bson_set_error(error, 0, 0, "the job needs two users");
        return TRUCE_REFUSED;
    }
    status = add_friend(commit, bson_iter_value(&first), bson_iter_value(&second), error);
    return status ? status
                  : add_friend(commit, bson_iter_value(&second), bson_iter_value(&first), error);
}

static void insert_user(truce_store *store, const char *name)
{
    bson_t *id = BCON_NEW("_id", BCON_UTF8(name)),
           *update = BCON_NEW("$setOnInsert", "{", "friends", "[", "]", "}");
    truce_write_options upsert = {.upsert = true};
    bson_error_t error;

    must(truce_update(store, "users", id, update, &upsert, NULL, &error), &error);
    bson_destroy(id);
    bson_destroy(update);
}

/* Runs jobs until none is ready. */
static void work(truce_queue *people)
{
    truce_job *job;
    bson_error_t error;
    truce_status claimed;

    while (!(claimed = truce_queue_claim(people, &job, &error))) {
        truce_status status = truce_job_commit(job, befriend, job, NULL, &error);

        printf("attempt %u: %s\n", truce_job_attempt(job), truce_status_name(status));
        if (status && status != TRUCE_EXPIRED)
            must(truce_job_fail(job, NULL, error.message, -1, &error), &error);
        truce_job_free(job);
    }
    if (claimed != TRUCE_NOT_FOUND) /* it means: no job is ready */
        must(claimed, &error);
}

int main(int argc, char **argv)
{
    truce_store *store = NULL;
    truce_queue *people;
    truce_job_options once = {.unique_payload = true, .unique_scope = TRUCE_UNIQUE_KEPT};
    truce_job_added added;
    bson_t *payload = BCON_NEW("command", BCON_UTF8("ADD_FRIEND"), "users", "[", BCON_UTF8("ada"),
                               BCON_UTF8("bob"), "]");
    bson_error_t error;

    if (argc != 2) {
        fprintf(stderr, "usage: friends STORE\n");
        return 2;
    }
    must(truce_store_open(argv[1], NULL, &store, &error), &error);
    people = truce_queue_new(store, &(truce_queue_options){.queue = "people"});
    insert_user(store, "ada");
    insert_user(store, "bob");
    must(truce_queue_add(people, NULL, payload, &once, &added, &error), &error);
    printf("job: %s\n", truce_added_name(added.added));
    work(people);
    bson_destroy(payload);
    truce_queue_free(people);
    truce_store_close(store);
    return 0;
}
