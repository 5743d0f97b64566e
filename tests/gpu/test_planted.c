/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bugs that the simulated driver must find. Each stands here twice, as it should be and with the bug, in a process of
 * its own that fails as a test would: by a wrong result, by an error of the driver, or by SIMCUDA_STRICT's abort.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <cmocka.h>

#include "peer.h"
#include "rig.h"
#include "simcuda.h"

#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN true
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN true
#endif
#endif
#ifndef WITH_TSAN
#define WITH_TSAN false
#endif

enum {
    WORDS = 1 << 12,
    BYTES = WORDS * 4,
    WRONG = 3,        /* exit status: the data are not what they should be */
    BROKEN = 4,       /* the driver answers an error */
    TSAN_STATUS = 66, /* ThreadSanitizer's, after it has reported a race */
    LONG_US = 20000,
    BEGUN_US = 200000, /* a stream has begun its work by then, on a busy machine too */
};

static struct rig rig;
static uint32_t host[WORDS];
static uint64_t memory;
static struct tsi_cu_event *event;
static struct tsi_cu_ipc_handle offered; /* by the test's own process */
static atomic_bool go;

static void prepare(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    rig_open(&rig, 0);
    CHECK(&rig, cuMemAlloc(&memory, RIG_BLOCK));
    CHECK(&rig, cuMemHostRegister(host, BYTES, TSI_CU_HOST_PORTABLE));
    CHECK(&rig, cuEventCreate(&event, TSI_CU_EVENT_DISABLE_TIMING));
}

static void fill_and_copy(uint32_t value)
{
    for (uint32_t i = 0; i < WORDS; i++)
        host[i] = value;
    CHECK(&rig, cuMemcpyHtoDAsync(memory, host, BYTES, rig.stream));
    CHECK(&rig, cuEventRecord(event, rig.stream));
}

/* Takes the place of test_sum: as slow as the test wants it. */
static void patient_sum(struct simcuda_launch *launch)
{
    uint32_t n = *(const uint32_t *)launch->params[1];
    const uint32_t *data = simcuda_at(launch, *(const uint64_t *)launch->params[0], n * sizeof(*data), false);
    uint32_t *out = simcuda_at(launch, *(const uint64_t *)launch->params[2], sizeof(*out), true);

    while (!atomic_load(&go))
        usleep(100);
    for (uint32_t i = *out = 0; i < n; i++)
        *out += data[i];
}

static void start_patient_sum(void)
{
    simcuda_register("test_sum", patient_sum, 3, (const size_t[]){8, 4, 8});
    rig_sum(&rig, memory, WORDS, memory + BYTES);
}

/* Staging memory is filled again before the copy out of it has happened. */
static int early_reuse(bool planted)
{
    prepare();
    simcuda_delay(WITH_TSAN ? LONG_US : 0);
    simcuda_hold(planted && !WITH_TSAN); /* which puts both sides in order: there would be no race to see */
    fill_and_copy(1);
    if (!planted)
        CHECK(&rig, cuEventSynchronize(event));
    if (planted && WITH_TSAN)
        usleep(BEGUN_US); /* work that begins later has seen what is written now */
    fill_and_copy(2);
    simcuda_hold(false);
    CHECK(&rig, cuEventSynchronize(event));
    return 0;
}

/* A batch is given back, and overwritten, before the kernel that reads it has ended. */
static int early_release(bool planted)
{
    struct tsi_cu_stream *copies;
    uint32_t sum;

    prepare();
    fill_and_copy(1);
    CHECK(&rig, cuEventSynchronize(event));
    CHECK(&rig, cuStreamCreate(&copies, TSI_CU_STREAM_NON_BLOCKING));
    start_patient_sum();
    CHECK(&rig, cuEventRecord(event, rig.stream));
    atomic_store(&go, !planted);
    if (!planted)
        CHECK(&rig, cuEventSynchronize(event));
    CHECK(&rig, cuMemsetD8Async(memory, 0, BYTES, copies));
    CHECK(&rig, cuStreamSynchronize(copies));
    atomic_store(&go, true);
    rig_read(&rig, &sum, memory + BYTES, sizeof(sum));
    return sum == WORDS ? 0 : WRONG;
}

