/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tsocket relies on in a CUDA driver, as tests: the same program runs on the simulated driver and on a real one.
 * Where they differ, the simulated one is wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "peer.h"
#include "rig.h"

enum {
    WORDS = 1 << 16,
    BYTES = WORDS * 4,
};

static struct rig rig;

static uint32_t *pinned(void)
{
    uint32_t *host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(host, MAP_FAILED);
    CHECK(&rig, cuMemHostRegister(host, BYTES, TSI_CU_HOST_PORTABLE));
    return host;
}

static void unpin(uint32_t *host)
{
    CHECK(&rig, cuMemHostUnregister(host));
    munmap(host, BYTES);
}

static uint64_t allocate(size_t bytes)
{
    uint64_t address;

    CHECK(&rig, cuMemAlloc(&address, bytes));
    return address;
}

static void a_device_has_a_name_and_a_uuid(void **state)
{
    struct tsi_cu_uuid uuid, zero = {{0}};
    char name[128];
    int version;

    (void)state;
    CHECK(&rig, cuDriverGetVersion(&version));
    CHECK(&rig, cuDeviceGetName(name, sizeof(name), rig.device));
    CHECK(&rig, cuDeviceGetUuid(&uuid, rig.device));
    assert_true(version >= 11000);
    assert_true(name[0] != '\0');
    assert_memory_not_equal(&uuid, &zero, sizeof(uuid));
    print_message("%s, driver %d\n", name, version);
}

static void what_is_copied_in_comes_back_after_the_event(void **state)
{
    uint64_t memory = allocate(BYTES);
    uint32_t *in = pinned(), *out = pinned();
    struct tsi_cu_event *event;

    (void)state;
    for (uint32_t i = 0; i < WORDS; i++)
        in[i] = i * 2654435761u;
    CHECK(&rig, cuEventCreate(&event, TSI_CU_EVENT_BLOCKING_SYNC | TSI_CU_EVENT_DISABLE_TIMING));
    CHECK(&rig, cuMemcpyHtoDAsync(memory, in, BYTES, rig.stream));
    CHECK(&rig, cuMemcpyDtoHAsync(out, memory, BYTES, rig.stream));
    CHECK(&rig, cuEventRecord(event, rig.stream));
    CHECK(&rig, cuEventSynchronize(event));
    assert_int_equal(rig.cuda.cuEventQuery(event), TSI_CU_SUCCESS);
    assert_memory_equal(in, out, BYTES);
    CHECK(&rig, cuEventDestroy(event));
    unpin(in);
    unpin(out);
    CHECK(&rig, cuMemFree(memory));
}

static void an_event_that_was_never_recorded_has_passed(void **state)
{
    struct tsi_cu_event *event;

    (void)state;
    CHECK(&rig, cuEventCreate(&event, TSI_CU_EVENT_DISABLE_TIMING));
    assert_int_equal(rig.cuda.cuEventQuery(event), TSI_CU_SUCCESS);
    CHECK(&rig, cuEventDestroy(event));
}

static void an_event_between_processes_has_no_timing(void **state)
{
    struct tsi_cu_event *event;

    (void)state;
    assert_int_equal(rig.cuda.cuEventCreate(&event, TSI_CU_EVENT_INTERPROCESS), TSI_CU_ERROR_INVALID_VALUE);
}

static void a_stream_waits_for_another_ones_event(void **state)
{
    uint64_t memory = allocate(BYTES);
    struct tsi_cu_stream *other;
    struct tsi_cu_event *event;
    uint32_t *out = pinned();

    (void)state;
    CHECK(&rig, cuStreamCreate(&other, TSI_CU_STREAM_NON_BLOCKING));
    CHECK(&rig, cuEventCreate(&event, TSI_CU_EVENT_DISABLE_TIMING));
    CHECK(&rig, cuMemsetD8Async(memory, 0x5a, BYTES, other));
    CHECK(&rig, cuEventRecord(event, other));
    CHECK(&rig, cuStreamWaitEvent(rig.stream, event, 0));
    rig_read(&rig, out, memory, BYTES);
    assert_int_equal(out[0], 0x5a5a5a5a);
    assert_int_equal(out[WORDS - 1], 0x5a5a5a5a);
    CHECK(&rig, cuEventDestroy(event));
    CHECK(&rig, cuStreamDestroy(other));
    unpin(out);
    CHECK(&rig, cuMemFree(memory));
}

