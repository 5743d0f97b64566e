/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of <tsocket/tsocket.h>, as a program: reads a stream to its end and says how many samples each epoch had.
 *
 *     minimal main/train 64
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <tsocket/tsocket.h>

int main(int argc, char **argv)
{
    struct tsocket *ts;
    struct tsocket_batch batch;
    struct tsocket_epoch epoch;
    if (argc != 3) {
        fprintf(stderr, "usage: minimal DAEMON[/STREAM] BATCH\n");
        return 2;
    }
    int rc = tsocket_open(argv[1], (uint32_t)strtoul(argv[2], NULL, 10), NULL, &ts);
    if (rc != TSOCKET_OK) {
        fprintf(stderr, "%s\n", tsocket_last_error());
        return 1;
    }
    while ((rc = tsocket_next(ts, -1, &batch)) != TSOCKET_END) {
        if (rc == TSOCKET_EPOCH_END && tsocket_ended_epoch(ts, &epoch) == TSOCKET_OK)
            printf("epoch %" PRIu64 ": %" PRIu64 " samples\n", epoch.epoch, epoch.received);
        if (rc == TSOCKET_EPOCH_END || rc == TSOCKET_EINTR)
            continue;
        if (rc != TSOCKET_OK)
            break;
        /* Here a trainer reads batch.data[0], batch.data[1], ...: batch.count samples each. */
        tsocket_release(ts, &batch);
    }
    if (rc != TSOCKET_END)
        fprintf(stderr, "%s\n", tsocket_last_error());
    tsocket_close(ts);
    return rc == TSOCKET_END ? 0 : 1;
}
