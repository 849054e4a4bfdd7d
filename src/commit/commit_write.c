/* The write of an entry: from what its document was to what the commit wants it to be. */
#include "commit/commit.h"
#include "merge/diff.h"

void truce__commit_document(const struct entry *entry, const bson_oid_t *rev, bson_t *document)
{
    bson_init(document);
    truce__document_append_without(&entry->after, (const char *const[]){"_rev", NULL}, document);
    BSON_APPEND_OID(document, "_rev", rev);
}

void truce__commit_write(const struct entry *entry, const bson_oid_t *rev, bson_t *update,
                         bool *replacement)
{
    truce__commit_write_over(&entry->base, entry, rev, update, replacement);
}

void truce__commit_write_over(const bson_t *now, const struct entry *entry, const bson_oid_t *rev,
                              bson_t *update, bool *replacement)
{
    struct diff diff;
    bson_t unset;

    *replacement =
        !truce__diff(truce__value_document(now), truce__value_document(&entry->after), &diff);
    if (*replacement) {
        truce__commit_document(entry, rev, update);
    } else {
        bson_init(update);
        BSON_APPEND_OID(&diff.set, "_rev", rev);
        BSON_APPEND_DOCUMENT(update, "$set", &diff.set);
        /* a replacement has no _rev yet: it is set, not gone */
        bson_init(&unset);
        truce__document_append_without(&diff.unset, (const char *const[]){"_rev", NULL}, &unset);
        if (!bson_empty(&unset))
            BSON_APPEND_DOCUMENT(update, "$unset", &unset);
        bson_destroy(&unset);
    }
    truce__diff_release(&diff);
}
