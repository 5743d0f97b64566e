/* SPDX-License-Identifier: Apache-2.0 */
/* Devices by every name they have, and what fails on the way to an arena; three simulated devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <tsocket/tsocket.h>

#include "ipc/cuda_arena.h"
#include "ipc/device.h"
#include "peer.h"
#include "simcuda.h"

enum {
    BYTES = 3000000,
};

static const char second[] = "GPU-73696d75-6c61-7465-6420-475055200001";

static void says(const char *text)
{
    if (strstr(tsocket_last_error(), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", tsocket_last_error(), text);
}

static void every_name_finds_its_device(void **state)
{
    static const struct {
        const char *name;
        int number;
    } cases[] = {{"cuda", 0},
                 {"cuda:0", 0},
                 {"cuda:2", 2},
                 {"cuda:GPU-73696d75-6c61-7465-6420-475055200001", 1},
                 {"cuda:MIG-73696D75-6C61-7465-6420-475055200002", 2}};
    struct tsi_device device;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(tsi_device_open(cases[i].name, &device), TSOCKET_OK);
        assert_int_equal(device.number, cases[i].number);
        tsi_device_close(&device);
    }
    assert_int_equal(simcuda_live(), 0);
}

static void a_uuid_is_written_as_it_is_read(void **state)
{
    struct tsi_device device, again;

    (void)state;
    assert_int_equal(tsi_device_open("cuda:1", &device), TSOCKET_OK);
    assert_string_equal(device.uuid_text, second);
    assert_int_equal(tsi_device_open_uuid(&device.uuid, &again), TSOCKET_OK);
    assert_int_equal(again.number, 1);
    tsi_device_close(&again);
    tsi_device_close(&device);
}

static void a_wrong_name_is_told(void **state)
{
    static const struct {
        const char *name;
        int rc;
        const char *text;
    } cases[] = {
        {"gpu", TSOCKET_EINVAL, "\"gpu\": cuda, cuda:N or cuda:GPU-UUID"},
        {"cuda:", TSOCKET_EINVAL, "\"cuda:\""},
        {"cuda:-1", TSOCKET_EINVAL, "\"cuda:-1\""},
        {"cuda:1x", TSOCKET_EINVAL, "\"cuda:1x\""},
        {"cuda:3", TSOCKET_ENOTFOUND, "no device cuda:3: the driver shows cuda:0 to cuda:2"},
        {"cuda:99999999999999999999", TSOCKET_ENOTFOUND, "cuda:0 to cuda:2"},
        {"cuda:GPU-73696d75-6c61-7465-6420-4750552000", TSOCKET_EINVAL, "\"cuda:GPU-"},
        {"cuda:GPU-73696d75-6c61-7465-6420+475055200001", TSOCKET_EINVAL, "\"cuda:GPU-"},
        {"cuda:GPU-00000000-0000-0000-0000-000000000000", TSOCKET_ENOTFOUND, "does not see the device GPU-00000000"},
    };
    struct tsi_device device;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(tsi_device_open(cases[i].name, &device), cases[i].rc);
        says(cases[i].text);
    }
    assert_int_equal(simcuda_live(), 0);
}

static void a_list_opens_all_or_nothing(void **state)
{
    struct tsi_devices devices;

    (void)state;
    assert_int_equal(tsi_devices_open("cuda:1,host,cuda:0", &devices), TSOCKET_OK);
    assert_int_equal(devices.count, 2);
    assert_int_equal(devices.device[0].number, 1);
    assert_true(devices.host);
    tsi_devices_close(&devices);
    assert_int_equal(tsi_devices_open("cuda:1,cuda:GPU-73696d75-6c61-7465-6420-475055200001", &devices),
                     TSOCKET_EINVAL);
    says("is there twice");
    assert_int_equal(tsi_devices_open("host,cuda:7", &devices), TSOCKET_ENOTFOUND);
    assert_int_equal(tsi_devices_open("cuda,", &devices), TSOCKET_EINVAL);
    assert_int_equal(simcuda_live(), 0);
}

static void auto_takes_a_gpu_or_says_why_not(void **state)
{
    struct tsi_devices devices;

    (void)state;
    assert_int_equal(tsi_devices_open("auto", &devices), TSOCKET_OK);
    assert_int_equal(devices.count, 1);
    assert_false(devices.host);
    assert_string_equal(devices.why, "");
    tsi_devices_close(&devices);
    simcuda_fail("cuDevicePrimaryCtxRetain", 1, TSI_CU_ERROR_OUT_OF_MEMORY);
    assert_int_equal(tsi_devices_open("auto", &devices), TSOCKET_OK);
    assert_int_equal(devices.count, 0);
    assert_true(devices.host);
    assert_non_null(strstr(devices.why, "CUDA_ERROR_OUT_OF_MEMORY"));
    tsi_devices_close(&devices);
}

/* --- arenas */

