/* SPDX-License-Identifier: Apache-2.0 */
/* The arenas in GPU memory, between two processes; for both drivers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include <tsocket/tsocket.h>

#include "ipc/cuda_arena.h"
#include "peer.h"
#include "rig.h"

enum {
    BYTES = 3000000, /* no whole number of blocks */
};

static struct rig rig;
static struct tsi_device device;

/* What the daemon tells its consumer. */
struct message {
    struct tsi_arena_ticket ticket;
    uint32_t expected;
};

static uint64_t address_of(const struct tsi_arena *arena)
{
    return (uintptr_t)arena->base;
}

static void prepare(void)
{
    rig_open(&rig, 0);
    if (tsi_device_open("cuda", &device) != TSOCKET_OK) {
        print_error("%s\n", tsocket_last_error());
        exit(1);
    }
}

static struct tsi_arena create(enum tsi_share share)
{
    struct tsi_arena arena = {.fd = -1};

    if (tsi_cuda_arena_create(&device, share, BYTES, &arena) != TSOCKET_OK)
        fail_msg("%s", tsocket_last_error());
    return arena;
}

static uint32_t last_word(const struct tsi_arena *arena)
{
    uint32_t word;

    rig_read(&rig, &word, address_of(arena) + BYTES - sizeof(word), sizeof(word));
    return word;
}

/* --- the consumer's process */

static int map(int socket, struct tsi_arena *arena_out, uint32_t *expected_out)
{
    struct message message;
    int rc, fd = peer_receive(socket, &message, sizeof(message));

    prepare();
    rc = tsi_cuda_arena_map(&device, &message.ticket, fd, BYTES, arena_out);
    if (rc != TSOCKET_OK)
        print_error("%s\n", tsocket_last_error());
    if (fd >= 0)
        close(fd);
    *expected_out = message.expected;
    return rc;
}

/* Reads what was there before it came, and what came later. */
static int reader(int socket)
{
    struct tsi_arena arena;
    uint32_t expected;

    if (map(socket, &arena, &expected) != TSOCKET_OK)
        return 2;
    if (last_word(&arena) != expected)
        return 3;
    peer_send(socket, "", 1, -1);
    peer_receive(socket, &expected, sizeof(expected));
    if (last_word(&arena) != expected)
        return 4;
    tsi_arena_close(&arena);
    tsi_device_close(&device);
    rig_close(&rig);
    return 0;
}

/* Writes to it by a kernel. Status 0: it cannot; 5: it can. */
static int writer(int socket)
{
    struct tsi_arena arena;
    uint32_t expected;

    if (map(socket, &arena, &expected) != TSOCKET_OK)
        return 2;
    rig_store(&rig, address_of(&arena), 12345);
    return rig.cuda.cuStreamSynchronize(rig.stream) == TSI_CU_ERROR_ILLEGAL_ADDRESS ? 0 : 5;
}

/* Maps, and has its daemon die. */
static int survivor(int socket)
{
    struct tsi_arena arena;
    uint32_t expected;
    char byte;

    if (map(socket, &arena, &expected) != TSOCKET_OK)
        return 2;
    peer_send(socket, "", 1, -1);
    peer_receive(socket, &byte, 1);
    return last_word(&arena) == expected ? 0 : 3;
}

/* --- the daemon's */

static void start(struct peer *peer, const char *role, const struct tsi_arena *arena, uint32_t expected)
{
    struct message message = {.expected = expected};

    if (tsi_cuda_arena_ticket(arena, &message.ticket) != TSOCKET_OK)
        fail_msg("%s", tsocket_last_error());
    peer_start(peer, role);
    peer_send(peer->socket, &message, sizeof(message), arena->fd);
}

static void set(const struct tsi_arena *arena, unsigned char value)
{
    CHECK(&rig, cuMemsetD8Async(address_of(arena), value, BYTES, rig.stream));
    CHECK(&rig, cuStreamSynchronize(rig.stream));
}

static void shows_what_the_daemon_writes(enum tsi_share share)
{
    struct tsi_arena arena = create(share);
    uint32_t later = 0x09090909;
    struct peer peer;
    char byte;

    start(&peer, "reader", &arena, 0); /* new memory is clear */
    peer_receive(peer.socket, &byte, 1);
    set(&arena, 9);
    peer_send(peer.socket, &later, sizeof(later), -1);
    assert_int_equal(peer_wait(&peer), 0);
    tsi_arena_close(&arena);
    assert_int_equal(arena.fd, -1);
}

static void ipc_memory_shows_what_the_daemon_writes(void **state)
{
    (void)state;
    shows_what_the_daemon_writes(TSI_SHARE_IPC);
}

static void vmm_memory_shows_what_the_daemon_writes(void **state)
{
    (void)state;
    if (!tsi_cuda_has_vmm(&device.cuda))
        skip();
    shows_what_the_daemon_writes(TSI_SHARE_VMM);
}

static void vmm_memory_cannot_be_written_by_a_consumer(void **state)
{
    struct tsi_arena arena;
    struct peer peer;
    uint32_t word;

    (void)state;
    if (!tsi_cuda_has_vmm(&device.cuda))
        skip();
    arena = create(TSI_SHARE_VMM);
    start(&peer, "writer", &arena, 0);
    assert_int_equal(peer_wait(&peer), 0);
    rig_read(&rig, &word, address_of(&arena), sizeof(word));
    assert_int_equal(word, 0);
    tsi_arena_close(&arena);
}

