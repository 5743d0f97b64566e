/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "ipc/device.h"

enum {
    THREADS_MAX = 8,
    NOISE_BYTES = 24,
    BATCH_MAX = 1024,
    PATIENCE_MS = 20000,
    NO_GPU_STATUS = 77,
};

struct rig {
    struct rig_options options;
    struct tsocket_producer *producer;
    atomic_int failures; /* in the threads, where cmocka's assertions must not be used */
    pthread_t threads[THREADS_MAX];
};

static char folder[64];

/* Warnings are what some tests provoke; what went wrong is in tsocket_last_error(). */
static void be_quiet(void *context, char level, const char *message)
{
    (void)context;
    (void)level;
    (void)message;
}

void rig_folder_make(void)
{
    tsocket_set_log_sink(be_quiet, NULL);
    strcpy(folder, "/tmp/tsocket-rig-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("TSOCKET_DIR", folder, 1), 0);
}

void rig_folder_check_and_remove(void)
{
    if (rmdir(folder) != 0) /* it is not empty: something was left behind */
        fail_msg("%s is not empty", folder);
}

int64_t rig_value(uint64_t epoch, uint64_t ordinal)
{
    return (int64_t)(epoch * 1000000 + ordinal);
}

static unsigned char noise_of(int64_t value)
{
    return (unsigned char)(value * 31 + 7);
}

static void write_sample(const struct tsocket_claim *claim)
{
    int64_t value = rig_value(claim->epoch, claim->ordinal);

    memcpy(claim->data[0], &value, sizeof(value));
    memset(claim->data[1], noise_of(value), NOISE_BYTES);
}

static void fill_one(struct rig *rig, const struct tsocket_claim *claim)
{
    const struct rig_options *options = &rig->options;

    if (options->epoch_samples == 0 && claim->ordinal >= options->epoch_ends_at) {
        if (tsocket_producer_end_epoch(rig->producer, claim) != TSOCKET_OK)
            atomic_fetch_add(&rig->failures, 1);
        return;
    }
    write_sample(claim);
    if (options->bad_every > 0 && claim->ordinal % options->bad_every == 0)
        tsocket_producer_reject(rig->producer, claim, "odd", "the test wants it so");
    else
        tsocket_producer_commit(rig->producer, claim);
}

static void *fill(void *context)
{
    struct rig *rig = context;
    struct tsocket_claim claim;

    while (tsocket_producer_claim(rig->producer, -1, &claim) == TSOCKET_OK)
        fill_one(rig, &claim);
    return NULL;
}

static bool is_host(void)
{
    return getenv("RIG_DEVICE") == NULL;
}

bool rig_outlives_its_producer(void)
{
    const char *share = getenv("RIG_SHARE");

    return is_host() || share == NULL || strcmp(share, "ipc") != 0;
}

int rig_rounds(int rounds)
{
    return is_host() ? rounds : rounds / 20;
}

/* The rig's own view of the first GPU; opened once, and left to the process. */
static const struct tsi_device *device(void)
{
    static struct tsi_device opened;
    int rc = opened.context == NULL ? tsi_device_open("cuda", &opened) : TSOCKET_OK;

    if (rc == TSOCKET_OK)
        return &opened;
    fprintf(stderr, "%s\n", tsocket_last_error());
    exit(rc == TSOCKET_ENOTFOUND ? NO_GPU_STATUS : 1);
}

void rig_need_device(void)
{
    device();
}

void rig_read(void *to, const void *from, size_t bytes)
{
    if (is_host()) {
        memcpy(to, from, bytes);
        return;
    }
    if (tsi_device_enter(device()) != TSOCKET_OK ||
        device()->cuda.cuMemcpyDtoHAsync(to, (uintptr_t)from, bytes, NULL) != TSI_CU_SUCCESS ||
        device()->cuda.cuStreamSynchronize(NULL) != TSI_CU_SUCCESS)
        abort(); /* maybe in a thread where cmocka's assertions must not be used */
    tsi_device_leave(device());
}

int64_t rig_number(const void *data, uint32_t i)
{
    int64_t number;

    rig_read(&number, (const char *)data + i * sizeof(number), sizeof(number));
    return number;
}

static void choose_places(struct tsocket_stream_options *stream)
{
    const char *share = getenv("RIG_SHARE");

    stream->device = getenv("RIG_DEVICE");
    if (share != NULL)
        stream->share = strcmp(share, "ipc") == 0 ? TSOCKET_SHARE_IPC : TSOCKET_SHARE_VMM;
    if (!is_host())
        device(); /* before there are threads that need it */
}

static void open_producer(struct rig *rig)
{
    static const struct tsocket_field fields[] = {
        {.name = "value", .dtype = TSOCKET_INT64},
        {.name = "noise", .dtype = TSOCKET_UINT8, .ndim = 1, .shape = {NOISE_BYTES}},
    };
    struct tsocket_producer_options options;
    struct tsocket_stream_options stream;

    tsocket_producer_options_init(&options);
    options.name = RIG_NAME;
    options.wait_for = rig->options.wait_for;
    options.join_grace_ms = rig->options.join_grace_ms;
    if (rig->options.max_hold_ms > 0)
        options.max_hold_ms = rig->options.max_hold_ms;
    tsocket_stream_options_init(&stream);
    stream.fields = fields;
    stream.n_fields = 2;
    stream.epoch_samples = rig->options.epoch_samples;
    stream.epochs = rig->options.epochs;
    stream.capacity = rig->options.capacity;
    stream.max_batch = rig->options.max_batch;
    stream.null = rig->options.null;
    stream.on_bad = rig->options.on_bad;
    stream.side_rings = rig->options.side_rings;
    stream.resident = rig->options.resident;
    stream.seed = rig->options.seed;
    choose_places(&stream);
    if (rig->options.epoch_samples > 0) { /* what the rig makes, it makes again at any time */
        stream.dataset_id = "00000000000000aa";
        stream.recipe_id = "00000000000000bb";
    }
    if (tsocket_producer_open(&options, &rig->producer) != TSOCKET_OK ||
        tsocket_producer_add_stream(rig->producer, &stream, NULL) != TSOCKET_OK ||
        tsocket_producer_start(rig->producer) != TSOCKET_OK)
        fail_msg("producer: %s", tsocket_last_error());
}

struct rig *rig_open(const struct rig_options *options)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    assert_non_null(rig);
    rig->options = *options;
    if (rig->options.threads == 0)
        rig->options.threads = 1;
    assert_in_range(rig->options.threads, 1, THREADS_MAX);
    rig_folder_make();
    open_producer(rig);
    for (uint32_t i = 0; i < rig->options.threads; i++)
        assert_int_equal(pthread_create(&rig->threads[i], NULL, fill, rig), 0);
    return rig;
}

