/* SPDX-License-Identifier: Apache-2.0 */
/* Rings in GPUs, on two simulated ones: what the ring tests, which run there as well, do not ask. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>

#include <tsocket/producer.h>

#include "ipc/device.h"
#include "rig.h"
#include "simcuda.h"

enum {
    PATIENCE_MS = 20000,
    EPOCH = 120,
};

/* --- a trainer's device */

struct trainer {
    struct tsi_device device;
    struct tsi_cu_stream *stream;
    uint64_t scratch;
};

static void trainer_open(struct trainer *trainer, uint64_t bytes)
{
    assert_int_equal(tsi_device_open("cuda", &trainer->device), TSOCKET_OK);
    assert_int_equal(tsi_device_enter(&trainer->device), TSOCKET_OK);
    assert_int_equal(trainer->device.cuda.cuStreamCreate(&trainer->stream, TSI_CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(trainer->device.cuda.cuMemAlloc(&trainer->scratch, bytes), 0);
}

static void trainer_close(struct trainer *trainer)
{
    assert_int_equal(trainer->device.cuda.cuStreamDestroy(trainer->stream), 0);
    assert_int_equal(trainer->device.cuda.cuMemFree(trainer->scratch), 0);
    tsi_device_leave(&trainer->device);
    tsi_device_close(&trainer->device);
}

/* Work that reads the batch, late. */
static void train(struct trainer *trainer, const struct tsocket_batch *batch, uint64_t at)
{
    assert_int_equal(trainer->device.cuda.cuMemcpyDtoDAsync(trainer->scratch + at * sizeof(int64_t),
                                                            (uintptr_t)batch->data[0], batch->count * sizeof(int64_t),
                                                            trainer->stream),
                     0);
}

static void expect_trained(struct trainer *trainer, uint64_t epoch)
{
    int64_t values[EPOCH];

    assert_int_equal(trainer->device.cuda.cuMemcpyDtoHAsync(values, trainer->scratch, sizeof(values), trainer->stream),
                     0);
    assert_int_equal(trainer->device.cuda.cuStreamSynchronize(trainer->stream), 0);
    for (uint64_t i = 0; i < EPOCH; i++)
        assert_int_equal(values[i], rig_value(epoch, i));
}

/* --- release_after */

/* The ring holds no more than the batches that are held, and the work is slow: room comes from that work alone. */
static void who_waits_for_its_own_work_never_hangs_nor_reads_what_was_written_over(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = EPOCH, .capacity = 40, .max_batch = 10});
    struct tsocket_options options;
    struct trainer trainer;
    struct tsocket *ts;

    (void)state;
    tsocket_options_init(&options);
    options.hold = 4;
    ts = rig_attach(10, &options);
    trainer_open(&trainer, EPOCH * sizeof(int64_t));
    simcuda_delay(4000);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        for (uint64_t first = 0; first < EPOCH; first += 10) {
            struct tsocket_batch batch;

            assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
            assert_int_equal(batch.first, first);
            train(&trainer, &batch, first);
            assert_int_equal(tsocket_release_after(ts, &batch, trainer.stream), TSOCKET_OK);
        }
        rig_expect_epoch_end(ts, epoch, EPOCH);
        expect_trained(&trainer, epoch);
    }
    simcuda_delay(0);
    tsocket_close(ts);
    trainer_close(&trainer);
    rig_close(rig);
}

