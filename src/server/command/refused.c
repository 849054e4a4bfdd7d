/*
 * Reads the sentence of a document that a validator refused (truce__validator_test):
 *
 *     the document {"_id": 7} does not match the validator of people
 *                  ^id
 *
 * An _id that is too long for the sentence ends with "...": then there is no failingDocumentId.
 */
#include "server/command/refused.h"

#include <string.h>

#include "bson/json.h"

static void refused_append_id(const char *sentence, bson_t *info)
{
    static const char before[] = "the document ", behind[] = " does not match the validator";
    const char *from = strstr(sentence, before), *to = strstr(sentence, behind);
    struct json_reader reader = {0};
    bson_error_t error;
    bson_iter_t id;
    bson_t document;

    if (!from || !to || to <= from + strlen(before))
        return;
    from += strlen(before);
    if (!truce__json_read(&reader, from, (size_t)(to - from), &document, NULL, &error) &&
        bson_iter_init_find(&id, &document, "_id"))
        bson_append_iter(info, "failingDocumentId", -1, &id);
    truce__json_reader_release(&reader);
}

void refused_append(const char *sentence, bson_t *reply)
{
    char *text = bson_strdup_printf("Document failed validation: %s", sentence);
    bson_t info, details;

    BSON_APPEND_UTF8(reply, "errmsg", text);
    BSON_APPEND_DOCUMENT_BEGIN(reply, "errInfo", &info);
    refused_append_id(sentence, &info);
    BSON_APPEND_DOCUMENT_BEGIN(&info, "details", &details);
    BSON_APPEND_UTF8(&details, "reason", "the document does not match the validator");
    bson_append_document_end(&info, &details);
    bson_append_document_end(reply, &info);
    bson_free(text);
}
