/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tsocket/tsocket.h>

#include "consumer/places.h"
#include "ipc/device.h"
#include "ipc/ticket.h"

static struct tsi_arena_ticket example(enum tsi_arena_kind kind)
{
    struct tsi_arena_ticket ticket = {.kind = kind};

    if (kind == TSI_ARENA_HOST)
        return ticket;
    ticket.bytes = UINT64_C(1) << 46;
    assert_true(tsi_uuid_parse("GPU-00112233-4455-6677-8899-aabbccddeeff", &ticket.uuid));
    ticket.pid = 4194303;
    ticket.pid_namespace = UINT32_MAX;
    ticket.address = UINT64_MAX;
    if (kind == TSI_ARENA_CUDA_IPC)
        memset(ticket.handle.reserved, 0xfe, sizeof(ticket.handle.reserved));
    return ticket;
}

static void a_ticket_comes_back_as_it_was(void **state)
{
    (void)state;
    for (int kind = TSI_ARENA_HOST; kind <= TSI_ARENA_CUDA_VMM; kind++) {
        struct tsi_arena_ticket ticket = example((enum tsi_arena_kind)kind), again;
        char text[TSI_TICKET_MAX];

        tsi_ticket_pack(&ticket, text);
        assert_int_equal(tsi_ticket_unpack(text, &again), TSOCKET_OK);
        assert_int_equal(again.kind, kind);
        assert_int_equal(again.bytes, ticket.bytes);
        assert_memory_equal(&again.uuid, &ticket.uuid, sizeof(ticket.uuid));
        assert_true(again.pid == ticket.pid && again.pid_namespace == ticket.pid_namespace);
        assert_int_equal(again.address, ticket.address);
        assert_memory_equal(&again.handle, &ticket.handle, sizeof(ticket.handle));
    }
}

static void what_is_no_ticket_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "Host",
        "host ",
        "cuda-vmm",
        "cuda-vmm GPU-00112233-4455-6677-8899-aabbccddeeff 1 2 3",
        "cuda-vmm GPU-00112233-4455-6677-8899-aabbccddeeff 1 2 3 4 5",
        "cuda-vmm GPU-00112233-4455-6677-8899-aabbccddeef 1 2 3 4",
        "cuda-vmm GPU-00112233-4455-6677-8899-aabbccddeeff -1 2 3 4",
        "cuda-vmm GPU-00112233-4455-6677-8899-aabbccddeeff 1fffffffffffffffff 2 3 4",
        "cuda-ipc GPU-00112233-4455-6677-8899-aabbccddeeff 1 2 3 4",
        "cuda-ipc GPU-00112233-4455-6677-8899-aabbccddeeff 1 2 3 4 00",
        "cuda-xyz GPU-00112233-4455-6677-8899-aabbccddeeff 1 2 3 4",
    };
    struct tsi_arena_ticket ticket;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (tsi_ticket_unpack(texts[i], &ticket) != TSOCKET_EPROTOCOL)
            fail_msg("\"%s\" is taken", texts[i]);
    }
}

static void a_list_of_devices_has_one_form(void **state)
{
    static const char *const good[] = {"auto",        "host",          "cuda",
                                       "cuda:0,host", "cuda:1,cuda:2", "cuda:GPU-00112233-4455-6677-8899-aabbccddeeff"};
    static const char *const bad[] = {"", "auto,host", "gpu", "cuda:", "cuda:x", "host,", ",host", "cuda:-1"};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(tsi_devices_ok(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(tsi_devices_ok(bad[i]));
}

/* The driver is not even looked for. */
static void where_the_daemon_has_no_gpu_ring_host_memory_is_asked_for(void **state)
{
    static const char *const devices[] = {"", "host", "cuda", "cuda:3"};
    char list[TSI_DEVICE_LIST_MAX];

    (void)state;
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        assert_true(tsc_places_ok(devices[i]));
        assert_int_equal(tsc_places_list(devices[i], false, list), TSOCKET_OK);
        assert_string_equal(list, "host");
    }
    assert_false(tsc_places_ok("gpu:0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ticket_comes_back_as_it_was),
        cmocka_unit_test(what_is_no_ticket_is_refused),
        cmocka_unit_test(a_list_of_devices_has_one_form),
        cmocka_unit_test(where_the_daemon_has_no_gpu_ring_host_memory_is_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
