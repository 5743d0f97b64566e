/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything that a peer can send, as the wire format's unpack functions see it. The first byte says which message the
 * rest is taken for. What is accepted must be inside its limits, and must survive being packed and unpacked again.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ipc/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void try_hot(const char *text, size_t len)
{
    unsigned char packed[TSI_HOT_BYTES];
    struct tsi_hot hot;

    if (tsi_hot_unpack(text, len, &hot) != TSOCKET_OK)
        return;
    must(hot.kind >= TSI_WANT && hot.kind <= TSI_PASSED);
    tsi_hot_pack(&hot, packed);
    must(memcmp(packed, text, TSI_HOT_BYTES) == 0);
}

/* Both strings are freed. */
static void must_be_equal(char *first, char *second)
{
    must(first != NULL && second != NULL && strcmp(first, second) == 0);
    free(first);
    free(second);
}

static void try_greeting(const char *text, size_t len)
{
    struct tsi_greeting greeting, again;
    char *packed;

    if (tsi_greeting_unpack(text, len, &greeting) != TSOCKET_OK)
        return;
    packed = tsi_greeting_pack(&greeting);
    must(tsi_greeting_unpack(packed, strlen(packed), &again) == TSOCKET_OK);
    must_be_equal(packed, tsi_greeting_pack(&again));
}

static void try_hello(const char *text, size_t len)
{
    struct tsi_hello hello, again;
    char *packed;

    if (tsi_hello_unpack(text, len, &hello) != TSOCKET_OK)
        return;
    if (strcmp(hello.type, "HELLO") == 0) {
        must(hello.batch >= 1 && hello.hold >= 1 && hello.hold <= TSI_HOLD_MAX);
        must(hello.world >= 1 && hello.world <= TSI_WORLD_MAX && hello.rank < hello.world);
    }
    packed = tsi_hello_pack(&hello);
    must(tsi_hello_unpack(packed, strlen(packed), &again) == TSOCKET_OK);
    must_be_equal(packed, tsi_hello_pack(&again));
}

static void try_welcome(const char *text, size_t len)
{
    struct tsi_welcome welcome, again;
    char *packed;

    if (tsi_welcome_unpack(text, len, &welcome) != TSOCKET_OK)
        return;
    if (welcome.refused == TSOCKET_OK) {
        must(welcome.layout.n_fields <= TSOCKET_FIELDS_MAX && welcome.layout.mirror <= welcome.layout.capacity);
        must(welcome.layout.capacity <= TSI_CAPACITY_MAX && welcome.layout.bytes <= TSI_RING_BYTES_MAX);
        must(welcome.first <= welcome.position);
    }
    packed = tsi_welcome_pack(&welcome);
    must(tsi_welcome_unpack(packed, strlen(packed), &again) == TSOCKET_OK);
    must_be_equal(packed, tsi_welcome_pack(&again));
}

static void try_move(const char *text, size_t len)
{
    struct tsi_move move, again;
    char *packed;

    if (tsi_move_unpack(text, len, &move) != TSOCKET_OK)
        return;
    must(move.refused != TSOCKET_OK || (move.capacity >= 1 && move.capacity <= TSI_CAPACITY_MAX));
    packed = tsi_move_pack(&move);
    must(tsi_move_unpack(packed, strlen(packed), &again) == TSOCKET_OK);
    must_be_equal(packed, tsi_move_pack(&again));
}

static void try_token(const char *text, size_t len)
{
    char *copy = strndup(text, len);
    char packed[TSOCKET_TOKEN_MAX + 1], second[TSOCKET_TOKEN_MAX + 1];
    struct tsi_token token, again;

    must(copy != NULL);
    if (tsi_token_unpack(copy, &token) == TSOCKET_OK) {
        must(tsi_token_pack(&token, packed) == TSOCKET_OK);
        must(tsi_token_unpack(packed, &again) == TSOCKET_OK);
        must(tsi_token_pack(&again, second) == TSOCKET_OK && strcmp(packed, second) == 0);
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const char *, size_t) = {try_hot,     try_greeting, try_hello,
                                                          try_welcome, try_move,     try_token};
    char *text;

    if (size == 0)
        return 0;
    text = malloc(size); /* a block of its own: what is read past it is noticed */
    must(text != NULL);
    memcpy(text, data + 1, size - 1);
    tries[data[0] % (sizeof(tries) / sizeof(tries[0]))](text, size - 1);
    free(text);
    return 0;
}
