/* SPDX-License-Identifier: Apache-2.0 */
#include "witness.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL /* no one function of it is worth a dependency of the library */
#include <xxhash.h>

#include "../ipc/error.h"
#include "../ipc/log.h"
#include "handle.h"

/* Of all fields; false: it cannot be read. */
static bool hash(const struct tsocket *ts, const void *const data[], uint32_t count, uint64_t *hash_out)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < ts->n_fields; i++) {
        uint64_t bytes = ts->welcome.layout.fields[ts->fields[i]].sample_bytes * count;
        void *copy = malloc(bytes);
        bool read = copy != NULL && tsc_handle_read(ts, copy, data[i], bytes) == TSOCKET_OK;

        if (read)
            sum = XXH3_64bits_withSeed(copy, bytes, sum);
        free(copy);
        if (!read)
            return false;
    }
    *hash_out = sum;
    return true;
}

int tsc_witness_open(struct tsocket *ts, uint32_t hold)
{
    const char *value = secure_getenv("TSOCKET_CHECK");

    if (value == NULL || strcmp(value, "1") != 0)
        return TSOCKET_OK;
    ts->evidence = calloc(hold, sizeof(*ts->evidence));
    return ts->evidence != NULL ? TSOCKET_OK : tsi_fail(TSOCKET_ENOMEM, "no memory for hashes of %u windows", hold);
}

void tsc_witness_first(const struct tsocket *ts, const struct tsocket_batch *batch, uint64_t id)
{
    struct tsc_evidence *evidence;

    if (ts->evidence == NULL)
        return;
    evidence = &ts->evidence[id % ts->held.hold];
    evidence->count = batch->count;
    memcpy(evidence->data, batch->data, sizeof(evidence->data));
    evidence->hashed = hash(ts, evidence->data, batch->count, &evidence->hash);
}

void tsc_witness_again(const struct tsocket *ts, const struct tsc_window *window, uint64_t id)
{
    const struct tsc_evidence *evidence;
    uint64_t now;

    if (ts->evidence == NULL)
        return;
    evidence = &ts->evidence[id % ts->held.hold];
    if (!evidence->hashed || !hash(ts, evidence->data, evidence->count, &now) || now == evidence->hash)
        return;
    tsi_log('E',
            "%s/%s: the batch that ended at sample %" PRIu64 " of epoch %" PRIu64
            " was changed while %s held it: this trainer, or another that read it at the same time, writes to its "
            "batches; copy them first",
            ts->welcome.daemon, ts->welcome.stream, tsc_handle_index(ts, &window->walk) + window->valid,
            window->walk.epoch, ts->hello.name);
}
