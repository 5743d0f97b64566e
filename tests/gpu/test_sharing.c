/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More questions to the driver, as in test_questions.c: who can open what is shared, and what becomes of it when its
 * owner dies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dlfcn.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "peer.h"
#include "rig.h"

enum {
    SMALL = 64 << 10,
    NOBODY = 65534,
    MIB = 1 << 20,
};

#define LARGE ((size_t)64 << 20)

static struct rig rig;

/* --- IPC handles */

static void the_handle_of_an_address_inside_is_refused_or_the_base_s(void **state)
{
    uint64_t memory = rig_allocate(&rig, 2 * RIG_BLOCK, 1);
    struct tsi_cu_ipc_handle base, inside;
    int result;

    (void)state;
    CHECK(&rig, cuIpcGetMemHandle(&base, memory));
    result = rig.cuda.cuIpcGetMemHandle(&inside, memory + RIG_BLOCK);
    rig_observe("ipc: handle of an address inside", "%s%s", rig_name_of(&rig, result),
                result != TSI_CU_SUCCESS                    ? ""
                : memcmp(&base, &inside, sizeof(base)) == 0 ? ", the same as the base's"
                                                            : ", another than the base's");
    CHECK(&rig, cuMemFree(memory));
}

static void memory_of_whole_blocks_shares_none(void **state)
{
    uint64_t one = rig_allocate(&rig, RIG_BLOCK, 1), other = rig_allocate(&rig, RIG_BLOCK, 2);

    (void)state;
    rig_observe("memory: alignment of 2 MiB", "%s", one % RIG_BLOCK + other % RIG_BLOCK == 0 ? "whole blocks" : "less");
    assert_true(one + RIG_BLOCK <= other || other + RIG_BLOCK <= one);
    CHECK(&rig, cuMemFree(one));
    CHECK(&rig, cuMemFree(other));
}

struct neighbours {
    struct tsi_cu_ipc_handle handle; /* of one, */
    int64_t distance;                /* and where the other one lies from there */
};

/* Status 0: it can read what nobody gave it; 5: it cannot. */
static int nosy_neighbour(int socket)
{
    struct neighbours told;
    uint64_t memory;
    uint32_t word = 0;

    peer_receive(socket, &told, sizeof(told));
    rig_open(&rig, 0);
    CHECK(&rig, cuIpcOpenMemHandle(&memory, told.handle, TSI_CU_IPC_LAZY_PEER));
    if (rig.cuda.cuMemcpyDtoHAsync(&word, memory + (uint64_t)told.distance, sizeof(word), rig.stream) != 0 ||
        rig.cuda.cuStreamSynchronize(rig.stream) != 0)
        return 5;
    return word == 0x02020202 ? 0 : 5;
}

/* Why rings are whole blocks. */
static void small_allocations_may_share_a_block(void **state)
{
    uint64_t one = rig_allocate(&rig, SMALL, 1), other = rig_allocate(&rig, SMALL, 2);
    struct neighbours told = {.distance = (int64_t)(other - one)};
    struct peer peer;
    int status;

    (void)state;
    CHECK(&rig, cuIpcGetMemHandle(&told.handle, one));
    peer_start(&peer, "nosy_neighbour");
    peer_send(peer.socket, &told, sizeof(told), -1);
    status = peer_wait(&peer);
    assert_true(status == 0 || status == 5);
    rig_observe("ipc: a neighbour of 64 KiB in the same block", "%s", status == 0 ? "can be read" : "cannot be read");
    CHECK(&rig, cuMemFree(one));
    CHECK(&rig, cuMemFree(other));
}

/* --- in other PID namespaces, by other users */

struct answer {
    int ipc, vmm; /* results */
    uint32_t ipc_word, vmm_word;
};