void rig_close(struct rig *rig)
{
    tsocket_producer_stop(rig->producer);
    for (uint32_t i = 0; i < rig->options.threads; i++)
        pthread_join(rig->threads[i], NULL);
    tsocket_producer_close(rig->producer);
    assert_int_equal(rig->failures, 0);
    free(rig);
    rig_folder_check_and_remove();
}

struct tsocket_producer *rig_producer(struct rig *rig)
{
    return rig->producer;
}

pid_t rig_daemon_start(const char *const args[])
{
    const char *all[32] = {TSOCKETD, "--quiet", "--name", RIG_NAME};
    size_t n = 4;
    pid_t child;

    for (; *args != NULL && n < 31; args++)
        all[n++] = *args;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execv(TSOCKETD, (char *const *)(uintptr_t)all);
        _exit(127);
    }
    return child;
}

void rig_daemon_stop(pid_t daemon)
{
    int status;

    kill(daemon, SIGTERM);
    assert_int_equal(waitpid(daemon, &status, 0), daemon);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

struct tsocket *rig_attach(uint32_t batch_size, const struct tsocket_options *options)
{
    struct tsocket_options patient;
    struct tsocket *ts = NULL;

    tsocket_options_init(&patient);
    if (options != NULL)
        patient = *options;
    patient.connect_timeout_ms = PATIENCE_MS;
    if (tsocket_open(RIG_NAME, batch_size, &patient, &ts) != TSOCKET_OK)
        fail_msg("open: %s", tsocket_last_error());
    return ts;
}

bool rig_holds(const struct tsocket_batch *batch)
{
    int64_t values[BATCH_MAX];
    unsigned char noise[BATCH_MAX * NOISE_BYTES];

    if (batch->valid > BATCH_MAX)
        return false;
    rig_read(values, batch->data[0], batch->valid * sizeof(values[0]));
    rig_read(noise, batch->data[1], batch->valid * NOISE_BYTES);
    for (uint32_t i = 0; i < batch->valid; i++) {
        if (values[i] != rig_value(batch->epoch, batch->first + i))
            return false;
        for (uint32_t k = 0; k < NOISE_BYTES; k++) {
            if (noise[i * NOISE_BYTES + k] != noise_of(values[i]))
                return false;
        }
    }
    return true;
}

void rig_check(const struct tsocket_batch *batch)
{
    assert_true(rig_holds(batch));
}

void rig_expect_batch(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t count,
                      struct tsocket_batch *batch_out)
{
    int rc = tsocket_next(ts, PATIENCE_MS, batch_out);

    if (rc != TSOCKET_OK)
        fail_msg("next: %s: %s", tsocket_errname(rc), tsocket_last_error());
    if (batch_out->epoch != epoch || batch_out->first != first || batch_out->valid != count)
        fail_msg("next: %" PRIu32 " samples from %" PRIu64 " of epoch %" PRIu64 ", not %" PRIu32 " from %" PRIu64
                 " of epoch %" PRIu64,
                 batch_out->valid, batch_out->first, batch_out->epoch, count, first, epoch);
    rig_check(batch_out);
}

void rig_expect_and_release(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t count)
{
    struct tsocket_batch batch;

    rig_expect_batch(ts, epoch, first, count, &batch);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
}

void rig_expect_epoch_end(struct tsocket *ts, uint64_t epoch, uint64_t samples)
{
    struct tsocket_batch batch;
    struct tsocket_epoch ended;

    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_EPOCH_END);
    assert_int_equal(tsocket_ended_epoch(ts, &ended), TSOCKET_OK);
    assert_int_equal(ended.epoch, epoch);
    assert_int_equal(ended.samples, samples);
}
