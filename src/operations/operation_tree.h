#ifndef TRUCE_OPERATIONS_OPERATION_TREE_H
#define TRUCE_OPERATIONS_OPERATION_TREE_H

/* Declarations that the files of the operations of trees share. */
#include "operations/operation.h"
#include "truce/tree.h"

/* Makes the tree that the operation names, and checks the collection (NULL for none). */
truce_status truce__operation_tree(struct operation_call *call, const char *collection, bool writes,
                                   const char *parent, truce_tree **tree, bson_error_t *error);

/* Checks that the value of a field can be an itemId. */
truce_status truce__operation_item_id(const bson_value_t *id, const char *field,
                                      bson_error_t *error);

/* In operation_tree_history.c. */
extern const struct operation_row truce__tree_export_operation, truce__tree_import_operation;

#endif