static void too_large_an_arena_is_told_with_both_numbers(void **state)
{
    static const enum tsi_share shares[] = {TSI_SHARE_AUTO, TSI_SHARE_VMM, TSI_SHARE_IPC};
    struct tsi_device device;
    struct tsi_arena arena;

    (void)state;
    assert_int_equal(tsi_device_open("cuda", &device), TSOCKET_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tsi_cuda_arena_create(&device, shares[i], UINT64_C(5) << 30, &arena), TSOCKET_ENOMEM);
        says("needs 5368709120 bytes on Simulated GPU (GPU-73696d75-");
        says("1073741824 of 1073741824 are free");
    }
    assert_int_equal(tsi_cuda_arena_create(&device, TSI_SHARE_AUTO, 0, &arena), TSOCKET_EINVAL);
    tsi_device_close(&device);
    assert_int_equal(simcuda_live(), 0);
}

static void auto_falls_back_to_ipc(void **state)
{
    struct tsi_device device;
    struct tsi_arena arena;

    (void)state;
    assert_int_equal(tsi_device_open("cuda", &device), TSOCKET_OK);
    simcuda_fail("cuMemExportToShareableHandle", 1, TSI_CU_ERROR_NOT_SUPPORTED);
    assert_int_equal(tsi_cuda_arena_create(&device, TSI_SHARE_AUTO, BYTES, &arena), TSOCKET_OK);
    assert_int_equal(arena.kind, TSI_ARENA_CUDA_IPC);
    tsi_arena_close(&arena);
    device.cuda.cuMemCreate = NULL; /* a driver from before virtual memory management */
    assert_int_equal(tsi_cuda_arena_create(&device, TSI_SHARE_AUTO, BYTES, &arena), TSOCKET_OK);
    assert_int_equal(arena.kind, TSI_ARENA_CUDA_IPC);
    tsi_arena_close(&arena);
    assert_int_equal(tsi_cuda_arena_create(&device, TSI_SHARE_VMM, BYTES, &arena), TSOCKET_EINVAL);
    says("use --share ipc or auto");
    tsi_device_close(&device);
    assert_int_equal(simcuda_live(), 0);
}

static int make_and_close(enum tsi_share share)
{
    struct tsi_device device;
    struct tsi_arena arena;
    struct tsi_arena_ticket ticket;
    int rc = tsi_device_open("cuda:1", &device);

    if (rc != TSOCKET_OK)
        return rc;
    rc = tsi_cuda_arena_create(&device, share, BYTES, &arena);
    if (rc != TSOCKET_OK)
        goto close_device;
    rc = tsi_cuda_arena_ticket(&arena, &ticket);
    tsi_arena_close(&arena);
close_device:
    tsi_device_close(&device);
    return rc;
}

static unsigned descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    unsigned n = 0;

    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

/*
 * IPC memory cannot be given back where the context cannot be made current: it is broken then, and the memory goes with
 * the process. Everything else has to be gone.
 */
static bool is_clean(enum tsi_arena_kind kind, unsigned long *lost)
{
    if (kind == TSI_ARENA_CUDA_IPC && simcuda_live() == *lost + 1 &&
        strcmp(simcuda_failed(), "cuCtxPushCurrent_v2") == 0)
        ++*lost;
    return simcuda_live() == *lost;
}