/* The reason why VMM is the default; nothing that anybody should rely on. */
static void ipc_memory_can_be_written_by_a_consumer(void **state)
{
    struct tsi_arena arena = create(TSI_SHARE_IPC);
    struct peer peer;
    uint32_t word;

    (void)state;
    start(&peer, "writer", &arena, 0);
    assert_int_equal(peer_wait(&peer), 5);
    rig_read(&rig, &word, address_of(&arena), sizeof(word));
    assert_int_equal(word, 12345);
    tsi_arena_close(&arena);
}

/* CUDA IPC is not opened where it was made. */
static void the_own_process_uses_the_same_address(void **state)
{
    struct tsi_arena_ticket ticket;
    struct tsi_arena arena = create(TSI_SHARE_IPC), again;

    (void)state;
    assert_int_equal(tsi_cuda_arena_ticket(&arena, &ticket), TSOCKET_OK);
    assert_int_equal(tsi_cuda_arena_map(&device, &ticket, arena.fd, BYTES, &again), TSOCKET_OK);
    assert_ptr_equal(again.base, arena.base);
    tsi_arena_close(&again);
    set(&arena, 1); /* it is still there */
    tsi_arena_close(&arena);
}

static void what_the_own_process_has_mapped_of_a_descriptor_outlives_the_maker(void **state)
{
    struct tsi_arena_ticket ticket;
    struct tsi_arena arena = create(TSI_SHARE_VMM), again;

    (void)state;
    assert_int_equal(tsi_cuda_arena_ticket(&arena, &ticket), TSOCKET_OK);
    assert_int_equal(tsi_cuda_arena_map(&device, &ticket, arena.fd, BYTES, &again), TSOCKET_OK);
    set(&arena, 3);
    tsi_arena_close(&arena);
    assert_int_equal(last_word(&again), 0x03030303);
    tsi_arena_close(&again);
}

static void a_ticket_that_does_not_fit_is_refused(void **state)
{
    struct tsi_arena_ticket ticket, wrong;
    struct tsi_arena arena = create(TSI_SHARE_IPC), again;

    (void)state;
    assert_int_equal(tsi_cuda_arena_ticket(&arena, &ticket), TSOCKET_OK);
    assert_int_equal(tsi_cuda_arena_map(&device, &ticket, -1, ticket.bytes + 1, &again), TSOCKET_EPROTOCOL);
    wrong = ticket;
    wrong.kind = TSI_ARENA_HOST;
    assert_int_equal(tsi_cuda_arena_map(&device, &wrong, -1, BYTES, &again), TSOCKET_EPROTOCOL);
    wrong = ticket;
    wrong.uuid.bytes[0] ^= 1;
    assert_int_equal(tsi_cuda_arena_map(&device, &wrong, -1, BYTES, &again), TSOCKET_EPROTOCOL);
    wrong = ticket;
    wrong.kind = TSI_ARENA_CUDA_VMM;
    assert_int_equal(tsi_cuda_arena_map(&device, &wrong, -1, BYTES, &again), TSOCKET_EPROTOCOL);
    wrong = ticket;
    wrong.pid++;
    memset(&wrong.handle, 7, sizeof(wrong.handle));
    assert_int_equal(tsi_cuda_arena_map(&device, &wrong, -1, BYTES, &again), TSOCKET_EDEVICE);
    tsi_arena_close(&arena);
}

/* Makes one for somebody else's consumer, until it is killed. */
static int daemon_to_die(int socket)
{
    struct message message = {.expected = 0x05050505};
    struct tsi_arena arena;
    enum tsi_share share;

    peer_receive(socket, &share, sizeof(share));
    prepare();
    if (tsi_cuda_arena_create(&device, share, BYTES, &arena) != TSOCKET_OK)
        return 2;
    set(&arena, 5);
    if (tsi_cuda_arena_ticket(&arena, &message.ticket) != TSOCKET_OK)
        return 2;
    peer_send(socket, &message, sizeof(message), arena.fd);
    return peer_receive(socket, &(char){0}, 1);
}

static void outlives_the_daemon(enum tsi_share share)
{
    struct peer daemon, consumer;
    struct message message;
    char byte;
    int fd;

    peer_start(&daemon, "daemon_to_die");
    peer_send(daemon.socket, &share, sizeof(share), -1);
    fd = peer_receive(daemon.socket, &message, sizeof(message));
    peer_start(&consumer, "survivor");
    peer_send(consumer.socket, &message, sizeof(message), fd);
    if (fd >= 0)
        close(fd);
    peer_receive(consumer.socket, &byte, 1);
    kill(daemon.pid, SIGKILL);
    assert_int_equal(peer_wait(&daemon), 128 + SIGKILL);
    peer_send(consumer.socket, "", 1, -1);
    assert_int_equal(peer_wait(&consumer), 0);
}

static void a_mapping_outlives_the_daemon(void **state)
{
    (void)state;
    outlives_the_daemon(TSI_SHARE_IPC);
    if (tsi_cuda_has_vmm(&device.cuda))
        outlives_the_daemon(TSI_SHARE_VMM);
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {
        {"reader", reader},
        {"writer", writer},
        {"survivor", survivor},
        {"daemon_to_die", daemon_to_die},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ipc_memory_shows_what_the_daemon_writes),
        cmocka_unit_test(vmm_memory_shows_what_the_daemon_writes),
        cmocka_unit_test(vmm_memory_cannot_be_written_by_a_consumer),
        cmocka_unit_test(ipc_memory_can_be_written_by_a_consumer),
        cmocka_unit_test(the_own_process_uses_the_same_address),
        cmocka_unit_test(what_the_own_process_has_mapped_of_a_descriptor_outlives_the_maker),
        cmocka_unit_test(a_ticket_that_does_not_fit_is_refused),
        cmocka_unit_test(a_mapping_outlives_the_daemon),
    };

    peer_main(argc, argv, roles, sizeof(roles) / sizeof(roles[0]));
    prepare();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
