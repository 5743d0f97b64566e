/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../ipc/clock.h"
#include "../ipc/log.h"
#include "../ipc/text.h"

enum {
    TICK_NS = 100000000,
    KEY_LEN = 512,
};

/* What the threads share. */
struct run {
    const struct tsp_check *check;
    atomic_uint_fast64_t next; /* sample to take; relaxed: it orders nothing else */
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* on CLOCK_MONOTONIC, with `running` */
    uint32_t running;     /* protected by lock, as are all below and the lines in check->out */
    struct tsp_check_result result;
    size_t bad_room; /* of result.bad_samples */
    bool failed;
    char *error;
    size_t len;
};

static void print_json(const struct run *run, uint64_t index, enum tsp_bad bad, const char *why)
{
    const struct tsp_check *check = run->check;
    FILE *out = check->out;
    putc('{', out);
    if (check->stream)
        fprintf(out, "\"stream\":\"%s\",", check->stream);
    fprintf(out, "\"index\":%" PRIu64 ",\"key\":", index);
    tsi_text_json_string(check->source->ops->key(check->source, index), out);
    fprintf(out, ",\"kind\":\"%s\",\"why\":", tsp_bad_word(bad));
    tsi_text_json_string(why, out);
    fputs("}\n", out);
}

/* "truncated  train: cat/1.jpg: the file ends too early, after 300 bytes" */
static void print_text(const struct run *run, uint64_t index, enum tsp_bad bad, const char *why)
{
    const struct tsp_check *check = run->check;
    char key[KEY_LEN];
    tsi_log_quote(check->source->ops->key(check->source, index), key, sizeof key);
    fprintf(check->out, "%-15s %s%s%s: %s\n", tsp_bad_word(bad), check->stream ? check->stream : "",
            check->stream ? ": " : "", key, why);
}

/* With the lock. */
static void give_up(struct run *run, uint64_t index, const char *why)
{
    char key[KEY_LEN];
    if (run->failed)
        return;
    run->failed = true;
    tsi_log_quote(run->check->source->ops->key(run->check->source, index), key, sizeof key);
    snprintf(run->error, run->len, "%s: %s", key, why);
    atomic_store(&run->stop, true);
}

/* With the lock. */
static void add_bad(struct run *run, uint64_t index, enum tsp_bad bad, const char *why)
{
    struct tsp_check_result *result = &run->result;
    if (result->bad == run->bad_room) {
        size_t more = run->bad_room ? run->bad_room * 2 : 64;
        uint64_t *grown = reallocarray(result->bad_samples, more, sizeof *grown);
        if (!grown) {
            give_up(run, index, "no memory for a longer list of the bad ones");
            return;
        }
        result->bad_samples = grown;
        run->bad_room = more;
    }
    result->bad_samples[result->bad++] = index;
    result->kinds[bad]++;
    if (run->check->erase)
        fputs(run->check->erase, run->check->out);
    if (run->check->json)
        print_json(run, index, bad, why);
    else
        print_text(run, index, bad, why);
}

/* What the threads found out about one sample; `measure` is only looked at where it is good. */
static void account(struct run *run, uint64_t index, enum tsp_bad bad, const char *why, uint64_t bytes,
                    const struct tsp_measure *measure)
{
    pthread_mutex_lock(&run->lock);
    run->result.checked++;
    run->result.bytes += bytes;
    if (bad == TSP_GOOD)
        tsp_summary_add(&run->result.summary, measure);
    else if (bad == TSP_STOP)
        give_up(run, index, why);
    else
        add_bad(run, index, bad, why);
    pthread_mutex_unlock(&run->lock);
}

static enum tsp_bad decode(struct tsp_decoder *decoder, const struct tsp_encoded *encoded, struct tsp_measure *measure)
{
    struct tsp_pixels pixels;
    uint32_t orientation;
    enum tsp_bad bad = tsp_decoder_header(decoder, encoded, true, &measure->width, &measure->height);
    if (bad != TSP_GOOD)
        return bad;
    measure->storage = tsp_decoder_storage(decoder);
    bad = tsp_decoder_whole(decoder, &pixels, &orientation);
    if (bad == TSP_GOOD)
        tsp_measure_pixels(measure, &pixels);
    return bad;
}

static void check_sample(struct run *run, struct tsp_decoder *decoder, struct tsp_encoded *encoded, uint64_t index)
{
    const struct tsp_source *source = run->check->source;
    struct tsp_measure measure;
    const char *why = encoded->why;
    encoded->len = 0;
    enum tsp_bad bad = source->ops->read(source, index, encoded);
    if (bad == TSP_GOOD) {
        why = tsp_decoder_why(decoder);
        bad = decode(decoder, encoded, &measure);
    }
    account(run, index, bad, why, encoded->len, &measure);
}

