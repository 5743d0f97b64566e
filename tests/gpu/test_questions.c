/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the documentation of CUDA leaves open, asked of the driver: the same program on the simulated one and on a card.
 * What our code depends on is asserted. The rest is said in lines "observed WHAT: ANSWER", for scripts/gpu-test.sh to
 * put into its report.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "kernels.h"
#include "peer.h"
#include "rig.h"

enum {
    WORDS = 1 << 18,
    BYTES = WORDS * 4,
    ROUNDS = 100,
};

static struct rig rig;

/* --- the device */

static void the_device_says_what_it_can(void **state)
{
    static const struct {
        const char *name;
        int number;
    } attributes[] = {
        {"vmm", TSI_CU_ATTRIBUTE_VMM},
        {"posix_fd", TSI_CU_ATTRIBUTE_POSIX_FD},
        {"read_only_host_register", TSI_CU_ATTRIBUTE_READ_ONLY_HOST},
        {"ipc_event", TSI_CU_ATTRIBUTE_IPC_EVENT},
        {"mps", TSI_CU_ATTRIBUTE_MPS},
        {"host_numa", TSI_CU_ATTRIBUTE_HOST_NUMA},
        {"async_engines", TSI_CU_ATTRIBUTE_ASYNC_ENGINES},
        {"integrated", TSI_CU_ATTRIBUTE_INTEGRATED},
    };
    char what[64];
    int value;

    (void)state;
    for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
        int result = rig.cuda.cuDeviceGetAttribute(&value, attributes[i].number, rig.device);

        snprintf(what, sizeof(what), "attribute %d (%s)", attributes[i].number, attributes[i].name);
        if (result == TSI_CU_SUCCESS)
            rig_observe(what, "%d", value);
        else
            rig_observe(what, "%s", rig_name_of(&rig, result));
    }
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void ptx_for_compute_capability_6_0_is_taken(void **state)
{
    struct tsi_cu_module *module;
    struct tsi_cu_function *function;
    double begun_ms = now_ms();

    (void)state;
    assert_non_null(strstr(kernels_ptx, ".target sm_60"));
    CHECK(&rig, cuModuleLoadData(&module, kernels_ptx));
    CHECK(&rig, cuModuleGetFunction(&function, module, "test_sum"));
    rig_observe("ptx: load", "%.1f ms", now_ms() - begun_ms);
    CHECK(&rig, cuModuleUnload(module));
}

/* --- host memory that copies come from */

static uint8_t *map_memfd(int prot)
{
    int fd = memfd_create("questions", MFD_CLOEXEC);
    uint8_t *writable, *wanted;

    assert_true(fd >= 0 && ftruncate(fd, BYTES) == 0);
    writable = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    wanted = mmap(NULL, BYTES, prot, MAP_SHARED, fd, 0);
    assert_true(writable != MAP_FAILED && wanted != MAP_FAILED);
    for (size_t i = 0; i < BYTES; i++)
        writable[i] = (uint8_t)(i * 7 + i / 251);
    munmap(writable, BYTES);
    close(fd);
    return wanted;
}

/* Copies it in and out again; the answer of the first call. */
static int copy_round(const uint8_t *host)
{
    uint8_t *expected = map_memfd(PROT_READ), *got = malloc(BYTES);
    uint64_t memory = rig_allocate(&rig, BYTES, 0);
    int result = rig.cuda.cuMemcpyHtoDAsync(memory, host, BYTES, rig.stream);

    assert_non_null(got);
    if (result == TSI_CU_SUCCESS) {
        rig_read(&rig, got, memory, BYTES);
        assert_memory_equal(got, expected, BYTES);
    }
    CHECK(&rig, cuMemFree(memory));
    munmap(expected, BYTES);
    free(got);
    return result;
}

static void registered_memfd_memory_is_copied(void **state)
{
    uint8_t *host = map_memfd(PROT_READ | PROT_WRITE);

    (void)state;
    CHECK(&rig, cuMemHostRegister(host, BYTES, TSI_CU_HOST_PORTABLE));
    assert_int_equal(copy_round(host), TSI_CU_SUCCESS);
    CHECK(&rig, cuMemHostUnregister(host));
    munmap(host, BYTES);
}

static void pageable_memory_is_copied(void **state)
{
    uint8_t *host = map_memfd(PROT_READ);

    (void)state;
    assert_int_equal(copy_round(host), TSI_CU_SUCCESS);
    munmap(host, BYTES);
}

/* What a consumer of a ring in host memory has mapped: it cannot write there, and need not. */
static void read_only_memory_is_registered_where_the_device_can(void **state)
{
    uint8_t *host = map_memfd(PROT_READ);
    int can = 0, result;

    (void)state;
    rig.cuda.cuDeviceGetAttribute(&can, TSI_CU_ATTRIBUTE_READ_ONLY_HOST, rig.device);
    result = rig.cuda.cuMemHostRegister(host, BYTES, TSI_CU_HOST_PORTABLE | TSI_CU_HOST_READ_ONLY);
    rig_observe("host memory: registered read-only", "%s, attribute %d", rig_name_of(&rig, result), can);
    if (result == TSI_CU_SUCCESS) {
        assert_int_equal(copy_round(host), TSI_CU_SUCCESS);
        CHECK(&rig, cuMemHostUnregister(host));
    }
    munmap(host, BYTES);
}

static void write_combined_memory_is_copied(void **state)
{
    uint8_t *pattern = map_memfd(PROT_READ);
    void *host;

    (void)state;
    CHECK(&rig, cuMemHostAlloc(&host, BYTES, TSI_CU_HOST_PORTABLE | TSI_CU_HOST_ALLOC_WRITE_COMBINED));
    memcpy(host, pattern, BYTES);
    assert_int_equal(copy_round(host), TSI_CU_SUCCESS);
    CHECK(&rig, cuMemFreeHost(host));
    munmap(pattern, BYTES);
}

