/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "machine.h"

/* A picture that is kept; constant once it is published. */
struct entry {
    uint32_t width, height, orientation;
    uint8_t pixels[];
};

enum {
    ALIGN = 64,
};

struct tsp_cache {
    uint8_t *memory;
    uint64_t capacity;
    atomic_uint_fast64_t used; /* bytes handed out, from the front; nothing is given back. Relaxed: it only counts */
    atomic_uint_fast64_t kept, found, missed;
    uint32_t n_streams;
    struct {
        uint64_t count;
        _Atomic(struct entry *) *entries; /* by sample: release by offer, acquire by find */
    } streams[];
};

/*
 * Takes the memory now, page by page: where more was promised than there is, the start is the time to find out. In
 * large pages, where the kernel gives them: that is quicker, and so is reading them.
 */
static void touch(uint8_t *memory, uint64_t bytes)
{
    volatile uint8_t *at = memory;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    madvise(memory, bytes, MADV_HUGEPAGE);
    for (uint64_t i = 0; i < bytes; i += page)
        at[i] = 0;
}

static bool map_memory(struct tsp_cache *cache, uint64_t bytes, char *error, size_t len)
{
    uint64_t available = tsp_machine_memory_bytes();
    if (bytes > available) {
        snprintf(error, len,
                 "--cache %" PRIu64 "B: %" PRIu64 " bytes are available beside the rings (free memory, cgroup limit); "
                 "lower it",
                 bytes, available);
        return false;
    }
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        snprintf(error, len, "--cache %" PRIu64 "B: mmap: %s", bytes, strerror(errno));
        return false;
    }
    touch(memory, bytes);
    cache->memory = memory;
    cache->capacity = bytes;
    return true;
}

struct tsp_cache *tsp_cache_create(uint64_t bytes, const uint64_t *counts, uint32_t n_streams, char *error, size_t len)
{
    struct tsp_cache *cache = calloc(1, sizeof *cache + n_streams * sizeof cache->streams[0]);
    if (!cache)
        goto no_memory;
    cache->n_streams = n_streams;
    for (uint32_t i = 0; i < n_streams; i++) {
        cache->streams[i].count = counts[i];
        cache->streams[i].entries = calloc(counts[i], sizeof *cache->streams[i].entries);
        if (!cache->streams[i].entries)
            goto no_memory;
    }
    if (map_memory(cache, bytes, error, len))
        return cache;
    tsp_cache_destroy(cache);
    return NULL;

no_memory:
    snprintf(error, len, "--cache: no memory for its index");
    tsp_cache_destroy(cache);
    return NULL;
}

void tsp_cache_destroy(struct tsp_cache *cache)
{
    if (!cache)
        return;
    if (cache->memory)
        munmap(cache->memory, cache->capacity);
    for (uint32_t i = 0; i < cache->n_streams; i++)
        free(cache->streams[i].entries);
    free(cache);
}

static struct tsp_encoded encoded_of(struct entry *entry)
{
    return (struct tsp_encoded){
        .data = entry->pixels,
        .len = (size_t)entry->width * entry->height * 3,
        .raw_width = entry->width,
        .raw_height = entry->height,
        .raw_orientation = entry->orientation,
    };
}

bool tsp_cache_find(struct tsp_cache *cache, uint32_t stream, uint64_t sample, struct tsp_encoded *encoded_out)
{
    struct entry *entry = atomic_load_explicit(&cache->streams[stream].entries[sample], memory_order_acquire);
    atomic_fetch_add_explicit(entry ? &cache->found : &cache->missed, 1, memory_order_relaxed);
    if (entry)
        *encoded_out = encoded_of(entry);
    return entry != NULL;
}

static uint64_t entry_bytes(uint32_t width, uint32_t height)
{
    uint64_t bytes = sizeof(struct entry) + (uint64_t)width * height * 3;
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

bool tsp_cache_has_room(struct tsp_cache *cache, uint32_t width, uint32_t height)
{
    return entry_bytes(width, height) <= cache->capacity - atomic_load_explicit(&cache->used, memory_order_relaxed);
}

static struct entry *take_room(struct tsp_cache *cache, uint64_t bytes)
{
    uint_fast64_t used = atomic_load_explicit(&cache->used, memory_order_relaxed);
    do {
        if (bytes > cache->capacity - used)
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&cache->used, &used, used + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    return (struct entry *)(void *)(cache->memory + used);
}

bool tsp_cache_offer(struct tsp_cache *cache, uint32_t stream, uint64_t sample, const struct tsp_pixels *pixels,
                     uint32_t orientation, struct tsp_encoded *encoded_out)
{
    struct entry *entry = take_room(cache, entry_bytes(pixels->width, pixels->height));
    size_t row = (size_t)pixels->width * 3;
    if (!entry)
        return false;
    entry->width = pixels->width;
    entry->height = pixels->height;
    entry->orientation = orientation;
    for (uint32_t y = 0; y < pixels->height; y++)
        memcpy(entry->pixels + y * row, pixels->data + y * pixels->stride, row);
    atomic_fetch_add_explicit(&cache->kept, 1, memory_order_relaxed);
    atomic_store_explicit(&cache->streams[stream].entries[sample], entry, memory_order_release);
    *encoded_out = encoded_of(entry);
    return true;
}

struct tsp_cache_state tsp_cache_look(struct tsp_cache *cache)
{
    return (struct tsp_cache_state){
        .capacity_bytes = cache->capacity,
        .used_bytes = atomic_load_explicit(&cache->used, memory_order_relaxed),
        .kept = atomic_load_explicit(&cache->kept, memory_order_relaxed),
        .found = atomic_load_explicit(&cache->found, memory_order_relaxed),
        .missed = atomic_load_explicit(&cache->missed, memory_order_relaxed),
    };
}
