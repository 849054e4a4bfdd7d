#ifndef TRUCE_STORE_MONGODB_MONGOC_LOAD_H
#define TRUCE_STORE_MONGODB_MONGOC_LOAD_H

/* libmongoc, loaded when the first mongodb:// store is opened, so that processes without one do not
 * have it. Each of its functions that truce calls appears twice here: in the table, and as a name
 * of its own. A call of a function that is missing here fails at link time. */
#include <mongoc/mongoc.h>

#include "base/log_hook.h"
#include "base/status.h"

/* clang-format off */
#define MONGOC_FUNCTIONS(each) \
    each(apm_callbacks_destroy) \
    each(apm_callbacks_new) \
    each(apm_command_failed_get_context) \
    each(apm_command_failed_get_error) \
    each(apm_command_succeeded_get_context) \
    each(apm_command_succeeded_get_reply) \
    each(apm_set_command_failed_cb) \
    each(apm_set_command_succeeded_cb) \
    each(bulk_operation_destroy) \
    each(bulk_operation_execute) \
    each(bulk_operation_insert_with_opts) \
    each(bulk_operation_new) \
    each(bulk_operation_remove_many_with_opts) \
    each(bulk_operation_remove_one_with_opts) \
    each(bulk_operation_set_client) \
    each(bulk_operation_set_bypass_document_validation) \
    each(bulk_operation_set_client_session) \
    each(bulk_operation_set_collection) \
    each(bulk_operation_set_database) \
    each(bulk_operation_set_write_concern) \
    each(bulk_operation_update_many_with_opts) \
    each(bulk_operation_update_one_with_opts) \
    each(change_stream_destroy) \
    each(change_stream_error_document) \
    each(change_stream_next) \
    each(client_command_with_opts) \
    each(client_destroy) \
    each(client_get_database) \
    each(client_get_server_descriptions) \
    each(client_new_from_uri) \
    each(client_pool_destroy) \
    each(client_pool_new_with_error) \
    each(client_pool_pop) \
    each(client_pool_push) \
    each(client_pool_set_apm_callbacks) \
    each(client_pool_set_error_api) \
    each(client_read_command_with_opts) \
    each(client_reset) \
    each(client_select_server) \
    each(client_session_append) \
    each(client_session_commit_transaction) \
    each(client_session_destroy) \
    each(client_session_in_transaction) \
    each(client_session_start_transaction) \
    each(client_set_error_api) \
    each(client_set_stream_initiator) \
    each(client_start_session) \
    each(client_write_command_with_opts) \
    each(database_destroy) \
    each(database_watch) \
    each(init) \
    each(log_set_handler) \
    each(read_concern_destroy) \
    each(read_concern_get_level) \
    each(read_concern_new) \
    each(read_concern_set_level) \
    each(read_prefs_get_mode) \
    each(server_description_destroy) \
    each(server_description_hello_response) \
    each(server_description_id) \
    each(server_description_type) \
    each(server_descriptions_destroy_all) \
    each(session_opts_destroy) \
    each(session_opts_new) \
    each(session_opts_set_causal_consistency) \
    each(stream_check_closed) \
    each(stream_close) \
    each(stream_destroy) \
    each(stream_failed) \
    each(stream_flush) \
    each(stream_poll) \
    each(stream_setsockopt) \
    each(stream_should_retry) \
    each(stream_timed_out) \
    each(transaction_opts_destroy) \
    each(transaction_opts_new) \
    each(transaction_opts_set_max_commit_time_ms) \
    each(transaction_opts_set_read_concern) \
    each(transaction_opts_set_write_concern) \
    each(uri_copy) \
    each(uri_destroy) \
    each(uri_get_appname) \
    each(uri_get_database) \
    each(uri_get_hosts) \
    each(uri_get_option_as_bool) \
    each(uri_get_option_as_int32) \
    each(uri_get_read_concern) \
    each(uri_get_read_prefs_t) \
    each(uri_get_replica_set) \
    each(uri_get_write_concern) \
    each(uri_has_option) \
    each(uri_new_with_error) \
    each(uri_set_appname) \
    each(uri_set_option_as_bool) \
    each(uri_set_option_as_int32) \
    each(uri_set_option_as_utf8) \
    each(write_concern_append) \
    each(write_concern_destroy) \
    each(write_concern_get_w) \
    each(write_concern_get_wmajority) \
    each(write_concern_get_wtag) \
    each(write_concern_new) \
    each(write_concern_set_journal) \
    each(write_concern_set_w) \
    each(write_concern_set_wtimeout_int64)
/* clang-format on */

#define MONGOC_MEMBER(name) __typeof__(mongoc_##name) *name;
struct mongoc_functions {
    MONGOC_FUNCTIONS(MONGOC_MEMBER)
};
#undef MONGOC_MEMBER

extern struct mongoc_functions truce__mongoc;

/* libmongoc's function that creates a stream, or NULL if the library does not export it. It is not
 * part of libmongoc's stable interface. */
