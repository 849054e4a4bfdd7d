#ifndef TRUCE_SERVER_COMMAND_WRITE_STATEMENT_H
#define TRUCE_SERVER_COMMAND_WRITE_STATEMENT_H

/* Statements of insert, update, delete, and bulkWrite as writes of one bulk, and their results. */
#include "server/call/call.h"

/* ---- a statement ----------------------------------------------------------------------------- */

/* A statement of update, or the same fields of another command. */
struct write_update {
    const bson_t *filter, *array_filters, *sort, *hint;
    struct document_or_array update;
    bool multi, upsert;
};

/* Fails with 40414, with the `names` of the two fields, if the filter or the update is missing. */
truce_status write_of_update(const struct write_update *update, const char *names,
                             truce_write *write, bson_error_t *error);

/* Checks bypassEmptyTsReplacement, which the store does not support. Fails with CommandNotSupported
 * (115) if a top-level field of an inserted or replacing document is an empty timestamp, because
 * the store would replace it. */
truce_status write_check_timestamps(const truce_write *write, bson_error_t *error);

/* The statements of the call, which is an insert, update, or delete. The caller frees `writes` in
 * any case. */
struct write_statements {
    char stored_name[STORED_NAME_MAX];
    truce_write *writes;
    uint32_t count;
    bool ordered;
};

truce_status write_read(struct call *call, struct write_statements *statements,
                        bson_error_t *error);

/* The fields of findAndModify. */
struct write_modify {
    const bson_t *query, *sort, *fields, *array_filters, *hint, *let;
    struct document_or_array update;
    bool remove, new, upsert, unvalidated, empty_stay;
};

truce_status write_read_modify(struct call *call, struct write_modify *modify, bson_error_t *error);

/* ---- all of them ----------------------------------------------------------------------------- */

/* Runs the writes in one bulk; repeated statements return their earlier results
 * (retryable_writes.h). If it returns OK, each write has its outcome, and call->refused says
 * whether some were refused. Otherwise the command failed as a whole. write_release releases the
 * outcomes in any case. */
truce_status write_bulk(struct call *call, const truce_write *writes, uint32_t count, bool ordered,
                        truce_write_outcome *outcomes, bson_error_t *error);
void write_release(truce_write_outcome *outcomes, uint32_t count);

/* Returns whether the store refused this one statement. Any other failure concerns the whole
 * command. */
bool write_is_refused(const truce_write_outcome *outcome);
/* Appends {code, errmsg, keyPattern, keyValue, errInfo} of a refused statement. After a megabyte of
 * messages, further ones are empty. */
void write_append_error(struct call *call, const truce_write_outcome *outcome, bson_t *element);
/* Returns the number of documents that the write inserted, upserted, removed, or matched. */
int64_t write_count(const truce_write *write, const truce_write_result *result);

#endif
