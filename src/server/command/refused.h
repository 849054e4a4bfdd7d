#ifndef TRUCE_SERVER_COMMAND_REFUSED_H
#define TRUCE_SERVER_COMMAND_REFUSED_H

/*
 * What clients of MongoDB look for where a validator refused a document: "Document failed validation" in the sentence, and
 * errInfo with the document's _id.
 */
#include <bson/bson.h>

/* Appends errmsg and errInfo: {failingDocumentId, details} (the former where the sentence, that of truce__validator_test, has the _id
 * whole). */
void refused_append(const char *sentence, bson_t *reply);

#endif
