/* SPDX-License-Identifier: Apache-2.0 */
#include "store.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/error.h"
#include "machine.h"

enum {
    STAGING_CHUNKS = 4, /* being copied; of small samples, or where chunks are of one sample, */
    STAGING_LEAST = 32, /* so many being decoded */
};

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* --- life */

static int check_memory(const struct tsi_layout *layout)
{
    uint64_t available = tsp_machine_memory_bytes();

    if (layout->bytes <= available)
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_ENOMEM,
                    "a ring needs %" PRIu64 " bytes (%" PRIu64 " + %" PRIu64 " samples of %" PRIu64 " bytes), %" PRIu64
                    " are available (free memory, cgroup limit); use a smaller --ring or --max-batch, or fewer "
                    "--side-rings",
                    layout->bytes, layout->capacity, layout->mirror, layout->sample_bytes, available);
}

/* The place behind the last one exists now. */
static int add_place(struct tsp_store *store)
{
    const struct tsi_arena *arena = &store->arenas[store->n_places];
    struct tsi_arena_ticket ticket = {.kind = TSI_ARENA_HOST};
    int rc = TSOCKET_OK;

    store->n_places++;
    if (arena->kind != TSI_ARENA_HOST)
        rc = tsi_cuda_arena_ticket(arena, &ticket);
    if (rc == TSOCKET_OK)
        tsi_ticket_pack(&ticket, store->tickets[store->n_places - 1]);
    return rc;
}

static int add_gpus(struct tsp_store *store, enum tsocket_share share)
{
    enum tsi_share how = share == TSOCKET_SHARE_VMM   ? TSI_SHARE_VMM
                         : share == TSOCKET_SHARE_IPC ? TSI_SHARE_IPC
                                                      : TSI_SHARE_AUTO;
    int rc = TSOCKET_OK;

    for (unsigned i = 0; rc == TSOCKET_OK && i < store->devices->count; i++) {
        rc = tsi_cuda_arena_create(&store->devices->device[i], how, store->layout->bytes, &store->arenas[i]);
        if (rc == TSOCKET_OK)
            rc = add_place(store);
    }
    store->n_gpus = store->n_places;
    return rc;
}

static int add_host(struct tsp_store *store)
{
    int rc = check_memory(store->layout);

    if (rc == TSOCKET_OK)
        rc = tsi_arena_create("tsocket-ring", store->layout->bytes, &store->arenas[store->n_places]);
    return rc == TSOCKET_OK ? add_place(store) : rc;
}

static int add_copier(struct tsp_store *store, const struct tsp_store_watcher *watcher)
{
    uint64_t capacity = store->layout->capacity;
    uint64_t chunk = tsp_copier_chunk(store->layout);
    struct tsp_copier_options options = {
        .ring = store->layout,
        .arenas = store->arenas,
        .n_arenas = store->n_gpus,
        .chunk = chunk,
        .staging = MIN(capacity, MAX(STAGING_CHUNKS * chunk, STAGING_LEAST)),
        .moved = watcher->moved,
        .failed = watcher->failed,
        .context = watcher->context,
    };

    if (store->n_places > store->n_gpus)
        options.host = store->arenas[store->n_gpus].base;
    return tsp_copier_create(&options, &store->copier);
}

static int reserve(struct tsp_store *store, const struct tsocket_stream_options *options,
                   const struct tsp_store_watcher *watcher)
{
    int rc = add_gpus(store, options->share);

    if (rc == TSOCKET_OK && store->devices->host)
        rc = add_host(store);
    if (rc == TSOCKET_OK && store->n_gpus > 0 && !options->null)
        rc = add_copier(store, watcher);
    return rc;
}

static int check_share(const struct tsocket_stream_options *options, const char *device)
{
    if (options->share != TSOCKET_SHARE_HOST || strcmp(device, "host") == 0)
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_EINVAL, "stream %s: --share host keeps rings in host memory, --device %s wants a GPU",
                    options->name, device);
}

static bool is_auto(const struct tsocket_stream_options *options)
{
    return options->device != NULL && strcmp(options->device, "auto") == 0;
}

