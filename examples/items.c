/*
 * Items of an array, changed in place: a writer changes one badge of an employee.
 *
 * At no time is the badge missing, duplicated, or at another position.
 *
 *     cc items.c $(pkg-config --cflags --libs truce) -o items && ./items school.truce
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

static void add_badge(truce_item *badges, const bson_t *employee, const char *type)
{
    bson_t *badge = BCON_NEW("type", BCON_UTF8(type), "date", BCON_NULL);
    truce_item_result result;
    bson_error_t error;

    must(truce_item_add(badges, NULL, employee, badge, &result, &error), &error);
    printf("%s: %s\n", type, result.added ? "added" : "exists already");
    bson_destroy(badge);
}

int main(int argc, char **argv)
{
    truce_store *store = NULL;
    truce_item *badges;
    bson_t *employee, *query, *change, found;
    truce_write_options upsert = {.upsert = true};
    truce_item_result result;
    bson_error_t error;

    if (argc != 2) {
        fprintf(stderr, "usage: items STORE\n");
        return 2;
    }
    must(truce_store_open(argv[1], NULL, &store, &error), &error);
    badges = truce_item_new(
        store,
        &(truce_item_options){.collection = "employees", .field = "badges", .identity = "type"});
    employee = BCON_NEW("_id", BCON_INT32(1));
    change = BCON_NEW("$set", "{", "name", BCON_UTF8("Bobby"), "}");
    must(truce_update(store, "employees", employee, change, &upsert, NULL, &error), &error);
    bson_destroy(change);

    add_badge(badges, employee, "TOP_EMPLOYEE");
    add_badge(badges, employee, "MENTOR");
    /* An identity occurs once: this call adds nothing. */
    add_badge(badges, employee, "TOP_EMPLOYEE");

    query = BCON_NEW("type", BCON_UTF8("TOP_EMPLOYEE"));
    change = BCON_NEW("$set", "{", "date", BCON_DATE_TIME(1316736000000), "}", "$inc", "{", "times",
                      BCON_INT32(1), "}");
    must(truce_item_update(badges, NULL, employee, query, change, &result, &error), &error);
    printf("matched %d, modified %d\n", (int)result.matched, (int)result.modified);

    must(truce_find_one(store, "employees", employee, NULL, &found, &error), &error);
    char *text = bson_as_relaxed_extended_json(&found, NULL);
    puts(text);

    bson_free(text);
    bson_destroy(&found);
    bson_destroy(change);
    bson_destroy(query);
    bson_destroy(employee);
    truce_item_free(badges);
    truce_store_close(store);
    return result.matched == 1 ? 0 : 1;
}