static void a_batch_that_waits_for_work_is_held_and_then_given_back(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = EPOCH, .capacity = 60, .max_batch = 10});
    struct tsocket *ts = rig_attach(10, NULL), *other = rig_attach(10, NULL); /* may hold two */
    struct tsocket_batch batch[3];
    struct trainer trainer;

    (void)state;
    trainer_open(&trainer, EPOCH * sizeof(int64_t));
    for (uint64_t first = 0; first < 30; first += 10)
        rig_expect_and_release(other, 0, first, 10);
    tsocket_close(other); /* so much is there, whatever streams do from now on */
    rig_expect_batch(ts, 0, 0, 10, &batch[0]);
    rig_expect_batch(ts, 0, 10, 10, &batch[1]);
    simcuda_hold(true);
    train(&trainer, &batch[1], 0);
    assert_int_equal(tsocket_release_after(ts, &batch[1], trainer.stream), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch[1]), TSOCKET_EINVAL);
    assert_int_equal(tsocket_next(ts, 50, &batch[2]),
                     TSOCKET_EHELD); /* batch 0 is held by hand: that must come first */
    assert_int_equal(tsocket_release(ts, &batch[0]), TSOCKET_OK);
    assert_int_equal(tsocket_next(ts, 0, &batch[0]), TSOCKET_OK);
    assert_int_equal(tsocket_next(ts, 50, &batch[2]), TSOCKET_EAGAIN); /* room will come by itself */
    assert_int_equal(tsocket_flush(ts), TSOCKET_EAGAIN);
    simcuda_hold(false);
    rig_expect_batch(ts, 0, 30, 10, &batch[2]);
    assert_int_equal(tsocket_flush(ts), TSOCKET_OK);
    tsocket_close(ts);
    trainer_close(&trainer);
    rig_close(rig);
}

static void work_that_fails_is_told(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = EPOCH, .capacity = 60, .max_batch = 10});
    struct tsocket *ts = rig_attach(10, NULL);
    struct tsocket_batch batch;

    (void)state;
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_release_after(ts, &batch, NULL), TSOCKET_OK);
    simcuda_fail("cuEventQuery", 1, TSI_CU_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_EDEVICE);
    assert_non_null(strstr(tsocket_last_error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700)"));
    assert_int_equal(tsocket_next(ts, 0, &batch), TSOCKET_EDEVICE);
    assert_int_equal(tsocket_flush(ts), TSOCKET_EDEVICE);
    tsocket_close(ts);
    rig_close(rig);
}

/* --- what it costs */

static void wait_until_idle(struct tsocket *ts)
{
    struct tsocket_batch batch;

    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    while (simcuda_pending() > 0)
        usleep(1000);
    usleep(50000);
}

/* Of a resident stream, which the producer has filled before: all calls are the consumer's. */
static void a_batch_costs_its_reader_nothing_but_the_release_event(void **state)
{
    struct rig *rig =
        rig_open(&(struct rig_options){.epoch_samples = EPOCH, .capacity = EPOCH, .max_batch = 10, .resident = true});
    struct tsocket *ts = rig_attach(10, NULL);
    unsigned long before, creates, records, queries, contexts;
    struct tsocket_batch batch;

    (void)state;
    wait_until_idle(ts);
    before = simcuda_calls("*");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(tsocket_next(ts, 0, &batch), TSOCKET_OK);
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    assert_int_equal(simcuda_calls("*"), before);
    creates = simcuda_calls("cuEventCreate");
    records = simcuda_calls("cuEventRecord");
    queries = simcuda_calls("cuEventQuery");
    contexts = simcuda_calls("cuCtxPushCurrent_v2") + simcuda_calls("cuCtxPopCurrent_v2");
    before = simcuda_calls("*");
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
        assert_int_equal(tsocket_release_after(ts, &batch, NULL), TSOCKET_OK);
    }
    creates = simcuda_calls("cuEventCreate") - creates;
    records = simcuda_calls("cuEventRecord") - records;
    queries = simcuda_calls("cuEventQuery") - queries;
    contexts = simcuda_calls("cuCtxPushCurrent_v2") + simcuda_calls("cuCtxPopCurrent_v2") - contexts;
    assert_int_equal(records, 6);
    assert_int_equal(contexts, 2 * 6);
    assert_true(creates <= 2); /* as many as can be held: they are used again */
    assert_int_equal(simcuda_calls("*") - before, creates + records + queries + contexts);
    tsocket_close(ts);
    rig_close(rig);
}

