/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated driver's own rules: those that a real driver leaves undefined, and what it tells a test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "peer.h"
#include "rig.h"
#include "simcuda.h"

enum {
    BYTES = 1 << 16,
};

static struct rig rig;

static uint64_t allocate(size_t bytes)
{
    uint64_t address;

    CHECK(&rig, cuMemAlloc(&address, bytes));
    return address;
}

static void the_host_cannot_read_device_memory(void **state)
{
    const volatile char *memory = (const char *)(uintptr_t)allocate(BYTES);
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGSEGV, SIG_DFL);
        _exit(memory[0]);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    CHECK(&rig, cuMemFree((uintptr_t)memory));
}

static void a_copy_waits_while_streams_are_held(void **state)
{
    static uint32_t host[4] = {1, 2, 3, 4};
    uint64_t memory = allocate(BYTES);
    struct tsi_cu_event *event;

    (void)state;
    CHECK(&rig, cuMemHostRegister(host, sizeof(host), 0));
    CHECK(&rig, cuEventCreate(&event, TSI_CU_EVENT_DISABLE_TIMING));
    simcuda_hold(true);
    CHECK(&rig, cuMemcpyHtoDAsync(memory, host, sizeof(host), rig.stream));
    CHECK(&rig, cuEventRecord(event, rig.stream));
    assert_int_equal(simcuda_pending(), 2);
    assert_int_equal(rig.cuda.cuEventQuery(event), TSI_CU_ERROR_NOT_READY);
    simcuda_hold(false);
    CHECK(&rig, cuEventSynchronize(event));
    assert_int_equal(rig.cuda.cuEventQuery(event), TSI_CU_SUCCESS);
    CHECK(&rig, cuEventDestroy(event));
    CHECK(&rig, cuMemHostUnregister(host));
    CHECK(&rig, cuMemFree(memory));
}

