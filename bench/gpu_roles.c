/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_roles.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../src/ipc/device.h"
#include "bench.h"

enum {
    NEXT_TIMEOUT_MS = 20000, /* a consumer that waits longer has failed */
    THREADS_MAX = 64,
    COPY_BYTES = 64 << 20, /* copied from and to, over and over */
    BLOCKS = 256,          /* of the reading kernel, */
    BLOCK_THREADS = 256,   /* so many threads each */
};

enum kind {
    REGISTERED,
    MEMFD,
    READ_ONLY,
    WRITE_COMBINED,
    PAGEABLE,
};

const char *const gpu_kind_names[KINDS] = {
    [REGISTERED] = "registered",         [MEMFD] = "registered memfd", [READ_ONLY] = "registered read-only memfd",
    [WRITE_COMBINED] = "write-combined", [PAGEABLE] = "pageable",
};
const uint32_t gpu_chunk_bytes[CHUNKS] = {256 << 10, 1 << 20, 4 << 20, 16 << 20};

extern const char bench_read_ptx[];
__asm__(".section .rodata\n"
        ".globl bench_read_ptx\n"
        "bench_read_ptx:\n"
        ".incbin \"" BENCH_READ_PTX "\"\n"
        ".byte 0\n"
        ".previous\n");

static int complain(const char *what)
{
    fprintf(stderr, "gpu: %s: %s\n", what, tsocket_last_error());
    return 1;
}

/* ---- a device with a stream and the reading kernel --------------------------------------------------------------- */

struct card {
    struct tsi_device device;
    struct tsi_cu_stream *stream;
    struct tsi_cu_module *module;
    struct tsi_cu_function *read;
    uint64_t out; /* what the kernel's threads write */
};

/* False, and says so, where the driver refuses. */
static bool works(const struct card *card, int result, const char *call)
{
    if (result == TSI_CU_SUCCESS)
        return true;
    tsi_cuda_fail(&card->device.cuda, result, "%s", call);
    complain(card->device.name);
    return false;
}

#define WORKS(card, call) works(card, (card)->device.cuda.call, #call)

/* Its context is this thread's until the process ends, and takes everything with it. */
static bool card_open(const char *which, struct card *card)
{
    *card = (struct card){.out = 0};
    if (tsi_device_open(which, &card->device) != TSOCKET_OK || tsi_device_enter(&card->device) != TSOCKET_OK)
        return complain(which) == 0;
    return WORKS(card, cuStreamCreate(&card->stream, TSI_CU_STREAM_NON_BLOCKING)) &&
           WORKS(card, cuModuleLoadData(&card->module, bench_read_ptx)) &&
           WORKS(card, cuModuleGetFunction(&card->read, card->module, "bench_read")) &&
           WORKS(card, cuMemAlloc(&card->out, BLOCKS * BLOCK_THREADS * sizeof(uint32_t)));
}

static void card_close(struct card *card)
{
    card->device.cuda.cuMemFree(card->out);
    card->device.cuda.cuModuleUnload(card->module);
    card->device.cuda.cuStreamDestroy(card->stream);
    tsi_device_leave(&card->device);
    tsi_device_close(&card->device);
}

static bool card_read(struct card *card, const void *data, uint64_t bytes)
{
    uint64_t address = (uintptr_t)data, words = bytes / sizeof(uint32_t);
    void *params[] = {&address, &words, &card->out};
    return WORKS(card, cuLaunchKernel(card->read, BLOCKS, 1, 1, BLOCK_THREADS, 1, 1, 0, card->stream, params, NULL));
}

static uint64_t card_free_bytes(const struct card *card)
{
    size_t free_bytes = 0, total;
    card->device.cuda.cuMemGetInfo(&free_bytes, &total);
    return free_bytes;
}

int gpu_look(const struct round *round, uint32_t number)
{
    struct shared *s = round->shared;
    struct card card;
    (void)number;
    if (!card_open(round->options->device, &card))
        return 1;
    snprintf(s->card.name, NAME_LEN, "%s", card.device.name);
    snprintf(s->card.uuid, NAME_LEN, "%s", card.device.uuid_text);
    card.device.cuda.cuDriverGetVersion(&s->card.cuda_version);
    s->card.simulated = strncmp(card.device.name, "Simulated", 9) == 0;
    s->card.mps = tsi_device_attribute(&card.device, TSI_CU_ATTRIBUTE_MPS) != 0;
    s->card.free_bytes = card_free_bytes(&card);
    card_close(&card);
    return 0;
}

/* ---- the card's own rate ----------------------------------------------------------------------------------------- */