static void a_chunk_costs_one_copy_for_each_field_and_run_and_one_event(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = EPOCH, .capacity = 40, .max_batch = 10});
    struct tsocket *ts = rig_attach(10, NULL);
    unsigned long all, copies, mirrors, events, waits, pageable;

    (void)state;
    rig_expect_and_release(ts, 0, 0, 10);
    pageable = simcuda_pageable_copies(); /* of the rig, which looks at the batch */
    copies = simcuda_calls("cuMemcpyHtoDAsync_v2");
    mirrors = simcuda_calls("cuMemcpyDtoDAsync_v2");
    events = simcuda_calls("cuEventRecord");
    waits = simcuda_calls("cuEventSynchronize");
    all = simcuda_calls("*");
    for (uint64_t first = 10; first < EPOCH; first += 10) {
        struct tsocket_batch batch;

        assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    copies = simcuda_calls("cuMemcpyHtoDAsync_v2") - copies;
    mirrors = simcuda_calls("cuMemcpyDtoDAsync_v2") - mirrors;
    events = simcuda_calls("cuEventRecord") - events;
    waits = simcuda_calls("cuEventSynchronize") - waits;
    all = simcuda_calls("*") - all;
    assert_true(copies >= 2 * events &&
                copies <= 2 * 3 * (events + 1)); /* two fields; runs end with ring and staging */
    assert_true(mirrors <= copies);
    assert_in_range(all, copies + mirrors + events + waits, copies + mirrors + events + waits + 2);
    assert_int_equal(simcuda_pageable_copies(), pageable);
    tsocket_close(ts);
    rig_close(rig);
}

/* --- several GPUs */

struct producer {
    struct tsocket_producer *producer;
    pthread_t thread;
};

static void *fill(void *context)
{
    struct producer *producer = context;
    struct tsocket_claim claim;

    while (tsocket_producer_claim(producer->producer, -1, &claim) == TSOCKET_OK) {
        int64_t value = rig_value(claim.epoch, claim.ordinal);

        memcpy(claim.data[0], &value, sizeof(value));
        tsocket_producer_commit(producer->producer, &claim);
    }
    return NULL;
}

/* TSOCKET_OK, or why it does not come to be; nothing is left then. */
static int producer_open(struct producer *producer, const char *device, enum tsocket_share share)
{
    static const struct tsocket_field field = {.name = "value", .dtype = TSOCKET_INT64};
    struct tsocket_producer_options options;
    struct tsocket_stream_options stream;
    int rc;

    tsocket_producer_options_init(&options);
    options.name = RIG_NAME;
    options.join_grace_ms = 1;
    tsocket_stream_options_init(&stream);
    stream.fields = &field;
    stream.n_fields = 1;
    stream.epoch_samples = EPOCH;
    stream.epochs = 2;
    stream.capacity = 50;
    stream.max_batch = 10;
    stream.device = device;
    stream.share = share;
    rc = tsocket_producer_open(&options, &producer->producer);
    if (rc != TSOCKET_OK)
        return rc;
    rc = tsocket_producer_add_stream(producer->producer, &stream, NULL);
    if (rc == TSOCKET_OK)
        rc = tsocket_producer_start(producer->producer);
    if (rc == TSOCKET_OK)
        assert_int_equal(pthread_create(&producer->thread, NULL, fill, producer), 0);
    else
        tsocket_producer_close(producer->producer);
    return rc;
}

static void producer_close(struct producer *producer)
{
    tsocket_producer_stop(producer->producer);
    pthread_join(producer->thread, NULL);
    tsocket_producer_close(producer->producer);
}

static int attach(const char *device, struct tsocket **ts_out)
{
    struct tsocket_options options;

    tsocket_options_init(&options);
    options.device = device;
    return tsocket_open(RIG_NAME, 10, &options, ts_out);
}

