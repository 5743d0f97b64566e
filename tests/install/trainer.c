/* SPDX-License-Identifier: Apache-2.0 */
/* A trainer as somebody writes it who has only the installed library: counts the samples of one epoch. */
#include <stdio.h>

#include <tsocket/tsocket.h>

int main(int argc, char **argv)
{
    struct tsocket_options options;
    struct tsocket_batch batch;
    struct tsocket *ts;
    unsigned long samples = 0;
    int rc;

    tsocket_options_init(&options);
    options.epochs = 1;
    options.connect_timeout_ms = 10000;
    rc = tsocket_open(argc > 1 ? argv[1] : "main", 5, &options, &ts);
    if (rc != TSOCKET_OK) {
        fprintf(stderr, "%s\n", tsocket_last_error());
        return 1;
    }
    while ((rc = tsocket_next(ts, -1, &batch)) == TSOCKET_OK || rc == TSOCKET_EPOCH_END) {
        if (rc == TSOCKET_EPOCH_END)
            continue;
        samples += batch.valid;
        tsocket_release(ts, &batch);
    }
    tsocket_close(ts);
    printf("%lu samples by libtsocket %s\n", samples, tsocket_version());
    return rc == TSOCKET_END ? 0 : 1;
}
