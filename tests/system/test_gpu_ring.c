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
#include "gpu_rig.h"
#include "simcuda.h"

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

/* Copies give room in staging at any moment; room in the ring comes from releases alone. */
static void copies_that_end_give_nobody_s_batch_away(void **state)
{
    struct rig *rig =
        rig_open(&(struct rig_options){.epoch_samples = 1 << 20, .capacity = 256, .max_batch = 32, .threads = 4});
    struct tsocket_options options;
    struct tsocket_batch batch;
    struct tsocket *ts;

    (void)state;
    tsocket_options_init(&options);
    options.hold = 4;
    ts = rig_attach(32, &options);
    for (int i = 0; i < 8000; i++) {
        assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
        assert_int_equal(tsocket_release_after(ts, &batch, NULL), TSOCKET_OK);
    }
    tsocket_close(ts);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_for_its_own_work_never_hangs_nor_reads_what_was_written_over),
        cmocka_unit_test(copies_that_end_give_nobody_s_batch_away),
        cmocka_unit_test(a_batch_that_waits_for_work_is_held_and_then_given_back),
        cmocka_unit_test(work_that_fails_is_told),
        cmocka_unit_test(a_batch_costs_its_reader_nothing_but_the_release_event),
        cmocka_unit_test(a_chunk_costs_one_copy_for_each_field_and_run_and_one_event),
        cmocka_unit_test(everybody_reads_the_same_on_its_own_gpu),
        cmocka_unit_test(who_is_elsewhere_gets_host_memory_or_the_way_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