static void a_kernel_reads_and_writes_device_memory(void **state)
{
    uint64_t memory = allocate(BYTES);
    uint32_t *host = pinned();
    uint32_t expected = 0, sum;

    (void)state;
    for (uint32_t i = 0; i < WORDS; i++)
        expected += host[i] = i * i;
    rig_write(&rig, memory, host, BYTES);
    rig_sum(&rig, memory, WORDS, memory);
    rig_read(&rig, &sum, memory, sizeof(sum));
    assert_int_equal(sum, expected);
    unpin(host);
    CHECK(&rig, cuMemFree(memory));
}

static void *allocate_without_a_context(void *result)
{
    uint64_t address;

    *(int *)result = rig.cuda.cuMemAlloc(&address, BYTES);
    return NULL;
}

static void a_thread_without_a_context_is_refused(void **state)
{
    pthread_t thread;
    int result;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, allocate_without_a_context, &result), 0);
    pthread_join(thread, NULL);
    assert_int_equal(result, TSI_CU_ERROR_INVALID_CONTEXT);
}

static void the_child_of_a_fork_has_no_driver(void **state)
{
    int status;
    pid_t pid = fork();

    (void)state;
    if (pid == 0)
        _exit(rig.cuda.cuInit(0));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), TSI_CU_ERROR_NOT_INITIALIZED);
}

static void memory_of_the_own_process_is_not_opened(void **state)
{
    uint64_t memory = allocate(RIG_BLOCK), again;
    struct tsi_cu_ipc_handle handle;

    (void)state;
    CHECK(&rig, cuIpcGetMemHandle(&handle, memory));
    assert_int_equal(rig.cuda.cuIpcOpenMemHandle(&again, handle, TSI_CU_IPC_LAZY_PEER), TSI_CU_ERROR_INVALID_CONTEXT);
    CHECK(&rig, cuMemFree(memory));
}

/* --- with a second process */

/* Opens what it is told, twice, checks that it is 1 everywhere, writes 2, closes it. */
static int ipc_importer(int socket)
{
    struct tsi_cu_ipc_handle handle;
    uint64_t memory, again;
    uint32_t word;

    peer_receive(socket, &handle, sizeof(handle));
    rig_open(&rig, 0);
    CHECK(&rig, cuIpcOpenMemHandle(&memory, handle, TSI_CU_IPC_LAZY_PEER));
    CHECK(&rig, cuIpcOpenMemHandle(&again, handle, TSI_CU_IPC_LAZY_PEER));
    rig_read(&rig, &word, memory + RIG_BLOCK - sizeof(word), sizeof(word));
    if (memory != again || word != 0x01010101)
        return 2;
    CHECK(&rig, cuMemsetD8Async(memory, 2, RIG_BLOCK, rig.stream));
    CHECK(&rig, cuStreamSynchronize(rig.stream));
    CHECK(&rig, cuIpcCloseMemHandle(memory));
    CHECK(&rig, cuIpcCloseMemHandle(memory));
    rig_close(&rig);
    return 0;
}

static void another_process_reads_and_writes_by_ipc_handle(void **state)
{
    uint64_t memory = allocate(RIG_BLOCK);
    struct tsi_cu_ipc_handle handle;
    struct peer peer;
    uint32_t word;

    (void)state;
    CHECK(&rig, cuMemsetD8Async(memory, 1, RIG_BLOCK, rig.stream));
    CHECK(&rig, cuStreamSynchronize(rig.stream));
    CHECK(&rig, cuIpcGetMemHandle(&handle, memory));
    peer_start(&peer, "ipc_importer");
    peer_send(peer.socket, &handle, sizeof(handle), -1);
    assert_int_equal(peer_wait(&peer), 0);
    rig_read(&rig, &word, memory + RIG_BLOCK - sizeof(word), sizeof(word));
    assert_int_equal(word, 0x02020202);
    CHECK(&rig, cuMemFree(memory));
}

