/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

void trainer_open(struct trainer *trainer, uint64_t bytes)
{
    assert_int_equal(tsi_device_open("cuda", &trainer->device), TSOCKET_OK);
    assert_int_equal(tsi_device_enter(&trainer->device), TSOCKET_OK);
    assert_int_equal(trainer->device.cuda.cuStreamCreate(&trainer->stream, TSI_CU_STREAM_NON_BLOCKING), 0);
    assert_int_equal(trainer->device.cuda.cuMemAlloc(&trainer->scratch, bytes), 0);
}

void trainer_close(struct trainer *trainer)
{
    assert_int_equal(trainer->device.cuda.cuStreamDestroy(trainer->stream), 0);
    assert_int_equal(trainer->device.cuda.cuMemFree(trainer->scratch), 0);
    tsi_device_leave(&trainer->device);
    tsi_device_close(&trainer->device);
}

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

int producer_open(struct producer *producer, const char *device, enum tsocket_share share)
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

void producer_close(struct producer *producer)
{
    tsocket_producer_stop(producer->producer);
    pthread_join(producer->thread, NULL);
    tsocket_producer_close(producer->producer);
}

int attach(const char *device, struct tsocket **ts_out)
{
    struct tsocket_options options;

    tsocket_options_init(&options);
    options.device = device;
    return tsocket_open(RIG_NAME, 10, &options, ts_out);
}

void expect_epoch(struct tsocket *ts, uint64_t epoch)
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