/* Opens both kinds, as far as that goes, and says what came of it. */
static int opener(int socket)
{
    struct tsi_cu_ipc_handle handle;
    struct rig_mapping mapping;
    struct answer answer = {0};
    uint64_t memory, again;
    int fd;

    fd = peer_receive(socket, &handle, sizeof(handle));
    rig_open(&rig, 0);
    answer.ipc = rig.cuda.cuIpcOpenMemHandle(&memory, handle, TSI_CU_IPC_LAZY_PEER);
    if (answer.ipc == TSI_CU_SUCCESS) {
        rig_read(&rig, &answer.ipc_word, memory, sizeof(answer.ipc_word));
        CHECK(&rig, cuIpcCloseMemHandle(memory));
    }
    answer.vmm = TSI_CU_ERROR_NOT_SUPPORTED;
    if (fd >= 0)
        answer.vmm = rig.cuda.cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, TSI_CU_HANDLE_POSIX_FD);
    if (answer.vmm == TSI_CU_SUCCESS) {
        CHECK(&rig, cuMemRelease(again));
        rig_map(&rig, RIG_BLOCK, fd, TSI_CU_ACCESS_READ, &mapping);
        rig_read(&rig, &answer.vmm_word, mapping.address, sizeof(answer.vmm_word));
        rig_unmap(&rig, &mapping);
    }
    rig_close(&rig);
    peer_send(socket, &answer, sizeof(answer), -1);
    return 0;
}

/* The driver's files are found before, the driver is started after the change of user. */
static int stranger(int socket)
{
    const char *path = getenv("TSOCKET_LIBCUDA");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL || setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        return 2;
    return opener(socket);
}

static struct answer ask(void (*start)(struct peer *peer, const char *role), const char *role, bool vmm)
{
    uint64_t memory = rig_allocate(&rig, RIG_BLOCK, 1);
    struct tsi_cu_ipc_handle handle;
    struct rig_mapping mapping;
    struct answer answer;
    struct peer peer;
    int fd = -1;

    CHECK(&rig, cuIpcGetMemHandle(&handle, memory));
    if (vmm) {
        rig_map(&rig, RIG_BLOCK, -1, TSI_CU_ACCESS_READ_WRITE, &mapping);
        CHECK(&rig, cuMemsetD8Async(mapping.address, 2, RIG_BLOCK, rig.stream));
        CHECK(&rig, cuStreamSynchronize(rig.stream));
        CHECK(&rig, cuMemExportToShareableHandle(&fd, mapping.handle, TSI_CU_HANDLE_POSIX_FD, 0));
    }
    start(&peer, role);
    peer_send(peer.socket, &handle, sizeof(handle), fd);
    peer_receive(peer.socket, &answer, sizeof(answer));
    assert_int_equal(peer_wait(&peer), 0);
    if (vmm) {
        close(fd);
        rig_unmap(&rig, &mapping);
    }
    CHECK(&rig, cuMemFree(memory));
    return answer;
}

static bool can_vmm(void)
{
    int can = 0;

    return tsi_cuda_has_vmm(&rig.cuda) &&
           rig.cuda.cuDeviceGetAttribute(&can, TSI_CU_ATTRIBUTE_POSIX_FD, rig.device) == TSI_CU_SUCCESS && can != 0;
}

/* Where it was opened, what is in it has been read. */
static void report(const struct answer *answer, const char *who)
{
    char what[64];

    snprintf(what, sizeof(what), "ipc: from %s", who);
    rig_observe(what, "%s", rig_name_of(&rig, answer->ipc));
    snprintf(what, sizeof(what), "vmm: from %s", who);
    rig_observe(what, "%s", rig_name_of(&rig, answer->vmm));
    assert_int_equal(answer->ipc_word, answer->ipc == TSI_CU_SUCCESS ? 0x01010101 : 0);
    assert_int_equal(answer->vmm_word, answer->vmm == TSI_CU_SUCCESS ? 0x02020202 : 0);
}

static void descriptors_work_in_another_pid_namespace(void **state)
{
    struct answer answer;
    bool vmm = can_vmm();

    (void)state;
    if (!peer_can_start_apart()) {
        rig_observe("ipc: from another PID namespace", "not asked: unshare is not allowed here");
        skip();
    }
    answer = ask(peer_start_apart, "opener", vmm);
    report(&answer, "another PID namespace");
    if (vmm)
        assert_int_equal(answer.vmm, TSI_CU_SUCCESS);
}