/* Reads through a read-only mapping, then writes: its own context must break, nobody else's memory. */
static int vmm_importer(int socket)
{
    struct rig_mapping mapping;
    uint32_t word;
    int fd;

    fd = peer_receive(socket, &(char){0}, 1);
    rig_open(&rig, 0);
    rig_map(&rig, RIG_BLOCK, fd, TSI_CU_ACCESS_READ, &mapping);
    close(fd);
    rig_read(&rig, &word, mapping.address, sizeof(word));
    if (word != 0x01010101)
        return 2;
    rig_store(&rig, mapping.address, 7);
    return rig.cuda.cuStreamSynchronize(rig.stream) == TSI_CU_ERROR_ILLEGAL_ADDRESS &&
                   rig.cuda.cuStreamSynchronize(rig.stream) == TSI_CU_ERROR_ILLEGAL_ADDRESS
               ? 0
               : 3;
}

static void vmm_memory_is_read_only_where_it_is_mapped_so(void **state)
{
    struct rig_mapping mapping;
    struct peer peer;
    uint32_t word;
    int fd;

    (void)state;
    if (!tsi_cuda_has_vmm(&rig.cuda))
        skip();
    rig_map(&rig, RIG_BLOCK, -1, TSI_CU_ACCESS_READ_WRITE, &mapping);
    CHECK(&rig, cuMemsetD8Async(mapping.address, 1, RIG_BLOCK, rig.stream));
    CHECK(&rig, cuStreamSynchronize(rig.stream));
    CHECK(&rig, cuMemExportToShareableHandle(&fd, mapping.handle, TSI_CU_HANDLE_POSIX_FD, 0));
    peer_start(&peer, "vmm_importer");
    peer_send(peer.socket, "", 1, fd);
    close(fd);
    assert_int_equal(peer_wait(&peer), 0);
    rig_read(&rig, &word, mapping.address, sizeof(word));
    assert_int_equal(word, 0x01010101);
    rig_unmap(&rig, &mapping);
}

static int ipc_exporter(int socket)
{
    struct tsi_cu_ipc_handle handle;
    uint64_t memory;

    rig_open(&rig, 0);
    memory = allocate(RIG_BLOCK);
    CHECK(&rig, cuMemsetD8Async(memory, 3, RIG_BLOCK, rig.stream));
    CHECK(&rig, cuStreamSynchronize(rig.stream));
    CHECK(&rig, cuIpcGetMemHandle(&handle, memory));
    peer_send(socket, &handle, sizeof(handle), -1);
    return peer_receive(socket, &(char){0}, 1); /* until it is killed */
}

static void an_open_mapping_outlives_the_exporter(void **state)
{
    struct tsi_cu_ipc_handle handle;
    struct peer peer;
    uint64_t memory;
    uint32_t word;

    (void)state;
    peer_start(&peer, "ipc_exporter");
    peer_receive(peer.socket, &handle, sizeof(handle));
    CHECK(&rig, cuIpcOpenMemHandle(&memory, handle, TSI_CU_IPC_LAZY_PEER));
    kill(peer.pid, SIGKILL);
    assert_int_equal(peer_wait(&peer), 128 + SIGKILL);
    rig_read(&rig, &word, memory, sizeof(word));
    assert_int_equal(word, 0x03030303);
    CHECK(&rig, cuIpcCloseMemHandle(memory));
    assert_int_not_equal(rig.cuda.cuIpcOpenMemHandle(&memory, handle, TSI_CU_IPC_LAZY_PEER), TSI_CU_SUCCESS);
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {
        {"ipc_importer", ipc_importer},
        {"vmm_importer", vmm_importer},
        {"ipc_exporter", ipc_exporter},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_has_a_name_and_a_uuid),
        cmocka_unit_test(what_is_copied_in_comes_back_after_the_event),
        cmocka_unit_test(an_event_that_was_never_recorded_has_passed),
        cmocka_unit_test(an_event_between_processes_has_no_timing),
        cmocka_unit_test(a_stream_waits_for_another_ones_event),
        cmocka_unit_test(a_kernel_reads_and_writes_device_memory),
        cmocka_unit_test(a_thread_without_a_context_is_refused),
        cmocka_unit_test(the_child_of_a_fork_has_no_driver),
        cmocka_unit_test(memory_of_the_own_process_is_not_opened),
        cmocka_unit_test(another_process_reads_and_writes_by_ipc_handle),
        cmocka_unit_test(vmm_memory_is_read_only_where_it_is_mapped_so),
        cmocka_unit_test(an_open_mapping_outlives_the_exporter),
    };

    peer_main(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));
    rig_open(&rig, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
