#ifndef TRUCE_TESTS_SUPPORT_SERVED_CLAIM_H
#define TRUCE_TESTS_SUPPORT_SERVED_CLAIM_H

/* Conversations in which a job is claimed and then used by its token. */
#include "tests/support/served_story.h"

/* Claims a job of the queue. The queue, the job's id, and the claim's token replace each %s of
 * the command. */
__attribute__((unused)) static void with_token(int end_, const char *queue, const char *command,
                                               int code, const char *path, const char *text)
{
    char *claim = bson_strdup_printf("{truceClaim: '%s', waitMS: 20000, leaseMS: 60000}", queue);
    bson_t *reply = send_typed(end_, claim);
    char *token = shown(reply, "jobs.0.token"), *id = shown(reply, "jobs.0._id");
    char *whole = bson_strdup_printf(command, queue, id ? id : "1", token ? token : "1");
    const struct step step = {whole, code, path, text};

    CHECK(token && id);
    take_step(end_, &step);
    bson_free(whole);
    bson_free(id);
    bson_free(token);
    bson_destroy(reply);
    bson_free(claim);
}

#define HELD(verb, more) "{" verb ": '%s', id: %s, token: %s" more "}"

#endif