extern mongoc_stream_initiator_t truce__mongoc_make_stream;

/* Loads libmongoc once in the life of the process. If `library` is NULL, loads the library for
 * which truce was built. Fails with INVALID if the library is missing or lacks a function; the next
 * call then tries again. */
truce_status truce__mongoc_load(const char *library, bson_error_t *error);

/* A receiver of libmongoc's messages, which are those of the whole process: each open store has
 * one. If the program uses libmongoc itself, it keeps the messages, and stores receive none. */
struct mongoc_audience {
    struct log_hook log_hook;
    /* Used only by mongoc_load.c. */
    struct mongoc_audience *next;
};
void truce__mongoc_listen(struct mongoc_audience *audience);
void truce__mongoc_listen_end(struct mongoc_audience *audience);

/* clang-format off */
#ifndef MONGOC_NAMES_ITSELF
#define mongoc_apm_callbacks_destroy truce__mongoc.apm_callbacks_destroy
#define mongoc_apm_callbacks_new truce__mongoc.apm_callbacks_new
#define mongoc_apm_command_failed_get_context truce__mongoc.apm_command_failed_get_context
#define mongoc_apm_command_failed_get_error truce__mongoc.apm_command_failed_get_error
#define mongoc_apm_command_succeeded_get_context truce__mongoc.apm_command_succeeded_get_context
#define mongoc_apm_command_succeeded_get_reply truce__mongoc.apm_command_succeeded_get_reply
#define mongoc_apm_set_command_failed_cb truce__mongoc.apm_set_command_failed_cb
#define mongoc_apm_set_command_succeeded_cb truce__mongoc.apm_set_command_succeeded_cb
#define mongoc_bulk_operation_destroy truce__mongoc.bulk_operation_destroy
#define mongoc_bulk_operation_execute truce__mongoc.bulk_operation_execute
#define mongoc_bulk_operation_insert_with_opts truce__mongoc.bulk_operation_insert_with_opts
#define mongoc_bulk_operation_new truce__mongoc.bulk_operation_new
#define mongoc_bulk_operation_remove_many_with_opts truce__mongoc.bulk_operation_remove_many_with_opts
#define mongoc_bulk_operation_remove_one_with_opts truce__mongoc.bulk_operation_remove_one_with_opts
#define mongoc_bulk_operation_set_client truce__mongoc.bulk_operation_set_client
#define mongoc_bulk_operation_set_bypass_document_validation \
    truce__mongoc.bulk_operation_set_bypass_document_validation