static void copies_from_unregistered_memory_are_counted(void **state)
{
    static uint32_t host[4];
    uint64_t memory = allocate(BYTES);
    unsigned long before = simcuda_pageable_copies();

    (void)state;
    rig_write(&rig, memory, host, sizeof(host));
    assert_int_equal(simcuda_pageable_copies(), before + 1);
    CHECK(&rig, cuMemHostRegister(host, sizeof(host), 0));
    rig_write(&rig, memory, host, sizeof(host));
    assert_int_equal(simcuda_pageable_copies(), before + 1);
    assert_int_equal(rig.cuda.cuMemHostRegister(host, 4, 0), TSI_CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    CHECK(&rig, cuMemHostUnregister(host));
    assert_int_equal(rig.cuda.cuMemHostUnregister(host), TSI_CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CHECK(&rig, cuMemFree(memory));
}

static void calls_are_counted_and_fail_when_told_to(void **state)
{
    unsigned long before = simcuda_calls("cuMemAlloc_v2");
    uint64_t address;

    (void)state;
    simcuda_fail("cuMemAlloc_v2", 2, TSI_CU_ERROR_UNKNOWN);
    CHECK(&rig, cuMemAlloc(&address, BYTES));
    CHECK(&rig, cuMemFree(address));
    assert_int_equal(rig.cuda.cuMemAlloc(&address, BYTES), TSI_CU_ERROR_UNKNOWN);
    CHECK(&rig, cuMemAlloc(&address, BYTES));
    CHECK(&rig, cuMemFree(address));
    assert_int_equal(simcuda_calls("cuMemAlloc_v2"), before + 3);
}

static void a_call_that_frees_does_so_also_when_it_fails(void **state)
{
    unsigned long live = simcuda_live();
    uint64_t memory = allocate(BYTES);

    (void)state;
    simcuda_fail("cuMemFree_v2", 1, TSI_CU_ERROR_UNKNOWN);
    assert_int_equal(rig.cuda.cuMemFree(memory), TSI_CU_ERROR_UNKNOWN);
    assert_int_equal(simcuda_live(), live);
}

static void memory_ends_at_the_limit(void **state)
{
    size_t free_bytes, total, left;
    uint64_t address;

    (void)state;
    CHECK(&rig, cuMemGetInfo(&free_bytes, &total));
    assert_int_equal(rig.cuda.cuMemAlloc(&address, free_bytes + 1), TSI_CU_ERROR_OUT_OF_MEMORY);
    address = allocate(4 * RIG_BLOCK);
    CHECK(&rig, cuMemGetInfo(&left, &total));
    assert_int_equal(left, free_bytes - 4 * RIG_BLOCK);
    CHECK(&rig, cuMemFree(address));
}

static void a_second_free_is_noticed(void **state)
{
    unsigned long before = simcuda_violations(SIMCUDA_DOUBLE_FREE);
    uint64_t memory = allocate(BYTES);

    (void)state;
    CHECK(&rig, cuMemFree(memory));
    assert_int_equal(rig.cuda.cuMemFree(memory), TSI_CU_ERROR_INVALID_VALUE);
    assert_int_equal(simcuda_violations(SIMCUDA_DOUBLE_FREE), before + 1);
}

static void virtual_memory_has_its_rules(void **state)
{
    struct rig_mapping mapping;
    struct tsi_cu_ipc_handle handle;

    (void)state;
    rig_map(&rig, 2 * RIG_BLOCK, -1, TSI_CU_ACCESS_READ_WRITE, &mapping);
    assert_int_equal(rig.cuda.cuMemUnmap(mapping.address, RIG_BLOCK), TSI_CU_ERROR_INVALID_VALUE);
    assert_int_equal(rig.cuda.cuMemMap(mapping.address, RIG_BLOCK, 0, mapping.handle, 0), TSI_CU_ERROR_INVALID_VALUE);
    assert_int_equal(rig.cuda.cuIpcGetMemHandle(&handle, mapping.address), TSI_CU_ERROR_INVALID_VALUE);
    CHECK(&rig, cuMemUnmap(mapping.address, 2 * RIG_BLOCK));
    assert_int_equal(rig.cuda.cuMemMap(mapping.address, RIG_BLOCK, RIG_BLOCK, mapping.handle, 0),
                     TSI_CU_ERROR_INVALID_VALUE);
    CHECK(&rig, cuMemAddressFree(mapping.address, 2 * RIG_BLOCK));
    CHECK(&rig, cuMemRelease(mapping.handle));
}

/* --- in processes of their own: what breaks a context, or is only seen at the end */

static int access_too_early(int socket)
{
    struct tsi_cu_allocation_prop prop = {.type = TSI_CU_ALLOCATION_PINNED,
                                          .location = {.type = TSI_CU_LOCATION_DEVICE}};
    uint64_t handle, address;

    (void)socket;
    rig_open(&rig, 0);
    CHECK(&rig, cuMemCreate(&handle, RIG_BLOCK, &prop, 0));
    CHECK(&rig, cuMemAddressReserve(&address, RIG_BLOCK, 0, 0, 0));
    CHECK(&rig, cuMemMap(address, RIG_BLOCK, 0, handle, 0));
    CHECK(&rig, cuMemsetD8Async(address, 0, RIG_BLOCK, rig.stream));
    return rig.cuda.cuStreamSynchronize(rig.stream) == TSI_CU_ERROR_ILLEGAL_ADDRESS ? 0 : 1;
}

static void memory_without_access_breaks_the_context(void **state)
{
    struct peer peer;

    (void)state;
    peer_start(&peer, "access_too_early");
    assert_int_equal(peer_wait(&peer), 0);
}

static int broken(int socket)
{
    uint64_t address = 0;

    (void)socket;
    rig_open(&rig, 0);
    simcuda_break(0, TSI_CU_ERROR_ECC_UNCORRECTABLE);
    return rig.cuda.cuMemAlloc(&address, BYTES) == TSI_CU_ERROR_ECC_UNCORRECTABLE &&
                   rig.cuda.cuStreamSynchronize(rig.stream) == TSI_CU_ERROR_ECC_UNCORRECTABLE
               ? 0
               : 1;
}

static void an_error_of_the_card_sticks(void **state)
{
    struct peer peer;

    (void)state;
    peer_start(&peer, "broken");
    assert_int_equal(peer_wait(&peer), 0);
}

static void too_late(void)
{
    int count;

    _exit(rig.cuda.cuDeviceGetCount(&count) == TSI_CU_ERROR_DEINITIALIZED ? 0 : 1);
}

/* Handlers run in the opposite order: this one after the driver's, which comes with cuInit. */
static int call_at_exit(int socket)
{
    (void)socket;
    atexit(too_late);
    rig_open(&rig, 0);
    return 2;
}

static void the_driver_is_gone_at_exit(void **state)
{
    struct peer peer;

    (void)state;
    peer_start(&peer, "call_at_exit");
    assert_int_equal(peer_wait(&peer), 0);
}

static int leak(int socket)
{
    (void)socket;
    rig_open(&rig, 0);
    allocate(BYTES);
    return 0;
}

static void what_is_left_is_reported(void **state)
{
    char path[] = "/tmp/tsocket-simcuda-XXXXXX", text[256] = "";
    int fd = mkstemp(path);
    struct peer peer;

    (void)state;
    setenv("SIMCUDA_REPORT", path, 1);
    peer_start(&peer, "leak");
    unsetenv("SIMCUDA_REPORT");
    assert_int_equal(peer_wait(&peer), 0);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    assert_string_equal(text, "left: 1 allocations\nleft: 1 streams\nleft: 1 modules\nleft: 1 contexts\n");
    close(fd);
    unlink(path);
}

/* The environment of `environment_decides`: two devices of three, the other way round; no VMM; MPS; killed at last. */
static int look_around(int socket)
{
    struct tsi_cu_uuid uuid;
    int count, vmm, mps, peer_access;

    (void)socket;
    rig_open(&rig, 1);
    CHECK(&rig, cuDeviceGetCount(&count));
    CHECK(&rig, cuDeviceGetUuid(&uuid, 1));
    CHECK(&rig, cuDeviceGetAttribute(&vmm, TSI_CU_ATTRIBUTE_VMM, 1));
    CHECK(&rig, cuDeviceGetAttribute(&mps, TSI_CU_ATTRIBUTE_MPS, 1));
    CHECK(&rig, cuDeviceCanAccessPeer(&peer_access, 0, 1));
    if (count != 2 || uuid.bytes[15] != 0 || vmm != 0 || mps != 1 || peer_access != 0)
        return 1;
    allocate(BYTES); /* killed here */
    return 2;
}

static void environment_decides(void **state)
{
    static const char *const settings[][2] = {
        {"SIMCUDA_DEVICES", "3"},  {"CUDA_VISIBLE_DEVICES", "2,0"},          {"SIMCUDA_ATTRIBUTES", "102=0,133=1"},
        {"SIMCUDA_PEERS", "none"}, {"SIMCUDA_FAIL", "cuMemAlloc_v2:1:kill"},
    };
    struct peer peer;

    (void)state;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        setenv(settings[i][0], settings[i][1], 1);
    peer_start(&peer, "look_around");
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        unsetenv(settings[i][0]);
    assert_int_equal(peer_wait(&peer), 128 + SIGKILL);
}

/* --- IPC */

struct offer {
    struct tsi_cu_ipc_handle handle;
    uint64_t distance; /* to a neighbour */
};

/* Reads the neighbour of what it was given. */
static int neighbour(int socket)
{
    struct offer offer;
    uint64_t memory;
    uint32_t word;

    peer_receive(socket, &offer, sizeof(offer));
    rig_open(&rig, 0);
    CHECK(&rig, cuIpcOpenMemHandle(&memory, offer.handle, TSI_CU_IPC_LAZY_PEER));
    rig_read(&rig, &word, memory + offer.distance, sizeof(word));
    CHECK(&rig, cuIpcCloseMemHandle(memory));
    return word == 0x77777777 ? 0 : 1;
}

static void small_allocations_are_shared_with_their_neighbours(void **state)
{
    uint64_t given = allocate(BYTES), secret = allocate(BYTES);
    struct offer offer = {.distance = secret - given};
    struct peer peer;

    (void)state;
    CHECK(&rig, cuMemsetD8Async(secret, 0x77, BYTES, rig.stream));
    CHECK(&rig, cuStreamSynchronize(rig.stream));
    CHECK(&rig, cuIpcGetMemHandle(&offer.handle, given));
    peer_start(&peer, "neighbour");
    peer_send(peer.socket, &offer, sizeof(offer), -1);
    assert_int_equal(peer_wait(&peer), 0);
    CHECK(&rig, cuMemFree(given));
    CHECK(&rig, cuMemFree(secret));
}

/* Opens, says so, and waits until it may go on; then the handle must be stale. */
static int opener(int socket)
{
    struct tsi_cu_ipc_handle handle;
    uint64_t memory;
    char byte;

    peer_receive(socket, &handle, sizeof(handle));
    rig_open(&rig, 0);
    CHECK(&rig, cuIpcOpenMemHandle(&memory, handle, TSI_CU_IPC_LAZY_PEER));
    peer_send(socket, "", 1, -1);
    peer_receive(socket, &byte, 1);
    CHECK(&rig, cuIpcCloseMemHandle(memory));
    return rig.cuda.cuIpcOpenMemHandle(&memory, handle, TSI_CU_IPC_LAZY_PEER) == TSI_CU_ERROR_INVALID_VALUE ? 0 : 1;
}

static void memory_that_is_freed_while_others_have_it_open_is_noticed(void **state)
{
    unsigned long before = simcuda_violations(SIMCUDA_FREE_BEFORE_CLOSE);
    uint64_t memory = allocate(RIG_BLOCK);
    struct tsi_cu_ipc_handle handle;
    struct peer peer;
    char byte;

    (void)state;
    CHECK(&rig, cuIpcGetMemHandle(&handle, memory));
    peer_start(&peer, "opener");
    peer_send(peer.socket, &handle, sizeof(handle), -1);
    peer_receive(peer.socket, &byte, 1);
    CHECK(&rig, cuMemFree(memory));
    assert_int_equal(simcuda_violations(SIMCUDA_FREE_BEFORE_CLOSE), before + 1);
    peer_send(peer.socket, "", 1, -1);
    assert_int_equal(peer_wait(&peer), 0);
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {
        {"access_too_early", access_too_early},
        {"broken", broken},
        {"call_at_exit", call_at_exit},
        {"leak", leak},
        {"look_around", look_around},
        {"neighbour", neighbour},
        {"opener", opener},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_cannot_read_device_memory),
        cmocka_unit_test(a_copy_waits_while_streams_are_held),
        cmocka_unit_test(copies_from_unregistered_memory_are_counted),
        cmocka_unit_test(calls_are_counted_and_fail_when_told_to),
        cmocka_unit_test(a_call_that_frees_does_so_also_when_it_fails),
        cmocka_unit_test(memory_ends_at_the_limit),
        cmocka_unit_test(a_second_free_is_noticed),
        cmocka_unit_test(virtual_memory_has_its_rules),
        cmocka_unit_test(memory_without_access_breaks_the_context),
        cmocka_unit_test(an_error_of_the_card_sticks),
        cmocka_unit_test(the_driver_is_gone_at_exit),
        cmocka_unit_test(what_is_left_is_reported),
        cmocka_unit_test(environment_decides),
        cmocka_unit_test(small_allocations_are_shared_with_their_neighbours),
        cmocka_unit_test(memory_that_is_freed_while_others_have_it_open_is_noticed),
    };

    peer_main(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));
    rig_open(&rig, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