/* Host memory of that kind; NULL: the device cannot have it, or there is none. */
static void *host_open(const struct card *card, enum kind kind)
{
    unsigned flags = TSI_CU_HOST_PORTABLE | (kind == READ_ONLY ? TSI_CU_HOST_READ_ONLY : 0);
    bool shared = kind == MEMFD || kind == READ_ONLY;
    int fd = shared ? memfd_create("bench-gpu", MFD_CLOEXEC) : -1;
    void *host;
    if (kind == WRITE_COMBINED)
        return card->device.cuda.cuMemHostAlloc(&host, COPY_BYTES, TSI_CU_HOST_ALLOC_WRITE_COMBINED) == 0 ? host : NULL;
    if (shared && (fd < 0 || ftruncate(fd, COPY_BYTES) != 0))
        return NULL;
    host = mmap(NULL, COPY_BYTES, kind == READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE,
                (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | MAP_POPULATE, fd, 0);
    if (fd >= 0)
        close(fd);
    if (host == MAP_FAILED)
        return NULL;
    if (kind == PAGEABLE || card->device.cuda.cuMemHostRegister(host, COPY_BYTES, flags) == TSI_CU_SUCCESS)
        return host;
    munmap(host, COPY_BYTES);
    return NULL;
}

static void host_close(const struct card *card, enum kind kind, void *host)
{
    if (kind == WRITE_COMBINED) {
        card->device.cuda.cuMemFreeHost(host);
        return;
    }
    if (kind != PAGEABLE)
        card->device.cuda.cuMemHostUnregister(host);
    munmap(host, COPY_BYTES);
}

/* Bytes per second, in copies of `chunk` bytes; 0, and says so, where one fails. */
static double copy_rate(const struct card *card, uint64_t to, const char *host, uint32_t chunk, int64_t len_ns)
{
    int64_t begun_ns = bench_now_ns(), took_ns;
    double bytes = 0;
    do {
        for (uint32_t at = 0; at < COPY_BYTES; at += chunk)
            if (!WORKS(card, cuMemcpyHtoDAsync(to + at, host + at, chunk, card->stream)))
                return 0;
        if (!WORKS(card, cuStreamSynchronize(card->stream)))
            return 0;
        bytes += COPY_BYTES;
        took_ns = bench_now_ns() - begun_ns;
    } while (took_ns < len_ns);
    return bytes * 1e9 / (double)took_ns;
}

int gpu_copy(const struct round *round, uint32_t number)
{
    struct card card;
    uint64_t to;
    (void)number;
    if (!card_open(round->options->device, &card) || !WORKS(&card, cuMemAlloc(&to, COPY_BYTES)))
        return 1;
    for (int kind = 0; kind < KINDS; kind++) {
        void *host = host_open(&card, (enum kind)kind);
        for (int i = 0; host && i < CHUNKS; i++)
            round->shared->copied_per_s[kind][i] =
                copy_rate(&card, to, host, gpu_chunk_bytes[i], round->options->len_ns / 8);
        if (host)
            host_close(&card, (enum kind)kind, host);
    }
    card.device.cuda.cuMemFree(to);
    card_close(&card);
    return 0;
}

/* ---- producers --------------------------------------------------------------------------------------------------- */

static void name_of(const struct round *round, uint32_t number, char name_out[TSOCKET_NAME_MAX + 1])
{
    if (round->private)
        snprintf(name_out, TSOCKET_NAME_MAX + 1, "%s-%" PRIu32, round->name, number);
    else
        snprintf(name_out, TSOCKET_NAME_MAX + 1, "%s", round->name);
}

static int open_producer(const struct round *round, uint32_t number, const struct tsocket_stream_options *stream,
                         struct tsocket_producer **producer_out)
{
    char name[TSOCKET_NAME_MAX + 1];
    struct tsocket_producer_options po;
    name_of(round, number, name);
    tsocket_producer_options_init(&po);
    po.name = name;
    po.wait_for = round->private ? 1 : round->consumers;
    po.join_grace_ms = 0;
    po.exit_when_idle = true;
    int rc = tsocket_producer_open(&po, producer_out);
    if (rc == TSOCKET_OK)
        rc = tsocket_producer_add_stream(*producer_out, stream, NULL);
    return rc == TSOCKET_OK ? tsocket_producer_start(*producer_out) : rc;
}

static int end_producer(struct tsocket_producer *producer)
{
    int rc = tsocket_producer_wait(producer, -1);
    int status = rc == TSOCKET_END ? 0 : complain("producer");
    tsocket_producer_close(producer);
    return status;
}

/* Whatever the memory holds is the sample: nothing is made, so that what is measured is the way to the device. */
static void *commit_all(void *producer)
{
    struct tsocket_claim claim;
    while (tsocket_producer_claim(producer, -1, &claim) == TSOCKET_OK)
        tsocket_producer_commit(producer, &claim);
    return NULL;
}

int gpu_fill(const struct round *round, uint32_t number)
{
    const struct options *o = round->options;
    struct tsocket_field field = {.name = "image", .dtype = TSOCKET_UINT8, .ndim = 1, .shape = {o->sample_bytes}};
    struct tsocket_stream_options so;
    struct tsocket_producer *producer;
    pthread_t threads[THREADS_MAX];
    uint32_t n = 0;
    tsocket_stream_options_init(&so);
    so.fields = &field;
    so.n_fields = 1;
    so.epoch_samples = UINT64_C(1) << 40;
    so.max_batch = o->batch;
    so.capacity = o->ring;
    so.device = o->device;
    so.share = o->share;
    if (open_producer(round, number, &so, &producer) != TSOCKET_OK)
        return complain("producer");
    while (n < o->threads && n < THREADS_MAX && pthread_create(&threads[n], NULL, commit_all, producer) == 0)
        n++;
    if (n == 0) {
        fprintf(stderr, "gpu: no thread can be started\n");
        return 1;
    }
    int rc = tsocket_producer_wait(producer, -1);
    int status = rc == TSOCKET_END ? 0 : complain("producer");
    while (n > 0)
        pthread_join(threads[--n], NULL);
    tsocket_producer_close(producer);
    return status;
}

int gpu_commit(const struct round *round, uint32_t number)
{
    const struct options *o = round->options;
    struct tsocket_field field = {.name = "image", .dtype = TSOCKET_UINT8, .ndim = 1, .shape = {o->sample_bytes}};
    struct tsocket_stream_options so;
    struct tsocket_producer *producer;
    struct tsocket_claim claim;
    tsocket_stream_options_init(&so);
    so.fields = &field;
    so.n_fields = 1;
    so.epoch_samples = WARM_UP_SAMPLES + o->samples;
    so.epochs = 1;
    so.max_batch = 1;
    so.capacity = 16;
    so.device = o->device;
    so.share = o->share;
    if (open_producer(round, number, &so, &producer) != TSOCKET_OK)
        return complain("producer");
    while (tsocket_producer_claim(producer, -1, &claim) == TSOCKET_OK) {
        bench_sleep_until_ns(bench_now_ns() + o->pace_ns);
        round->shared->committed_ns[claim.ordinal] = bench_now_ns();
        tsocket_producer_commit(producer, &claim);
    }
    return end_producer(producer);
}

/* ---- consumers --------------------------------------------------------------------------------------------------- */

static int open_consumer(const struct round *round, uint32_t number, uint32_t batch, struct tsocket **ts_out)
{
    char name[TSOCKET_NAME_MAX + 1];
    struct tsocket_options to;
    name_of(round, number, name);
    tsocket_options_init(&to);
    to.device = round->options->device;
    to.hold = round->options->hold;
    to.join = TSOCKET_JOIN_NOW;
    to.connect_timeout_ms = NEXT_TIMEOUT_MS;
    return tsocket_open(name, batch, &to, ts_out);
}

static int give_back(const struct round *round, struct card *card, struct tsocket *ts,
                     const struct tsocket_batch *batch)
{
    if (!round->kernels)
        return tsocket_release(ts, batch);
    if (!card_read(card, batch->data[0], (uint64_t)batch->count * round->options->sample_bytes))
        return TSOCKET_EDEVICE;
    return tsocket_release_after(ts, batch, card->stream);
}

int gpu_read(const struct round *round, uint32_t number)
{
    const struct options *o = round->options;
    int64_t now_ns = 0, until_ns = round->from_ns + o->len_ns;
    uint64_t batches = 0;
    struct tsocket_batch batch;
    struct tsocket *ts;
    struct card card;
    if (!card_open(o->device, &card))
        return 1;
    if (open_consumer(round, number, o->batch, &ts) != TSOCKET_OK)
        return complain("consumer");
    while (now_ns < until_ns) {
        int rc = tsocket_next(ts, NEXT_TIMEOUT_MS, &batch);
        if (rc != TSOCKET_OK || give_back(round, &card, ts, &batch) != TSOCKET_OK)
            return complain("consumer");
        now_ns = bench_now_ns();
        if (now_ns >= round->from_ns)
            batches++;
        if (number == 0 && now_ns < round->from_ns + o->len_ns / 2)
            round->shared->free_bytes = card_free_bytes(&card); /* the last one counts */
    }
    tsocket_close(ts);
    card_close(&card);
    round->shared->batches[number] = batches;
    return 0;
}

static bool read_one(const struct round *round, struct card *card, struct tsocket *ts,
                     const struct tsocket_batch *batch)
{
    struct shared *s = round->shared;
    if (!card_read(card, batch->data[0], round->options->sample_bytes) ||
        !WORKS(card, cuStreamSynchronize(card->stream)))
        return false;
    if (batch->first >= WARM_UP_SAMPLES)
        s->delays_ns[s->n_delays++] = (uint32_t)(bench_now_ns() - s->committed_ns[batch->first]);
    return tsocket_release(ts, batch) == TSOCKET_OK;
}

int gpu_wait(const struct round *round, uint32_t number)
{
    struct tsocket_batch batch;
    struct tsocket *ts;
    struct card card;
    int rc;
    if (!card_open(round->options->device, &card))
        return 1;
    if (open_consumer(round, number, 1, &ts) != TSOCKET_OK)
        return complain("consumer");
    while ((rc = tsocket_next(ts, NEXT_TIMEOUT_MS, &batch)) != TSOCKET_END) {
        if (rc == TSOCKET_EPOCH_END)
            continue;
        if (rc != TSOCKET_OK || !read_one(round, &card, ts, &batch))
            return complain("consumer");
    }
    tsocket_close(ts);
    card_close(&card);
    return 0;
}
