/*
 * Optimistic concurrency control: several people edit one post at the same time.
 *
 * A save of an outdated version is merged if the changes do not overlap, and refused if they do. A
 * web handler uses the same revision number as an ETag.
 *
 *     cc revisions.c $(pkg-config --cflags --libs truce) -o revisions && ./revisions blog.truce
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <truce/truce.h>

static void must(truce_status status, const bson_error_t *error)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", truce_status_name(status), error->message);
        exit(1);
    }
}

/* Saves an edit of the version that was read, and returns the outcome. */
static truce_revision_outcome save(truce_revision *posts, int64_t version, const char *json)
{
    bson_t *mine = bson_new_from_json((const uint8_t *)json, -1, NULL);
    truce_revision_outcome outcome;
    truce_revision_result result;
    bson_error_t error;

    must(truce_revision_merge(posts, NULL, mine, version, NULL, &result, &error), &error);
    outcome = result.outcome;
    printf("%s: version %d\n", truce_revision_outcome_name(outcome), (int)result.version);
    if (outcome == TRUCE_REVISION_CONFLICT) {
        char *text = bson_as_relaxed_extended_json(&result.conflict, NULL);

        puts(text);
        bson_free(text);
    }
    truce_revision_result_release(&result);
    bson_destroy(mine);
    return outcome;
}

/* Evaluates PUT /posts/1 with the ETag of the form. Returns 0 to continue, or an HTTP status. */
static int put(const char *if_match, int64_t version)
{
    truce_http_request request = {.method = "PUT", .if_match = if_match, .demand = true};

    return truce_revision_http(&request, version);
}

int main(int argc, char **argv)
{
    bson_value_t one = truce_id_int64(1);
    bson_t *rules = BCON_NEW("views", BCON_UTF8("sum"), "tags", BCON_UTF8("union")), document;
    truce_store *store = NULL;
    truce_revision *posts;
    char etag[TRUCE_ETAG_SIZE];
    bson_error_t error;
    int64_t version = TRUCE_REVISION_NEW;
    truce_status status;
    bool good;

    if (argc != 2) {
        fprintf(stderr, "usage: revisions STORE\n");
        return 2;
    }
    must(truce_store_open(argv[1], NULL, &store, &error), &error);
    posts = truce_revision_new(
        store, &(truce_revision_options){.collection = "posts", .rules = rules, .keep = 10});
    status = truce_revision_get(posts, NULL, &one, &document, &version, &error);
    if (status != TRUCE_NOT_FOUND)
        must(status, &error);
    bson_destroy(&document);

    save(posts, version, "{\"_id\": 1, \"title\": \"Truce\", \"views\": 1, \"tags\": [\"db\"]}");
    must(truce_revision_get(posts, NULL, &one, &document, &version, &error), &error);
    bson_destroy(&document);
    truce_revision_etag(version, etag);

    /* All three edits begin with this version. */
    good = save(posts, version,
                "{\"_id\": 1, \"title\": \"On truces\", \"views\": 2, \"tags\": [\"db\"]}") ==
           TRUCE_REVISION_SAVED;
    good &= save(posts, version,
                 "{\"_id\": 1, \"title\": \"Truce\", \"views\": 4, \"tags\": [\"db\", \"c\"]}") ==
            TRUCE_REVISION_MERGED;
    good &= save(posts, version,
                 "{\"_id\": 1, \"title\": \"Peace\", \"views\": 1, \"tags\": [\"db\"]}") ==
            TRUCE_REVISION_CONFLICT;

    must(truce_revision_get(posts, NULL, &one, &document, &version, &error), &error);
    char *text = bson_as_relaxed_extended_json(&document, NULL);
    puts(text);
    printf("PUT with the old ETag: %d, without: %d\n", put(etag, version), put(NULL, version));
    good &= put(etag, version) == 412;

    bson_free(text);
    bson_destroy(&document);
    bson_destroy(rules);
    truce_revision_free(posts);
    truce_store_close(store);
    return good ? 0 : 1;
}