#define mongoc_bulk_operation_set_client_session truce__mongoc.bulk_operation_set_client_session
#define mongoc_bulk_operation_set_collection truce__mongoc.bulk_operation_set_collection
#define mongoc_bulk_operation_set_database truce__mongoc.bulk_operation_set_database
#define mongoc_bulk_operation_set_write_concern truce__mongoc.bulk_operation_set_write_concern
#define mongoc_bulk_operation_update_many_with_opts truce__mongoc.bulk_operation_update_many_with_opts
#define mongoc_bulk_operation_update_one_with_opts truce__mongoc.bulk_operation_update_one_with_opts
#define mongoc_change_stream_destroy truce__mongoc.change_stream_destroy
#define mongoc_change_stream_error_document truce__mongoc.change_stream_error_document
#define mongoc_change_stream_next truce__mongoc.change_stream_next
#define mongoc_client_command_with_opts truce__mongoc.client_command_with_opts
#define mongoc_client_destroy truce__mongoc.client_destroy
#define mongoc_client_get_database truce__mongoc.client_get_database
#define mongoc_client_get_server_descriptions truce__mongoc.client_get_server_descriptions
#define mongoc_client_new_from_uri truce__mongoc.client_new_from_uri
#define mongoc_client_pool_destroy truce__mongoc.client_pool_destroy
#define mongoc_client_pool_new_with_error truce__mongoc.client_pool_new_with_error
#define mongoc_client_pool_pop truce__mongoc.client_pool_pop
#define mongoc_client_pool_push truce__mongoc.client_pool_push
#define mongoc_client_pool_set_apm_callbacks truce__mongoc.client_pool_set_apm_callbacks
#define mongoc_client_pool_set_error_api truce__mongoc.client_pool_set_error_api
#define mongoc_client_read_command_with_opts truce__mongoc.client_read_command_with_opts
#define mongoc_client_reset truce__mongoc.client_reset
#define mongoc_client_select_server truce__mongoc.client_select_server
#define mongoc_client_session_append truce__mongoc.client_session_append
#define mongoc_client_session_commit_transaction truce__mongoc.client_session_commit_transaction
#define mongoc_client_session_destroy truce__mongoc.client_session_destroy
#define mongoc_client_session_in_transaction truce__mongoc.client_session_in_transaction
#define mongoc_client_session_start_transaction truce__mongoc.client_session_start_transaction
#define mongoc_client_set_error_api truce__mongoc.client_set_error_api
#define mongoc_client_set_stream_initiator truce__mongoc.client_set_stream_initiator
#define mongoc_client_start_session truce__mongoc.client_start_session
#define mongoc_client_write_command_with_opts truce__mongoc.client_write_command_with_opts
#define mongoc_database_destroy truce__mongoc.database_destroy
#define mongoc_database_watch truce__mongoc.database_watch
#define mongoc_init truce__mongoc.init
#define mongoc_log_set_handler truce__mongoc.log_set_handler
#define mongoc_read_concern_destroy truce__mongoc.read_concern_destroy
#define mongoc_read_concern_get_level truce__mongoc.read_concern_get_level
#define mongoc_read_concern_new truce__mongoc.read_concern_new
#define mongoc_read_concern_set_level truce__mongoc.read_concern_set_level
#define mongoc_read_prefs_get_mode truce__mongoc.read_prefs_get_mode
#define mongoc_server_description_destroy truce__mongoc.server_description_destroy
#define mongoc_server_description_hello_response truce__mongoc.server_description_hello_response
#define mongoc_server_description_id truce__mongoc.server_description_id
#define mongoc_server_description_type truce__mongoc.server_description_type
#define mongoc_server_descriptions_destroy_all truce__mongoc.server_descriptions_destroy_all
#define mongoc_session_opts_destroy truce__mongoc.session_opts_destroy
#define mongoc_session_opts_new truce__mongoc.session_opts_new
#define mongoc_session_opts_set_causal_consistency truce__mongoc.session_opts_set_causal_consistency
#define mongoc_stream_check_closed truce__mongoc.stream_check_closed
#define mongoc_stream_close truce__mongoc.stream_close
#define mongoc_stream_destroy truce__mongoc.stream_destroy
#define mongoc_stream_failed truce__mongoc.stream_failed
#define mongoc_stream_flush truce__mongoc.stream_flush
#define mongoc_stream_poll truce__mongoc.stream_poll
#define mongoc_stream_setsockopt truce__mongoc.stream_setsockopt
#define mongoc_stream_should_retry truce__mongoc.stream_should_retry
#define mongoc_stream_timed_out truce__mongoc.stream_timed_out
#define mongoc_transaction_opts_destroy truce__mongoc.transaction_opts_destroy
#define mongoc_transaction_opts_new truce__mongoc.transaction_opts_new
#define mongoc_transaction_opts_set_max_commit_time_ms truce__mongoc.transaction_opts_set_max_commit_time_ms
#define mongoc_transaction_opts_set_read_concern truce__mongoc.transaction_opts_set_read_concern
#define mongoc_transaction_opts_set_write_concern truce__mongoc.transaction_opts_set_write_concern
#define mongoc_uri_copy truce__mongoc.uri_copy
#define mongoc_uri_destroy truce__mongoc.uri_destroy
#define mongoc_uri_get_appname truce__mongoc.uri_get_appname
#define mongoc_uri_get_database truce__mongoc.uri_get_database
#define mongoc_uri_get_hosts truce__mongoc.uri_get_hosts
#define mongoc_uri_get_option_as_bool truce__mongoc.uri_get_option_as_bool
#define mongoc_uri_get_option_as_int32 truce__mongoc.uri_get_option_as_int32
#define mongoc_uri_get_read_concern truce__mongoc.uri_get_read_concern
#define mongoc_uri_get_read_prefs_t truce__mongoc.uri_get_read_prefs_t
#define mongoc_uri_get_replica_set truce__mongoc.uri_get_replica_set
#define mongoc_uri_get_write_concern truce__mongoc.uri_get_write_concern
#define mongoc_uri_has_option truce__mongoc.uri_has_option
#define mongoc_uri_new_with_error truce__mongoc.uri_new_with_error
#define mongoc_uri_set_appname truce__mongoc.uri_set_appname
#define mongoc_uri_set_option_as_bool truce__mongoc.uri_set_option_as_bool
#define mongoc_uri_set_option_as_int32 truce__mongoc.uri_set_option_as_int32
#define mongoc_uri_set_option_as_utf8 truce__mongoc.uri_set_option_as_utf8
#define mongoc_write_concern_append truce__mongoc.write_concern_append
#define mongoc_write_concern_destroy truce__mongoc.write_concern_destroy
#define mongoc_write_concern_get_w truce__mongoc.write_concern_get_w
#define mongoc_write_concern_get_wmajority truce__mongoc.write_concern_get_wmajority
#define mongoc_write_concern_get_wtag truce__mongoc.write_concern_get_wtag
#define mongoc_write_concern_new truce__mongoc.write_concern_new
#define mongoc_write_concern_set_journal truce__mongoc.write_concern_set_journal
#define mongoc_write_concern_set_w truce__mongoc.write_concern_set_w
#define mongoc_write_concern_set_wtimeout_int64 truce__mongoc.write_concern_set_wtimeout_int64
#endif
/* clang-format on */

#endif
