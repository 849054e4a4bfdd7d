/*
 * Plain documents: opens a store, inserts, updates, and finds.
 *
 *     cc documents.c $(pkg-config --cflags --libs truce) -o documents && ./documents school.truce
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

static bson_t *json(const char *text)
{
    bson_error_t error;
    bson_t *document = bson_new_from_json((const uint8_t *)text, -1, &error);

    if (!document) {
        fprintf(stderr, "%s\n", error.message);
        exit(1);
    }
    return document;
}

int main(int argc, char **argv)
{
    bson_error_t error = {0};
    truce_store *store = NULL;
    truce_cursor *cursor = NULL;
    truce_write_result result = {0};
    const bson_t *found;
    int count = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: documents STORE\n");
        return 2;
    }
    must(truce_store_open(argv[1], NULL, &store, &error), &error);

    bson_t *ada = json("{\"_id\": 1, \"name\": \"Ada\", \"year\": 1}");
    bson_t *bob = json("{\"_id\": 2, \"name\": \"Bob\", \"year\": 1}");
    must(truce_insert(store, "students", ada, NULL, &error), &error);
    must(truce_insert(store, "students", bob, NULL, &error), &error);

    /* An _id is unique: the second insert fails with MongoDB's code and a message. */
    if (truce_insert(store, "students", ada, NULL, &error) != TRUCE_DUPLICATE)
        return 1;
    printf("refused: %s\n", error.message);

    /* Filters and updates use MongoDB's query language. */
    bson_t *first_year = json("{\"year\": {\"$lte\": 1}}");
    bson_t *next_year = json("{\"$inc\": {\"year\": 1}, \"$push\": {\"seen\": \"2024\"}}");
    must(truce_update(store, "students", first_year, next_year,
                      &(truce_write_options){.multi = true}, &result, &error),
         &error);
    printf("matched %d, modified %d\n", (int)result.matched, (int)result.modified);
    truce_write_result_release(&result);

    bson_t *order = json("{\"name\": -1}");
    must(truce_find(store, "students", NULL, &(truce_find_options){.sort = order}, &cursor, &error),
         &error);
    for (;;) {
        must(truce_cursor_next(cursor, &found, &error), &error);
        if (!found)
            break;
        char *text = bson_as_relaxed_extended_json(found, NULL);
        puts(text);
        bson_free(text);
        count++;
    }
    truce_cursor_close(cursor);

    bson_destroy(ada);
    bson_destroy(bob);
    bson_destroy(first_year);
    bson_destroy(next_year);
    bson_destroy(order);
    truce_store_close(store);
    return count == 2 ? 0 : 1;
}
