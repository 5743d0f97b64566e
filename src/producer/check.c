/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../ipc/log.h"
#include "../ipc/text.h"

enum {
    TICK_NS = 100000000,
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
    bool failed;
    char *error;
    size_t len;
};

static void report_bad(const struct run *run, uint64_t index, enum tsp_bad bad, const char *why)
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

/* With the lock. */
static void give_up(struct run *run, uint64_t index, const char *why)
{
    char key[512];
    if (run->failed)
        return;
    run->failed = true;
    tsi_log_quote(run->check->source->ops->key(run->check->source, index), key, sizeof key);
    snprintf(run->error, run->len, "%s: %s", key, why);
    atomic_store(&run->stop, true);
}

static void account(struct run *run, uint64_t index, enum tsp_bad bad, const char *why, uint64_t pixels, uint64_t bytes)
{
    pthread_mutex_lock(&run->lock);
    run->result.checked++;
    run->result.bytes += bytes;
    if (bad == TSP_GOOD) {
        run->result.pixels += pixels;
    } else if (bad == TSP_STOP) {
        give_up(run, index, why);
    } else {
        run->result.bad++;
        report_bad(run, index, bad, why);
    }
    pthread_mutex_unlock(&run->lock);
}

static void check_sample(struct run *run, struct tsp_decoder *decoder, struct tsp_encoded *encoded, uint64_t index)
{
    const struct tsp_source *source = run->check->source;
    struct tsp_pixels pixels;
    uint32_t width = 0, height = 0, orientation;
    const char *why = encoded->why;
    encoded->len = 0;
    enum tsp_bad bad = source->ops->read(source, index, encoded);
    if (bad == TSP_GOOD) {
        why = tsp_decoder_why(decoder);
        bad = tsp_decoder_header(decoder, encoded, false, &width, &height);
        if (bad == TSP_GOOD)
            bad = tsp_decoder_whole(decoder, &pixels, &orientation);
    }
    account(run, index, bad, why, (uint64_t)width * height, encoded->len);
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
    uint32_t n = start_threads(&run, threads);
    wait_for_threads(&run);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&run.ended);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_destroy(&run.lock);
    free(threads);
    if (!run.failed)
        *result_out = run.result;
    return !run.failed;
}