/* Data are read before the event behind their copy has passed. */
static int missing_wait(bool planted)
{
    struct tsi_cu_stream *reader;
    uint32_t word;

    prepare();
    CHECK(&rig, cuMemsetD8Async(memory, 0, RIG_BLOCK, rig.stream));
    CHECK(&rig, cuStreamSynchronize(rig.stream));
    CHECK(&rig, cuStreamCreate(&reader, TSI_CU_STREAM_NON_BLOCKING));
    start_patient_sum();
    fill_and_copy(1);
    atomic_store(&go, !planted);
    if (!planted)
        CHECK(&rig, cuEventSynchronize(event));
    CHECK(&rig, cuMemcpyDtoHAsync(&word, memory, sizeof(word), reader));
    CHECK(&rig, cuStreamSynchronize(reader));
    atomic_store(&go, true);
    return word == 1 ? 0 : WRONG;
}

/* Another process's memory is used after it was closed. */
static int use_after_close(bool planted)
{
    uint64_t opened;

    prepare();
    CHECK(&rig, cuIpcOpenMemHandle(&opened, offered, TSI_CU_IPC_LAZY_PEER));
    if (planted)
        CHECK(&rig, cuIpcCloseMemHandle(opened));
    CHECK(&rig, cuMemcpyDtoHAsync(host, opened, BYTES, rig.stream));
    return rig.cuda.cuStreamSynchronize(rig.stream) == TSI_CU_SUCCESS ? 0 : BROKEN;
}

/* A kernel writes to memory that this process has mapped for reading. */
static int read_only_write(bool planted)
{
    struct rig_mapping mapping;

    prepare();
    rig_map(&rig, RIG_BLOCK, -1, planted ? TSI_CU_ACCESS_READ : TSI_CU_ACCESS_READ_WRITE, &mapping);
    rig_store(&rig, mapping.address, 1);
    return rig.cuda.cuStreamSynchronize(rig.stream) == TSI_CU_SUCCESS ? 0 : BROKEN;
}

static const struct bug {
    const char *name;
    int (*run)(bool planted);
    int status; /* with the bug in it */
} bugs[] = {
    {"early_reuse", early_reuse, WITH_TSAN ? TSAN_STATUS : 128 + SIGABRT},
    {"early_release", early_release, WRONG},
    {"missing_wait", missing_wait, WRONG},
    {"use_after_close", use_after_close, BROKEN},
    {"read_only_write", read_only_write, BROKEN},
};

struct order {
    size_t bug;
    bool planted;
    struct tsi_cu_ipc_handle offered;
};

static int run_bug(int socket)
{
    struct order order;

    peer_receive(socket, &order, sizeof(order));
    offered = order.offered;
    return bugs[order.bug].run(order.planted);
}

static int status_of(size_t bug, bool planted)
{
    struct order order = {.bug = bug, .planted = planted};
    struct peer peer;

    CHECK(&rig, cuIpcGetMemHandle(&order.offered, memory));
    peer_start(&peer, "run_bug");
    peer_send(peer.socket, &order, sizeof(order), -1);
    return peer_wait(&peer);
}

static void run_without_and_with(void **state)
{
    size_t bug = (size_t)((const struct bug *)*state - bugs);

    assert_int_equal(status_of(bug, false), 0);
    if (bugs[bug].status == 128 + SIGABRT)
        setenv("SIMCUDA_STRICT", "1", 1);
    assert_int_equal(status_of(bug, true), bugs[bug].status);
    unsetenv("SIMCUDA_STRICT");
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {{"run_bug", run_bug}};
    struct CMUnitTest tests[sizeof(bugs) / sizeof(bugs[0])];

    peer_main(argc, argv, roles, 1);
    prepare();
    for (size_t i = 0; i < sizeof(bugs) / sizeof(bugs[0]); i++)
        tests[i] = (struct CMUnitTest){
            .name = bugs[i].name, .test_func = run_without_and_with, .initial_state = (void *)&bugs[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
