/*
 * truce demo post: two editors open the same blog post. One corrects the title. The other adds a
 * tag and a paragraph, and saves later.
 *
 * There are four endings. The naive code loses the correction. With truce, a save is refused, or
 * merged, or, if both changed the title, kept for a person to decide.
 */
#include <inttypes.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/demo/demo.h"
#include "cli/demo/demo_stage.h"

#define POST "{\"_id\": 1, \"title\": \"Truce\", \"tags\": [\"db\"], \"body\": \"one\\ntwo\\n\"}"
#define FIRST                                                                                      \
    "{\"_id\": 1, \"title\": \"On truces\", \"tags\": [\"db\"], \"body\": \"one\\ntwo\\n\"}"
#define SECOND                                                                                     \
    "{\"_id\": 1, \"title\": \"Truce\", \"tags\": [\"db\", \"c\"], "                               \
    "\"body\": \"one\\ntwo\\nthree\\n\"}"
#define THIRD "{\"_id\": 1, \"title\": \"Peace\", \"tags\": [\"db\"], \"body\": \"one\\ntwo\\n\"}"

struct post {
    struct demo_stage stage;
    truce_store *store;
    truce_revision *revision;
    bson_error_t error;
    /* The first failure. After a failure, the functions do nothing. */
    truce_status status;
};

static bson_t *post_json(const char *text)
{
    return bson_new_from_json((const uint8_t *)text, -1, NULL);
}

static void post_begin(struct post *post)
{
    bson_t *document = post_json(POST), *rules = BCON_NEW("body", BCON_UTF8("text"));
    truce_revision_result result;

    if (!post->status)
        post->status = demo_stage_clear(&post->stage, &post->error);
    if (!post->status)
        post->status = truce_store_open(post->stage.uri, NULL, &post->store, &post->error);
    if (!post->status) {
        post->revision = truce_revision_new(
            post->store, &(truce_revision_options){
                             .collection = "posts", .keep = 10, .rules = rules, .inbox = true});
        post->status = truce_revision_save(post->revision, NULL, document, TRUCE_REVISION_NEW, NULL,
                                           &result, &post->error);
        truce_revision_result_release(&result);
    }
    bson_destroy(document);
    bson_destroy(rules);
}

static void post_end(struct post *post)
{
    truce_revision_free(post->revision);
    truce_store_close(post->store);
    post->revision = NULL;
    post->store = NULL;
}

static bool title_is(struct post *post, const char *title)
{
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1)), found;
    bson_iter_t iter;
    bool same;

    if (!post->status)
        post->status = truce_find_one(post->store, "posts", filter, NULL, &found, &post->error);
    else
        bson_init(&found);
    same =
        bson_iter_init_find(&iter, &found, "title") && !strcmp(bson_iter_utf8(&iter, NULL), title);
    bson_destroy(&found);
    bson_destroy(filter);
    return same;
}

/* Returns whether the second of two plain saves loses the edit of the first. */
static bool usual_loses(struct post *post)
{
    const char *const saves[] = {FIRST, SECOND};
    bson_t *filter = BCON_NEW("_id", BCON_INT32(1));
    bool lost;

    post_begin(post);
    for (int i = 0; i < 2 && !post->status; i++) {
        bson_t *document = post_json(saves[i]);

        post->status =
            truce_update(post->store, "posts", filter, document, NULL, NULL, &post->error);
        bson_destroy(document);
    }
    lost = !title_is(post, "On truces");
    post_end(post);
    bson_destroy(filter);
    return lost;
}

/* Saves as the first editor, and then as the second, with the revision number that both have
 * read. */
static truce_revision_outcome post_save_twice(struct post *post, bool merges, const char *text,
                                              const char *title, bool *right)
{
    bson_t *first = post_json(FIRST), *second = post_json(text);
    truce_revision_outcome outcome = 0;
    truce_revision_result result;

    post_begin(post);
    if (!post->status) {
        post->status =
            truce_revision_save(post->revision, NULL, first, 1, NULL, &result, &post->error);
        truce_revision_result_release(&result);
    }
    if (!post->status) {
        post->status = (merges ? truce_revision_merge : truce_revision_save)(
            post->revision, NULL, second, 1, NULL, &result, &post->error);
        outcome = result.outcome;
        truce_revision_result_release(&result);
    }
    *right = title_is(post, title) && !post->status;
    post_end(post);
    bson_destroy(first);
    bson_destroy(second);
    return outcome;
}

int demo_post(struct cli *cli)
{
    struct post post = {0};
    bool lost, kept, merged, asked, right;
    bson_t answer = BSON_INITIALIZER;
    int code = demo_stage_begin(&post.stage, cli, "post", NULL);

    if (code)
        return code;
    lost = usual_loses(&post);
    kept = post_save_twice(&post, false, SECOND, "On truces", &right) == TRUCE_REVISION_CONFLICT &&
           right;
    merged =
        post_save_twice(&post, true, SECOND, "On truces", &right) == TRUCE_REVISION_MERGED && right;
    asked = post_save_twice(&post, true, THIRD, "On truces", &right) == TRUCE_REVISION_CONFLICT &&
            right;
    demo_stage_end(&post.stage);
    if (post.status)
        return cli_error(cli, "post", post.status, &post.error);
    BSON_APPEND_UTF8(&answer, "story", "post");
    BSON_APPEND_BOOL(&answer, "lost the usual way", lost);
    BSON_APPEND_BOOL(&answer, "refused", kept);
    BSON_APPEND_BOOL(&answer, "merged", merged);
    BSON_APPEND_BOOL(&answer, "asked", asked);
    cli_answer(cli, &answer,
               "post         two editors save one post; the second has not seen the first's title\n"
               "             usual way      the title of the first is %s\n"
               "             truce, save    the second is %s, the title is kept\n"
               "             truce, merge   both changes are %s\n"
               "             truce, ask     two titles: %s",
               lost ? "lost without a message" : "there", kept ? "refused" : "NOT refused",
               merged ? "in" : "NOT in",
               asked ? "kept in the inbox for a decision" : "NOT noticed");
    bson_destroy(&answer);
    return cli_output_end(kept && merged && asked ? CLI_DONE : CLI_NO);
}