/* The devices of the list, open; or none of them. */
static int open_devices(struct tsp_store *store, const struct tsocket_stream_options *options)
{
    bool automatic = is_auto(options);
    const char *list =
        options->device == NULL || (automatic && options->share == TSOCKET_SHARE_HOST) ? "host" : options->device;
    int rc = check_share(options, list);

    if (rc != TSOCKET_OK)
        return rc;
    store->devices = calloc(1, sizeof(*store->devices));
    if (store->devices == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for devices");
    rc = tsi_devices_open(list, store->devices);
    if (rc == TSOCKET_OK && automatic)
        store->devices->host = true;
    return rc;
}

/* The GPU does not work, or has no room: without it, then. */
static int fall_back(struct tsp_store *store, const struct tsocket_stream_options *options)
{
    const struct tsi_layout *layout = store->layout;
    struct tsocket_stream_options without = *options;
    char why[TSI_DEVICE_WHY_LEN];
    int rc;

    snprintf(why, sizeof(why), "%s", tsocket_last_error());
    tsp_store_fini(store);
    *store = (struct tsp_store){.layout = layout};
    without.device = "host";
    rc = open_devices(store, &without);
    if (rc == TSOCKET_OK)
        rc = reserve(store, &without, NULL);
    if (rc == TSOCKET_OK)
        memcpy(store->devices->why, why, sizeof(why));
    return rc;
}

int tsp_store_init(struct tsp_store *store, const struct tsi_layout *layout,
                   const struct tsocket_stream_options *options, const struct tsp_store_watcher *watcher)
{
    int rc;

    *store = (struct tsp_store){.layout = layout};
    rc = open_devices(store, options);
    if (rc == TSOCKET_OK)
        rc = reserve(store, options, watcher);
    if (rc != TSOCKET_OK && is_auto(options) && store->devices != NULL && store->devices->count > 0)
        rc = fall_back(store, options);
    if (rc != TSOCKET_OK)
        tsp_store_fini(store);
    return rc;
}

/* Host memory that the driver may still read stays mapped: it goes with the process. */
void tsp_store_fini(struct tsp_store *store)
{
    bool is_free = tsp_copier_destroy(store->copier);

    for (unsigned i = 0; i < store->n_places; i++) {
        if (store->arenas[i].kind == TSI_ARENA_HOST && !is_free)
            store->arenas[i].base = NULL;
        tsi_arena_close(&store->arenas[i]);
    }
    if (store->devices != NULL)
        tsi_devices_close(store->devices);
    free(store->devices);
    *store = (struct tsp_store){.n_places = 0};
}

/* --- writing */

static bool is_in_host(const struct tsp_store *store)
{
    return store->n_places > store->n_gpus;
}

/* Of a ring that nobody fills there is nothing to be written, and no claim. */
void *tsp_store_at(const struct tsp_store *store, uint32_t field, uint64_t position)
{
    if (is_in_host(store))
        return tsi_layout_at(store->layout, store->arenas[store->n_gpus].base, field, position);
    assert(store->copier != NULL);
    return tsp_copier_at(store->copier, field, position);
}

void tsp_store_written(const struct tsp_store *store, uint64_t position)
{
    if (is_in_host(store))
        tsi_layout_mirror(store->layout, store->arenas[store->n_gpus].base, position);
}

/* --- copies */

void tsp_store_push(struct tsp_store *store, uint64_t head, uint64_t wanted)
{
    bool flush = wanted > store->flushed;

    if (head == store->head && !flush)
        return;
    store->head = head;
    if (flush)
        store->flushed = head;
    if (store->copier != NULL)
        tsp_copier_push(store->copier, head, flush);
}

uint64_t tsp_store_done(const struct tsp_store *store)
{
    return store->copier != NULL ? tsp_copier_done(store->copier) : store->head;
}

uint64_t tsp_store_limit(const struct tsp_store *store)
{
    return store->copier != NULL ? tsp_copier_limit(store->copier) : UINT64_MAX;
}

bool tsp_store_is_idle(const struct tsp_store *store)
{
    return tsp_store_done(store) == store->head;
}

void tsp_store_restart(struct tsp_store *store, uint64_t position)
{
    assert(tsp_store_is_idle(store));
    if (store->copier != NULL)
        tsp_copier_restart(store->copier, position);
    store->head = position;
    store->flushed = position;
}

/* --- places */

void tsp_store_name(const struct tsp_store *store, unsigned place, char name_out[TSI_UUID_TEXT_LEN])
{
    strcpy(name_out, place < store->n_gpus ? store->arenas[place].device->uuid_text : "host");
}

static bool is_place(const struct tsp_store *store, unsigned place, const char *item, size_t len)
{
    char name[TSI_UUID_TEXT_LEN];

    tsp_store_name(store, place, name);
    return strlen(name) == len && strncmp(name, item, len) == 0;
}

static int refuse(const struct tsp_store *store, const char *stream, const char *wanted)
{
    char text[TSP_STORE_TEXT_MAX];

    tsp_store_describe(store, text);
    return tsi_fail(TSOCKET_EREFUSED, "stream %s: its data is in %s, and this consumer can read %s; %s", stream, text,
                    strcmp(wanted, "host") == 0 ? "host memory only" : wanted,
                    is_in_host(store) ? "open it with device \"host\""
                                      : "start tsocketd with host as one more --device (--device cuda,host)");
}

int tsp_store_choose(const struct tsp_store *store, const char *stream, const char *wanted, unsigned *place_out)
{
    const char *item = wanted[0] != '\0' ? wanted : "host";

    for (size_t len; *item != '\0'; item += len + (item[len] == ',')) {
        len = strcspn(item, ",");
        for (unsigned place = 0; place < store->n_places; place++) {
            if (is_place(store, place, item, len)) {
                *place_out = place;
                return TSOCKET_OK;
            }
        }
    }
    return refuse(store, stream, wanted[0] != '\0' ? wanted : "host");
}

void tsp_store_describe(const struct tsp_store *store, char text_out[TSP_STORE_TEXT_MAX])
{
    size_t used = 0;

    for (unsigned i = 0; i < store->n_gpus && used < TSP_STORE_TEXT_MAX; i++) {
        const struct tsi_arena *arena = &store->arenas[i];

        used += (size_t)snprintf(text_out + used, TSP_STORE_TEXT_MAX - used, "%s%s (%s, %s)", i > 0 ? ", " : "",
                                 arena->device->name, arena->device->uuid_text, tsi_arena_word(arena->kind));
    }
    if (is_in_host(store) && used < TSP_STORE_TEXT_MAX)
        used += (size_t)snprintf(text_out + used, TSP_STORE_TEXT_MAX - used, "%shost memory", used > 0 ? " and " : "");
    if (store->devices->why[0] != '\0' && used < TSP_STORE_TEXT_MAX)
        snprintf(text_out + used, TSP_STORE_TEXT_MAX - used, " (no GPU: %s)", store->devices->why);
}

const char *tsp_store_devices(const struct tsp_store *store, const char *device)
{
    if (store->n_gpus == 0)
        return "host";
    return strcmp(device, "auto") == 0 ? "cuda,host" : device;
}