static void *check_samples(void *context)
{
    struct run *run = context;
    struct tsp_decoder *decoder = tsp_decoder_create(&run->check->limits);
    struct tsp_encoded encoded = {0};
    uint64_t count = run->check->source->count, index = 0;
    while (decoder && !atomic_load(&run->stop) && (index = atomic_fetch_add(&run->next, 1)) < count)
        check_sample(run, decoder, &encoded, index);
    tsp_encoded_fini(&encoded);

    pthread_mutex_lock(&run->lock);
    if (!decoder)
        give_up(run, 0, "no memory for a decoder");
    run->running--;
    pthread_cond_signal(&run->ended);
    pthread_mutex_unlock(&run->lock);
    tsp_decoder_destroy(decoder);
    return NULL;
}

/* Until all threads have ended. */
static void wait_for_threads(struct run *run)
{
    const struct tsp_check *check = run->check;
    pthread_mutex_lock(&run->lock);
    while (run->running > 0) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += TICK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&run->ended, &run->lock, &until);
        if (check->go_on && !run->result.stopped && !check->go_on(check->context, run->result.checked)) {
            run->result.stopped = true;
            atomic_store(&run->stop, true);
        }
    }
    pthread_mutex_unlock(&run->lock);
}

/* Starts threads until one does not start; returns how many run. Without any, the run has failed. */
static uint32_t start_threads(struct run *run, pthread_t *threads)
{
    uint32_t n = 0;
    int failure = 0;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* signals belong to the caller's thread */
    pthread_mutex_lock(&run->lock);            /* a thread that ends at once waits for us to have counted it */
    while (n < run->check->workers && (failure = pthread_create(&threads[n], NULL, check_samples, run)) == 0)
        n++;
    run->running = n;
    pthread_mutex_unlock(&run->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (n == 0) {
        snprintf(run->error, run->len, "no thread could be started: %s", strerror(failure));
        run->failed = true;
    }
    return n;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

bool tsp_check_run(const struct tsp_check *check, struct tsp_check_result *result_out, char *error, size_t len)
{
    struct run run = {.check = check, .error = error, .len = len};
    pthread_condattr_t monotonic;
    pthread_t *threads = calloc(check->workers, sizeof *threads);
    if (!threads) {
        snprintf(error, len, "no memory for %" PRIu32 " threads", check->workers);
        return false;
    }
    pthread_mutex_init(&run.lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&run.ended, &monotonic);
    uint64_t begun_ns = tsi_clock_ns();
    uint32_t n = start_threads(&run, threads);
    wait_for_threads(&run);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&run.ended);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_destroy(&run.lock);
    free(threads);
    if (run.failed) {
        free(run.result.bad_samples);
        return false;
    }
    if (run.result.bad > 0)
        qsort(run.result.bad_samples, run.result.bad, sizeof *run.result.bad_samples, compare);
    run.result.seconds = (double)(tsi_clock_ns() - begun_ns) / TSI_NS_PER_S;
    *result_out = run.result;
    return true;
}

/* ---- the end of the report ---- */

static void print_result(const struct tsp_check *check, const struct tsp_check_result *result)
{
    FILE *out = check->out;
    const char *before = ": ";
    if (check->stream)
        fprintf(out, "stream %s: ", check->stream);
    fprintf(out, "%" PRIu64 " of %" PRIu64 " checked in %.1f s, %.1f MB, %" PRIu64 " bad", result->checked,
            check->source->count, result->seconds, (double)result->bytes / 1e6, result->bad);
    for (enum tsp_bad bad = TSP_GOOD; bad < TSP_BAD_COUNT; bad++) {
        if (result->kinds[bad] == 0)
            continue;
        fprintf(out, "%s%s %" PRIu64, before, tsp_bad_word(bad), result->kinds[bad]);
        before = ", ";
    }
    fputs(result->stopped ? "; stopped before the end\n" : "\n", out);
    tsp_summary_print(&result->summary, out);
}

static void print_result_json(const struct tsp_check *check, const struct tsp_check_result *result)
{
    FILE *out = check->out;
    const char *before = "";
    fputs("{\"summary\":{", out);
    if (check->stream)
        fprintf(out, "\"stream\":\"%s\",", check->stream);
    fprintf(out,
            "\"samples\":%" PRIu64 ",\"checked\":%" PRIu64 ",\"stopped\":%s,\"seconds\":%.3f,\"bytes\":%" PRIu64
            ",\"bad\":%" PRIu64 ",\"kinds\":{",
            check->source->count, result->checked, result->stopped ? "true" : "false", result->seconds, result->bytes,
            result->bad);
    for (enum tsp_bad bad = TSP_GOOD; bad < TSP_BAD_COUNT; bad++) {
        if (result->kinds[bad] == 0)
            continue;
        fprintf(out, "%s\"%s\":%" PRIu64, before, tsp_bad_word(bad), result->kinds[bad]);
        before = ",";
    }
    putc('}', out);
    tsp_summary_print_json(&result->summary, out);
    fputs("}}\n", out);
}

void tsp_check_print(const struct tsp_check *check, const struct tsp_check_result *result)
{
    if (check->json)
        print_result_json(check, result);
    else
        print_result(check, result);
}
