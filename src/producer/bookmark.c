/* SPDX-License-Identifier: Apache-2.0 */
#include "bookmark.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "../ipc/clock.h"
#include "../ipc/log.h"

/* ---- the start ---- */

static bool differs(const char *path, const struct tsp_feed *feed, const char *what, const char *then, const char *now,
                    struct tsp_problem *problem_out)
{
    return tsp_problem_set(problem_out,
                           "--state %s: stream %s had another %s then (%s, now %s): its epochs cannot be gone on with; "
                           "give the old %s, or remove the file to begin with epoch 0",
                           path, feed->options->name, what, then, now, what);
}

static bool check_stream(const char *path, const struct tsp_feed *feed, const struct tsp_state_stream *then,
                         struct tsp_problem *problem_out)
{
    char seed_then[32], seed_now[32];

    snprintf(seed_then, sizeof(seed_then), "%llu", (unsigned long long)then->seed);
    snprintf(seed_now, sizeof(seed_now), "%llu", (unsigned long long)feed->options->recipe.seed);
    if (strcmp(then->dataset, feed->dataset_id) != 0)
        return differs(path, feed, "dataset", then->dataset, feed->dataset_id, problem_out);
    if (strcmp(then->recipe, feed->recipe_id) != 0)
        return differs(path, feed, "recipe", then->recipe, feed->recipe_id, problem_out);
    if (strcmp(seed_then, seed_now) != 0)
        return differs(path, feed, "seed", seed_then, seed_now, problem_out);
    if (feed->options->epochs > 0 && then->epoch >= feed->options->epochs)
        return tsp_problem_set(problem_out,
                               "--state %s: all %llu epochs of stream %s are done; raise --epochs, or remove the file "
                               "to begin with epoch 0",
                               path, (unsigned long long)feed->options->epochs, feed->options->name);
    return true;
}

/* A stream that the file does not know begins with epoch 0, one that is not served any more is forgotten. */
bool tsp_bookmark_open(struct tsp_bookmark *bookmark, const char *path, struct tsp_feed *feeds, uint32_t n,
                       struct tsp_problem *problem_out)
{
    struct tsp_state before;

    *bookmark = (struct tsp_bookmark){.path = path};
    if (path == NULL)
        return true;
    if (!tsp_state_read(path, &before, problem_out))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct tsp_state_stream *then = tsp_state_find(&before, feeds[i].options->name);
        struct tsp_state_stream *stream = &bookmark->state.streams[bookmark->state.n++];

        if (then != NULL && !check_stream(path, &feeds[i], then, problem_out))
            return false;
        feeds[i].first_epoch = then != NULL ? then->epoch : 0;
        *stream = (struct tsp_state_stream){.epoch = feeds[i].first_epoch, .seed = feeds[i].options->recipe.seed};
        strcpy(stream->name, feeds[i].options->name);
        strcpy(stream->dataset, feeds[i].dataset_id);
        strcpy(stream->recipe, feeds[i].recipe_id);
    }
    bookmark->written = tsp_state_write(path, &bookmark->state, problem_out);
    if (bookmark->written || errno == ENOSPC || errno == EDQUOT) /* there may be room later: the first tick says so */
        return true;
    return false; /* that it never can be is to be known before the first epoch, not after it */
}

/* ---- the run ---- */

static uint64_t number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= 0x1p53 ? (uint64_t)item->valuedouble
                                                                                         : 0;
}

static bool is_word(const cJSON *object, const char *key, const char *word)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsString(item) && strcmp(item->valuestring, word) == 0;
}

/* The oldest epoch that somebody in the group's ring still reads: with it, nobody there loses anything. */
static uint64_t epoch_of(const cJSON *stream, bool ended)
{
    const cJSON *consumer;
    uint64_t epoch = number(stream, "epoch");
    bool anyone = false;

    cJSON_ArrayForEach(consumer, cJSON_GetObjectItemCaseSensitive(stream, "consumers"))
    {
        uint64_t its = number(consumer, "epoch");

        if (!is_word(consumer, "ring", "group"))
            continue;
        anyone = true;
        epoch = its < epoch ? its : epoch;
    }
    return ended && !anyone && is_word(stream, "state", "finished") ? number(stream, "epochs") : epoch;
}

bool tsp_bookmark_look(struct tsp_bookmark *bookmark, const char *status, bool ended)
{
    cJSON *document = cJSON_Parse(status);
    const cJSON *stream;
    bool changed = false;

    cJSON_ArrayForEach(stream, cJSON_GetObjectItemCaseSensitive(document, "streams"))
    {
        const cJSON *name = cJSON_GetObjectItemCaseSensitive(stream, "name");
        struct tsp_state_stream *kept =
            cJSON_IsString(name) ? tsp_state_find(&bookmark->state, name->valuestring) : NULL;

        /* upwards: one who reads an old epoch once more does not take the others back */
        if (kept != NULL && epoch_of(stream, ended) > kept->epoch) {
            kept->epoch = epoch_of(stream, ended);
            changed = true;
        }
    }
    cJSON_Delete(document);
    return changed;
}

static void save(struct tsp_bookmark *bookmark)
{
    struct tsp_problem problem;

    bookmark->written = tsp_state_write(bookmark->path, &bookmark->state, &problem);
    if (!bookmark->written && !bookmark->failing)
        tsi_log('W', "%s; the run goes on, and this is tried again", problem.text);
    if (bookmark->written && bookmark->failing)
        tsi_log('W', "--state %s: is written again", bookmark->path);
    bookmark->failing = !bookmark->written;
}

static void update(struct tsp_bookmark *bookmark, struct tsocket_producer *producer, bool ended)
{
    char *status;

    if (tsocket_producer_status(producer, &status) != TSOCKET_OK)
        return;
    if (tsp_bookmark_look(bookmark, status, ended))
        bookmark->written = false;
    free(status);
    if (!bookmark->written)
        save(bookmark);
}

void tsp_bookmark_tick(struct tsp_bookmark *bookmark, struct tsocket_producer *producer, uint64_t now_ns)
{
    if (bookmark->path == NULL || now_ns < bookmark->due_ns)
        return;
    bookmark->due_ns = now_ns + TSI_NS_PER_S;
    update(bookmark, producer, false);
}

void tsp_bookmark_close(struct tsp_bookmark *bookmark, struct tsocket_producer *producer, bool ended)
{
    if (bookmark->path != NULL)
        update(bookmark, producer, ended);
}