static void descriptors_work_for_another_user(void **state)
{
    struct answer answer;
    bool vmm = can_vmm();

    (void)state;
    if (geteuid() != 0) {
        rig_observe("ipc: from another user", "not asked: only root can become one");
        skip();
    }
    answer = ask(peer_start, "stranger", vmm);
    report(&answer, "another user");
    if (vmm)
        assert_int_equal(answer.vmm, TSI_CU_SUCCESS);
}

/* --- the exporter dies */

static size_t free_bytes(void)
{
    size_t free_now, total;

    CHECK(&rig, cuMemGetInfo(&free_now, &total));
    return free_now;
}

/* Shares LARGE bytes, by a descriptor if it is told so, until it is killed. */
static int mortal(int socket)
{
    struct tsi_cu_ipc_handle handle = {{0}};
    struct rig_mapping mapping;
    uint64_t memory;
    int fd = -1;
    char vmm;

    peer_receive(socket, &vmm, 1);
    rig_open(&rig, 0);
    if (vmm) {
        rig_map(&rig, LARGE, -1, TSI_CU_ACCESS_READ_WRITE, &mapping);
        memory = mapping.address;
        CHECK(&rig, cuMemExportToShareableHandle(&fd, mapping.handle, TSI_CU_HANDLE_POSIX_FD, 0));
    } else {
        CHECK(&rig, cuMemAlloc(&memory, LARGE));
        CHECK(&rig, cuIpcGetMemHandle(&handle, memory));
    }
    CHECK(&rig, cuMemsetD8Async(memory, 3, LARGE, rig.stream));
    CHECK(&rig, cuStreamSynchronize(rig.stream));
    peer_send(socket, &handle, sizeof(handle), fd);
    return peer_receive(socket, &(char){0}, 1);
}

static void expect_threes(uint64_t memory)
{
    uint32_t word;

    rig_read(&rig, &word, memory + LARGE - sizeof(word), sizeof(word));
    assert_int_equal(word, 0x03030303);
}

static void outlive(bool vmm)
{
    size_t before = free_bytes(), held, dead;
    struct tsi_cu_ipc_handle handle;
    struct rig_mapping mapping;
    struct peer peer;
    uint64_t memory;
    int fd;

    peer_start(&peer, "mortal");
    peer_send(peer.socket, &(char){vmm}, 1, -1);
    fd = peer_receive(peer.socket, &handle, sizeof(handle));
    if (vmm) {
        rig_map(&rig, LARGE, fd, TSI_CU_ACCESS_READ, &mapping);
        close(fd);
        memory = mapping.address;
    } else {
        CHECK(&rig, cuIpcOpenMemHandle(&memory, handle, TSI_CU_IPC_LAZY_PEER));
    }
    held = free_bytes();
    expect_threes(memory);
    kill(peer.pid, SIGKILL);
    assert_int_equal(peer_wait(&peer), 128 + SIGKILL);
    expect_threes(memory);
    dead = free_bytes();
    if (vmm)
        rig_unmap(&rig, &mapping);
    else
        CHECK(&rig, cuIpcCloseMemHandle(memory));
    rig_observe(vmm ? "vmm: free MiB before, shared, exporter dead, closed"
                    : "ipc: free MiB before, shared, exporter dead, closed",
                "%zu %zu %zu %zu", before / MIB, held / MIB, dead / MIB, free_bytes() / MIB);
}

static void ipc_memory_outlives_its_killed_exporter(void **state)
{
    (void)state;
    outlive(false);
}

static void vmm_memory_outlives_its_killed_exporter(void **state)
{
    (void)state;
    if (!can_vmm())
        skip();
    outlive(true);
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {
        {"nosy_neighbour", nosy_neighbour},
        {"opener", opener},
        {"stranger", stranger},
        {"mortal", mortal},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_handle_of_an_address_inside_is_refused_or_the_base_s),
        cmocka_unit_test(memory_of_whole_blocks_shares_none),
        cmocka_unit_test(small_allocations_may_share_a_block),
        cmocka_unit_test(descriptors_work_in_another_pid_namespace),
        cmocka_unit_test(descriptors_work_for_another_user),
        cmocka_unit_test(ipc_memory_outlives_its_killed_exporter),
        cmocka_unit_test(vmm_memory_outlives_its_killed_exporter),
    };

    peer_main(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));
    rig_open(&rig, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