/* --- events */

static void a_wait_does_not_wait_for_a_record_that_comes_later(void **state)
{
    struct tsi_cu_stream *other;
    struct tsi_cu_event *event;

    (void)state;
    CHECK(&rig, cuStreamCreate(&other, TSI_CU_STREAM_NON_BLOCKING));
    CHECK(&rig, cuEventCreate(&event, TSI_CU_EVENT_DISABLE_TIMING));
    CHECK(&rig, cuStreamWaitEvent(other, event, 0));
    CHECK(&rig, cuStreamSynchronize(other)); /* would hang */
    CHECK(&rig, cuEventRecord(event, rig.stream));
    CHECK(&rig, cuEventSynchronize(event));
    CHECK(&rig, cuEventDestroy(event));
    CHECK(&rig, cuStreamDestroy(other));
}

/* One round of the importer's side: `event`: behind the exporter's event, else since it has been told that it is over.
 */
struct round {
    bool event;
    unsigned char value; /* that is there now */
    double begun_ms;
};

struct shared {
    struct tsi_cu_ipc_handle memory, event;
};

static int event_importer(int socket)
{
    struct tsi_cu_event *event;
    struct shared shared;
    struct round round;
    unsigned char *got;
    uint64_t memory;
    double took_ms;

    peer_receive(socket, &shared, sizeof(shared));
    rig_open(&rig, 0);
    got = malloc(RIG_BLOCK);
    CHECK(&rig, cuIpcOpenMemHandle(&memory, shared.memory, TSI_CU_IPC_LAZY_PEER));
    CHECK(&rig, cuIpcOpenEventHandle(&event, shared.event));
    CHECK(&rig, cuStreamWaitEvent(rig.stream, event, 0)); /* nobody has recorded it yet: */
    CHECK(&rig, cuStreamSynchronize(rig.stream));         /* would hang */
    peer_send(socket, "", 1, -1);
    for (;;) {
        peer_receive(socket, &round, sizeof(round));
        if (round.value == 0)
            break;
        if (round.event)
            CHECK(&rig, cuStreamWaitEvent(rig.stream, event, 0));
        CHECK(&rig, cuMemcpyDtoHAsync(got, memory, RIG_BLOCK, rig.stream));
        CHECK(&rig, cuStreamSynchronize(rig.stream));
        took_ms = now_ms() - round.begun_ms;
        if (got[0] != round.value || got[RIG_BLOCK - 1] != round.value)
            return 3;
        peer_send(socket, &took_ms, sizeof(took_ms), -1);
    }
    CHECK(&rig, cuEventDestroy(event));
    CHECK(&rig, cuIpcCloseMemHandle(memory));
    rig_close(&rig);
    free(got);
    return 0;
}

static int compare(const void *a, const void *b)
{
    return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* The median time from the exporter's first call to the data in the importer's hands. */
static double hand_over(const struct peer *peer, uint64_t memory, struct tsi_cu_event *event, bool by_event)
{
    double took_ms[ROUNDS];

    for (int i = 0; i < ROUNDS; i++) {
        struct round round = {.event = by_event, .value = (unsigned char)(i % 7 + 1), .begun_ms = now_ms()};

        CHECK(&rig, cuMemsetD8Async(memory, round.value, RIG_BLOCK, rig.stream));
        CHECK(&rig, cuEventRecord(event, rig.stream));
        if (!by_event)
            CHECK(&rig, cuEventSynchronize(event));
        peer_send(peer->socket, &round, sizeof(round), -1);
        peer_receive(peer->socket, &took_ms[i], sizeof(took_ms[i]));
    }
    qsort(took_ms, ROUNDS, sizeof(took_ms[0]), compare);
    return took_ms[ROUNDS / 2];
}

static void the_event_of_another_process_is_waited_for(void **state)
{
    uint64_t memory = rig_allocate(&rig, RIG_BLOCK, 9);
    struct tsi_cu_event *event;
    struct shared shared;
    struct peer peer;

    (void)state;
    CHECK(&rig, cuEventCreate(&event, TSI_CU_EVENT_INTERPROCESS | TSI_CU_EVENT_DISABLE_TIMING));
    CHECK(&rig, cuIpcGetMemHandle(&shared.memory, memory));
    CHECK(&rig, cuIpcGetEventHandle(&shared.event, event));
    peer_start(&peer, "event_importer");
    peer_send(peer.socket, &shared, sizeof(shared), -1);
    peer_receive(peer.socket, &(char){0}, 1);
    rig_observe("hand-over: the host waits, then tells", "%.3f ms", hand_over(&peer, memory, event, false));
    rig_observe("hand-over: by an event between processes", "%.3f ms", hand_over(&peer, memory, event, true));
    peer_send(peer.socket, &(struct round){.value = 0}, sizeof(struct round), -1);
    assert_int_equal(peer_wait(&peer), 0);
    CHECK(&rig, cuEventDestroy(event));
    CHECK(&rig, cuMemFree(memory));
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {{"event_importer", event_importer}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_says_what_it_can),
        cmocka_unit_test(ptx_for_compute_capability_6_0_is_taken),
        cmocka_unit_test(registered_memfd_memory_is_copied),
        cmocka_unit_test(pageable_memory_is_copied),
        cmocka_unit_test(read_only_memory_is_registered_where_the_device_can),
        cmocka_unit_test(write_combined_memory_is_copied),
        cmocka_unit_test(a_wait_does_not_wait_for_a_record_that_comes_later),
        cmocka_unit_test(the_event_of_another_process_is_waited_for),
    };

    peer_main(argc, argv, roles, 1);
    rig_open(&rig, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
