#ifndef TRUCE_SERVER_COMMAND_HANDLERS_H
#define TRUCE_SERVER_COMMAND_HANDLERS_H

/* The handlers of the commands, by file; server/commands.c has the table. */
#include "server/call/call.h"

/* The version of MongoDB that the server reports, and whose commands it has. Old and new drivers
 * accept it. */
#define SPOKEN_VERSION "8.0.0"

#define SERVED(name)   truce_status name(struct call *call, bson_t *reply, bson_error_t *error)

/* serve_session.c */
/* Replaces a leading $listLocalSessions by $documents with the sessions. Any other pipeline is
 * returned as it is. The result lives as long as the call. */
truce_status serve_sessions_stage(struct call *call, const bson_t **pipeline, bson_error_t *error);

/* serve_read.c */
SERVED(serve_find);
SERVED(serve_get_more);
SERVED(serve_kill_cursors);
SERVED(serve_aggregate);
SERVED(serve_count);
SERVED(serve_distinct);

/* serve_explain.c */
SERVED(serve_explain);
struct aggregate_request;
/* Serves {aggregate, explain: true}. */
truce_status serve_explain_aggregate(struct call *call, struct aggregate_request *aggregate,
                                     bson_t *reply, bson_error_t *error);

/* serve_change_stream.c */
/* Returns whether the pipeline has a $changeStream. */
bool serve_is_change_stream(const bson_t *pipeline);
/* Opens a change stream; `name` is the collection's name for the client, `stored_name` its name in
 * the store. */
truce_status serve_change_stream(struct call *call, const bson_t *pipeline, const char *stored_name,
                                 const char *name, int64_t most, bson_t *reply,
                                 bson_error_t *error);
/* Runs getMore on a change stream. Takes ownership of the entry. */
truce_status serve_change_stream_more(struct call *call, struct cursor_entry *held, int64_t most,
                                      bson_t *reply, bson_error_t *error);

/* serve_validate.c */
SERVED(serve_validate);

/* serve_current_op.c */
SERVED(serve_current_op);
SERVED(serve_kill_op);
/* Returns whether the pipeline begins with a stage of the server ($collStats, $currentOp). */
bool serve_is_stage(const bson_t *pipeline);
/* Runs an aggregate that begins with $collStats or $currentOp. Its first batch has at most `most`
 * documents. Stages after the first must not read other collections. */
truce_status serve_stage(struct call *call, const bson_t *pipeline, int64_t most, bson_t *reply,
                         bson_error_t *error);

/* serve_write.c */
SERVED(serve_insert);
SERVED(serve_update);
SERVED(serve_delete);
SERVED(serve_find_and_modify);

/* serve_bulk.c */
SERVED(serve_bulk_write);

/* serve_catalog.c */
SERVED(serve_drop_database);
SERVED(serve_list_collections);
SERVED(serve_list_databases);

/* Sets *there to whether a collection of this name is in the store. If `facts` is not NULL, it gets
 * the collection's entry in the list of collections and is always initialized. */
truce_status serve_is_there(struct call *call, const char *stored_name, bool *there, bson_t *facts,
                            bson_error_t *error);
truce_status serve_no_such_namespace(struct call *call, bson_error_t *error);

/* The field `index` of collMod: the index that it names, and its changes. `changes` is always
 * initialized; the rest lives as long as the call. */
struct modified_index {
    const char *name;
    const bson_t *was;
    bson_t changes;
};

truce_status serve_modified_index(struct call *call, const char *stored_name, const bson_t *index,
                                  struct modified_index *found, bson_error_t *error);
/* Appends the fields that differ: hidden_old, hidden_new, ... */
void serve_append_modified(const struct modified_index *found, bson_t *reply);

/* serve_collection.c */
SERVED(serve_create);
SERVED(serve_modify_collection);
SERVED(serve_drop);
SERVED(serve_rename);
/* Returns the name in the store of a namespace such as "school.students". Fails if the user lacks
 * the actions there, and with 166 for a view. */
truce_status serve_stored_name_of(struct call *call, const char *ns, uint32_t actions,
                                  char stored_name[STORED_NAME_MAX], bson_error_t *error);

/* serve_sizes.c */
SERVED(serve_collection_stats);
SERVED(serve_database_stats);
/* Does what serve_collection_stats does, for a stage with the field {scale}. */
truce_status serve_sizes(struct call *call, const bson_t *stage_options, bson_t *reply,
                         bson_error_t *error);

/* serve_index.c */
SERVED(serve_create_indexes);
SERVED(serve_drop_indexes);
SERVED(serve_list_indexes);

/* serve_status.c */
SERVED(serve_hello);
SERVED(serve_build_info);
SERVED(serve_get_parameter);
SERVED(serve_server_status);
SERVED(serve_host_info);
SERVED(serve_options);
SERVED(serve_whats_my_uri);
SERVED(serve_replica_status);
SERVED(serve_last_error);
SERVED(serve_list_commands);
SERVED(serve_top);
SERVED(serve_pools);

/* serve_admin.c */
SERVED(serve_log);
SERVED(serve_set_parameter);
SERVED(serve_profile);
SERVED(serve_shutdown);
SERVED(serve_fsync);
SERVED(serve_rotate);
SERVED(serve_compact);
SERVED(serve_data_size);

/* serve_filemd5.c */
SERVED(serve_filemd5);

/* fail_point.c */
SERVED(serve_fail_point);

/* serve_session.c */
SERVED(serve_start_session);
SERVED(serve_end_sessions);
SERVED(serve_end_all_sessions);
/* Does nothing, and replies with ok: 1. */
SERVED(serve_nothing);
SERVED(serve_refresh_sessions);
/* Refuses commitTransaction and abortTransaction outside of a transaction. */
SERVED(serve_outside);
/* Runs the command of the call, in the transaction that it belongs to. */
truce_status serve_in_session(struct call *call, bson_t *reply, bson_error_t *error);

/* serve_login.c */
SERVED(serve_sasl_start);
SERVED(serve_sasl_continue);
SERVED(serve_logout);
SERVED(serve_connection_status);
/* Appends the fields of hello about logins. */
void serve_hello_login(struct call *call, bson_t *reply);

/* serve_user.c */
SERVED(serve_create_user);
SERVED(serve_update_user);
SERVED(serve_drop_user);
SERVED(serve_drop_all_users);
SERVED(serve_grant_roles);
SERVED(serve_revoke_roles);

/* serve_user.c */
SERVED(serve_users);
SERVED(serve_roles);

/* serve_token.c */
SERVED(serve_create_token);
SERVED(serve_tokens);
SERVED(serve_revoke_token);

#endif