/* The k-th call of the driver fails, for every k: the name of the error is told and nothing is left. */
static void every_failing_call_is_undone(void **state)
{
    static const enum tsi_share shares[] = {TSI_SHARE_VMM, TSI_SHARE_IPC};
    static const enum tsi_arena_kind kinds[] = {TSI_ARENA_CUDA_VMM, TSI_ARENA_CUDA_IPC};
    unsigned long calls, lost = 0;
    unsigned open_before = descriptors();

    (void)state;
    for (int i = 0; i < 2; i++) {
        calls = simcuda_calls("*");
        assert_int_equal(make_and_close(shares[i]), TSOCKET_OK);
        calls = simcuda_calls("*") - calls;
        for (unsigned long k = 1; k <= calls; k++) {
            simcuda_fail("*", k, TSI_CU_ERROR_LAUNCH_FAILED);
            if (make_and_close(shares[i]) != TSOCKET_OK && strncmp(simcuda_failed(), "cuDeviceGetAttribute", 20) != 0)
                says("CUDA_ERROR_LAUNCH_FAILED (719)");
            if (!is_clean(kinds[i], &lost))
                fail_msg("%s, call %lu of %lu: %lu things are left", simcuda_failed(), k, calls, simcuda_live());
        }
    }
    assert_int_equal(lost, 1);
    assert_int_equal(descriptors(), open_before + lost); /* the simulated memory of what is lost is a descriptor */
    simcuda_fail("*", 0, TSI_CU_SUCCESS);
}

/* --- the consumer's side of the same, in another process */

struct message {
    struct tsi_arena_ticket ticket;
};

static int map_and_close(const struct message *message, int fd)
{
    struct tsi_device device;
    struct tsi_arena arena;
    int rc = tsi_device_open_uuid(&message->ticket.uuid, &device);

    if (rc != TSOCKET_OK)
        return rc;
    rc = tsi_cuda_arena_map(&device, &message->ticket, fd, BYTES, &arena);
    if (rc == TSOCKET_OK)
        tsi_arena_close(&arena);
    tsi_device_close(&device);
    return rc;
}

static int mapper(int socket)
{
    struct message message;
    int fd = peer_receive(socket, &message, sizeof(message));
    unsigned long calls, lost = 0;

    if (map_and_close(&message, fd) != TSOCKET_OK)
        return 2;
    calls = simcuda_calls("*");
    if (map_and_close(&message, fd) != TSOCKET_OK)
        return 3;
    calls = simcuda_calls("*") - calls;
    for (unsigned long k = 1; k <= calls; k++) {
        simcuda_fail("*", k, TSI_CU_ERROR_LAUNCH_FAILED);
        map_and_close(&message, fd);
        if (!is_clean(message.ticket.kind, &lost)) {
            print_error("%s, call %lu of %lu: %lu things are left\n", simcuda_failed(), k, calls, simcuda_live());
            return 4;
        }
    }
    return 0;
}

static void every_failing_call_of_a_consumer_is_undone(void **state)
{
    static const enum tsi_share shares[] = {TSI_SHARE_VMM, TSI_SHARE_IPC};
    struct tsi_device device;
    struct tsi_arena arena;
    struct message message;
    struct peer peer;

    (void)state;
    assert_int_equal(tsi_device_open("cuda:2", &device), TSOCKET_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tsi_cuda_arena_create(&device, shares[i], BYTES, &arena), TSOCKET_OK);
        assert_int_equal(tsi_cuda_arena_ticket(&arena, &message.ticket), TSOCKET_OK);
        setenv("CUDA_VISIBLE_DEVICES", "2,1", 1); /* it has another number there */
        peer_start(&peer, "mapper");
        unsetenv("CUDA_VISIBLE_DEVICES");
        peer_send(peer.socket, &message, sizeof(message), arena.fd);
        assert_int_equal(peer_wait(&peer), 0);
        tsi_arena_close(&arena);
    }
    tsi_device_close(&device);
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {{"mapper", mapper}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_finds_its_device),
        cmocka_unit_test(a_uuid_is_written_as_it_is_read),
        cmocka_unit_test(a_wrong_name_is_told),
        cmocka_unit_test(a_list_opens_all_or_nothing),
        cmocka_unit_test(auto_takes_a_gpu_or_says_why_not),
        cmocka_unit_test(too_large_an_arena_is_told_with_both_numbers),
        cmocka_unit_test(auto_falls_back_to_ipc),
        cmocka_unit_test(every_failing_call_is_undone),
        cmocka_unit_test(every_failing_call_of_a_consumer_is_undone),
    };

    setenv("SIMCUDA_DEVICES", "3", 1);
    peer_main(argc, argv, roles, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
