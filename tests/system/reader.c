/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum {
    EVERY_MS = 1,
};

void reader_nap(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

static void *read_epochs(void *context)
{
    struct reader *reader = context;
    uint64_t ended = 0;

    while (ended < reader->epochs) {
        struct tsocket_batch batch;
        int rc = tsocket_next(reader->ts, PATIENCE_MS, &batch);

        if (rc == TSOCKET_EPOCH_END) {
            ended++;
            continue;
        }
        bool holds = rc == TSOCKET_OK && rig_holds(&batch);
        int released = rc == TSOCKET_OK ? tsocket_release(reader->ts, &batch) : rc;

        if (rc == TSOCKET_OK && released == TSOCKET_ELAPPED) /* this machine has stood still: it comes again */
            continue;
        if (released != TSOCKET_OK || !holds) {
            print_error("next: %d, release: %d, as promised: %d, %" PRIu64 " samples before: %s\n", rc, released, holds,
                        (uint64_t)reader->samples, tsocket_last_error());
            reader->good = false;
            break;
        }
        reader->samples += batch.valid;
    }
    return NULL;
}

void reader_go_on(struct reader *reader, struct tsocket *ts, uint64_t epochs)
{
    *reader = (struct reader){.ts = ts, .epochs = epochs};
    atomic_store(&reader->good, true);
    assert_int_equal(pthread_create(&reader->thread, NULL, read_epochs, reader), 0);
}

void reader_start(struct reader *reader, uint32_t batch, uint64_t epochs)
{
    reader_go_on(reader, rig_attach(batch, NULL), epochs);
}

void reader_finish(struct reader *reader)
{
    pthread_join(reader->thread, NULL);
    assert_true(reader->good);
    tsocket_close(reader->ts);
}

void reader_wait_for_samples(const struct reader *reader, uint64_t samples)
{
    for (int i = 0; i < PATIENCE_MS && reader->samples < samples; i++)
        reader_nap(EVERY_MS);
    assert_true(reader->samples >= samples);
}

void reader_expect_and_release(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t count)
{
    struct tsocket_batch batch;
    int rc;

    do {
        rig_expect_batch(ts, epoch, first, count, &batch);
        rc = tsocket_release(ts, &batch);
    } while (rc == TSOCKET_ELAPPED);
    assert_int_equal(rc, TSOCKET_OK);
}

void reader_expect_rest(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t batch, uint64_t samples)
{
    for (; first < samples; first += batch)
        reader_expect_and_release(ts, epoch, first, (uint32_t)(samples - first < batch ? samples - first : batch));
    rig_expect_epoch_end(ts, epoch, samples);
}