static void expect_epoch(struct tsocket *ts, uint64_t epoch)
{
    struct tsocket_batch batch;
    int64_t values[10];

    for (uint64_t first = 0; first < EPOCH; first += 10) {
        assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
        assert_int_equal(tsocket_copy(ts, &batch, 0, values), TSOCKET_OK);
        for (uint64_t i = 0; i < 10; i++)
            assert_int_equal(values[i], rig_value(epoch, first + i));
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    rig_expect_epoch_end(ts, epoch, EPOCH);
}

static void *read_two_epochs(void *context)
{
    expect_epoch(context, 0);
    expect_epoch(context, 1);
    return NULL;
}

static void everybody_reads_the_same_on_its_own_gpu(void **state)
{
    static const char *const devices[] = {"cuda:0", "cuda:1", "host"};
    struct producer producer;
    struct tsocket *ts[3];
    pthread_t readers[3];

    (void)state;
    rig_folder_make();
    assert_int_equal(producer_open(&producer, "cuda:0,cuda:1,host", TSOCKET_SHARE_AUTO), TSOCKET_OK);
    for (int i = 0; i < 3; i++) {
        struct tsocket_info info;

        assert_int_equal(attach(devices[i], &ts[i]), TSOCKET_OK);
        assert_int_equal(tsocket_describe(ts[i], &info), TSOCKET_OK);
        assert_int_equal(info.device, i < 2 ? i : -1);
        assert_int_equal(info.memory, i < 2 ? TSOCKET_MEMORY_CUDA_VMM : TSOCKET_MEMORY_HOST);
        assert_int_equal(info.device_uuid[0] != '\0', i < 2);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_two_epochs, ts[i]), 0);
    for (int i = 0; i < 3; i++)
        pthread_join(readers[i], NULL);
    for (int i = 0; i < 3; i++)
        tsocket_close(ts[i]);
    producer_close(&producer);
    rig_folder_check_and_remove();
}

static void who_is_elsewhere_gets_host_memory_or_the_way_out(void **state)
{
    struct producer producer;
    struct tsocket_info info;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    assert_int_equal(producer_open(&producer, "cuda:0,host", TSOCKET_SHARE_AUTO), TSOCKET_OK);
    assert_int_equal(attach("cuda:1", &ts), TSOCKET_OK);
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_int_equal(info.memory, TSOCKET_MEMORY_HOST);
    tsocket_close(ts);
    assert_int_equal(attach("cuda:7", &ts), TSOCKET_ENOTFOUND);
    assert_int_equal(attach("gpu", &ts), TSOCKET_EINVAL);
    producer_close(&producer);
    assert_int_equal(producer_open(&producer, "cuda:0", TSOCKET_SHARE_IPC), TSOCKET_OK);
    assert_int_equal(attach("cuda:1", &ts), TSOCKET_EREFUSED);
    assert_non_null(strstr(tsocket_last_error(), "--device cuda,host"));
    assert_int_equal(attach("host", &ts), TSOCKET_EREFUSED);
    assert_int_equal(attach(NULL, &ts), TSOCKET_OK);
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_int_equal(info.memory, TSOCKET_MEMORY_CUDA_IPC);
    tsocket_close(ts);
    producer_close(&producer);
    rig_folder_check_and_remove();
}

