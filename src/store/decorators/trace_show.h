#ifndef TRUCE_STORE_DECORATORS_TRACE_SHOW_H
#define TRUCE_STORE_DECORATORS_TRACE_SHOW_H

/* Arguments and answers of calls as parts of a trace's events. What has its default is left out. */
#include "truce/sys/store.h"

void truce__trace_add_document(bson_t *parent, const char *name, const bson_t *document);
void truce__trace_add_array(bson_t *parent, const char *name, const bson_t *array);
void truce__trace_add_number(bson_t *parent, const char *name, int64_t number);
void truce__trace_add_truth(bson_t *parent, const char *name, bool truth);
void truce__trace_add_find_options(bson_t *parent, const truce_find_options *options);
void truce__trace_add_update(bson_t *parent, const bson_t *update, bool pipeline);
void truce__trace_add_result(bson_t *parent, const truce_write_result *result);
void truce__trace_element_begin(bson_t *array, size_t number, bson_t *child);
void truce__trace_add_writes(bson_t *parent, const truce_write *writes, size_t count);
void truce__trace_add_outcomes(bson_t *parent, const truce_write_outcome *outcomes, size_t count);

#endif