static void a_gpu_that_does_not_work_is_said_or_done_without(void **state)
{
    struct producer producer;
    struct tsocket_info info;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    assert_int_equal(producer_open(&producer, "cuda:9", TSOCKET_SHARE_AUTO), TSOCKET_ENOTFOUND);
    assert_int_equal(producer_open(&producer, "cuda:0", TSOCKET_SHARE_HOST), TSOCKET_EINVAL);
    simcuda_fail("cuMemCreate", 1, TSI_CU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(producer_open(&producer, "cuda:0", TSOCKET_SHARE_AUTO), TSOCKET_ENOMEM);
    simcuda_fail("cuMemCreate", 1, TSI_CU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(producer_open(&producer, "auto", TSOCKET_SHARE_AUTO), TSOCKET_OK);
    assert_int_equal(attach(NULL, &ts), TSOCKET_OK);
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_int_equal(info.memory, TSOCKET_MEMORY_HOST);
    expect_epoch(ts, 0);
    tsocket_close(ts);
    producer_close(&producer);
    rig_folder_check_and_remove();
}

/* --- failures */

static void a_gpu_that_breaks_ends_the_run_with_the_cause(void **state)
{
    struct producer producer;

    (void)state;
    rig_folder_make();
    assert_int_equal(producer_open(&producer, "cuda", TSOCKET_SHARE_VMM), TSOCKET_OK);
    simcuda_fail("cuEventSynchronize", 1, TSI_CU_ERROR_ECC_UNCORRECTABLE);
    assert_int_equal(tsocket_producer_wait(producer.producer, PATIENCE_MS), TSOCKET_EDEVICE);
    assert_non_null(strstr(tsocket_last_error(), "CUDA_ERROR_ECC_UNCORRECTABLE (214)"));
    producer_close(&producer);
    rig_folder_check_and_remove();
}

/* A whole run, wherever it ends. Nothing in it may wait for ever. */
static int one_run(enum tsocket_share share)
{
    struct producer producer;
    struct tsocket_options options;
    struct tsocket_batch batch;
    struct tsocket *ts = NULL;
    int rc = producer_open(&producer, "cuda", share);

    if (rc != TSOCKET_OK)
        return rc;
    tsocket_options_init(&options);
    options.last = TSOCKET_LAST_PAD;
    options.device = "cuda";
    options.epochs = 1;
    rc = tsocket_open(RIG_NAME, 9, &options, &ts);
    for (int waits = 0; rc == TSOCKET_OK || rc == TSOCKET_EPOCH_END || rc == TSOCKET_EAGAIN;) {
        rc = tsocket_next(ts, 10, &batch);
        if (rc == TSOCKET_OK)
            rc = tsocket_release_after(ts, &batch, NULL);
        if (rc != TSOCKET_EAGAIN)
            continue;
        rc = tsocket_producer_wait(producer.producer, 0); /* who waits for that is to end the run */
        if (++waits > 500)
            fail_msg("the run stands still after a failed %s", simcuda_failed());
    }
    tsocket_close(ts);
    producer_close(&producer);
    return rc;
}

/* What a call leaves that failed while things were given back: it cannot be reached again. */
static bool gives_back(const char *function)
{
    static const char *const functions[] = {"cuCtxPushCurrent_v2", "cuMemFree_v2",
                                            "cuMemUnmap",          "cuMemAddressFree",
                                            "cuMemRelease",        "cuStreamDestroy_v2",
                                            "cuEventDestroy_v2",   "cuIpcCloseMemHandle",
                                            "cuMemHostUnregister", "cuDevicePrimaryCtxRelease_v2",
                                            "cuCtxPopCurrent_v2"};

    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        if (strcmp(function, functions[i]) == 0)
            return true;
    }
    return false;
}

static void whatever_call_fails_the_run_ends_and_leaves_nothing(void **state)
{
    static const enum tsocket_share shares[] = {TSOCKET_SHARE_VMM, TSOCKET_SHARE_IPC};

    (void)state;
    rig_folder_make();
    for (int i = 0; i < 2; i++) {
        unsigned long live = simcuda_live(), calls = simcuda_calls("*");

        assert_int_equal(one_run(shares[i]), TSOCKET_END);
        assert_int_equal(simcuda_live(), live);
        calls = simcuda_calls("*") - calls;
        for (unsigned long k = 1; k <= calls; k++) {
            simcuda_fail("*", k, TSI_CU_ERROR_LAUNCH_FAILED);
            if (one_run(shares[i]) != TSOCKET_END)
                assert_true(tsocket_last_error()[0] != '\0');
            simcuda_fail("*", 0, TSI_CU_SUCCESS);
            if (simcuda_live() != live && !gives_back(simcuda_failed()))
                fail_msg("%s, call %lu: %lu things are left", simcuda_failed(), k, simcuda_live() - live);
            live = simcuda_live();
        }
    }
    rig_folder_check_and_remove();
}

/* --- other processes */

static void what_is_held_when_the_daemon_dies_stays_and_is_then_given_back(void **state)
{
    struct tsocket_options options;
    const char *const args[] = {"synthetic:100x4x4", "--ring", "40", "--max-batch", "10", "--device", "cuda", NULL};
    struct tsocket_batch held, batch;
    struct tsocket *ts;
    unsigned long mapped;
    int64_t index[10];
    pid_t daemon;
    int rc;

    (void)state;
    rig_folder_make();
    daemon = rig_daemon_start(args);
    tsocket_options_init(&options);
    options.hold = 4;
    ts = rig_attach(10, &options);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &held), TSOCKET_OK);
    kill(daemon, SIGKILL);
    assert_int_equal(waitpid(daemon, NULL, 0), daemon);
    while ((rc = tsocket_next(ts, PATIENCE_MS, &batch)) == TSOCKET_OK)
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(rc, TSOCKET_GONE);
    mapped = simcuda_live();
    assert_int_equal(tsocket_copy(ts, &held, 2, index), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &held), TSOCKET_OK);
    assert_true(simcuda_live() < mapped);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_GONE);
    tsocket_close(ts);
    assert_int_equal(system("rm -rf \"${TSOCKET_DIR:?}\"/*"), 0);
    rig_folder_check_and_remove();
}

static atomic_int complaints;

static void listen(void *context, char level, const char *message)
{
    (void)context;
    if (level == 'E' && strstr(message, "was changed while") != NULL)
        atomic_fetch_add(&complaints, 1);
}

static void who_writes_to_a_batch_is_found_out(void **state)
{
    struct tsocket_batch batch;
    struct producer producer;
    struct trainer trainer;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    assert_int_equal(producer_open(&producer, "cuda", TSOCKET_SHARE_IPC), TSOCKET_OK);
    setenv("TSOCKET_CHECK", "1", 1);
    assert_int_equal(attach("cuda", &ts), TSOCKET_OK);
    unsetenv("TSOCKET_CHECK");
    trainer_open(&trainer, 8);
    tsocket_set_log_sink(listen, NULL);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(complaints, 0);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
    assert_int_equal(trainer.device.cuda.cuMemsetD8Async((uintptr_t)batch.data[0], 1, 8, trainer.stream), 0);
    assert_int_equal(tsocket_release_after(ts, &batch, trainer.stream), TSOCKET_OK);
    while (tsocket_flush(ts) == TSOCKET_EAGAIN)
        usleep(1000);
    assert_int_equal(complaints, 1);
    tsocket_close(ts);
    trainer_close(&trainer);
    producer_close(&producer);
    rig_folder_check_and_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_for_its_own_work_never_hangs_nor_reads_what_was_written_over),
        cmocka_unit_test(a_batch_that_waits_for_work_is_held_and_then_given_back),
        cmocka_unit_test(work_that_fails_is_told),
        cmocka_unit_test(a_batch_costs_its_reader_nothing_but_the_release_event),
        cmocka_unit_test(a_chunk_costs_one_copy_for_each_field_and_run_and_one_event),
        cmocka_unit_test(everybody_reads_the_same_on_its_own_gpu),
        cmocka_unit_test(who_is_elsewhere_gets_host_memory_or_the_way_out),
        cmocka_unit_test(a_gpu_that_does_not_work_is_said_or_done_without),
        cmocka_unit_test(a_gpu_that_breaks_ends_the_run_with_the_cause),
        cmocka_unit_test(whatever_call_fails_the_run_ends_and_leaves_nothing),
        cmocka_unit_test(what_is_held_when_the_daemon_dies_stays_and_is_then_given_back),
        cmocka_unit_test(who_writes_to_a_batch_is_found_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
