/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ipc/wire.h"

static void a_hot_message_is_24_little_endian_bytes(void **state)
{
    const struct tsi_hot hot = {.kind = TSI_RELEASE, .ring = 0x01020304, .a = UINT64_C(0x1122334455667788), .b = 9};
    const unsigned char want[TSI_HOT_BYTES] = {TSI_RELEASE, TSI_PROTOCOL, 0,    0,    4,    3,    2,    1, 0x88,
                                               0x77,        0x66,         0x55, 0x44, 0x33, 0x22, 0x11, 9};
    unsigned char packed[TSI_HOT_BYTES];
    struct tsi_hot again;

    (void)state;
    tsi_hot_pack(&hot, packed);
    assert_memory_equal(packed, want, sizeof(want));
    assert_int_equal(tsi_hot_unpack(packed, sizeof(packed), &again), TSOCKET_OK);
    assert_true(again.kind == hot.kind && again.ring == hot.ring && again.a == hot.a && again.b == hot.b);
}

static void hot_messages_of_another_form_are_refused(void **state)
{
    const struct tsi_hot hot = {.kind = TSI_WANT};
    unsigned char packed[TSI_HOT_BYTES], spoilt[TSI_HOT_BYTES];
    struct tsi_hot again;

    (void)state;
    tsi_hot_pack(&hot, packed);
    assert_int_equal(tsi_hot_unpack(packed, sizeof(packed) - 1, &again), TSOCKET_EPROTOCOL);
    assert_int_equal(tsi_hot_unpack(packed, 0, &again), TSOCKET_EPROTOCOL);
    for (size_t i = 0; i < 4; i++) { /* kind, protocol, and two that must be zero */
        memcpy(spoilt, packed, sizeof(packed));
        spoilt[i] = 0xff;
        assert_int_equal(tsi_hot_unpack(spoilt, sizeof(spoilt), &again), TSOCKET_EPROTOCOL);
    }
}

static const struct tsi_hello hello = {
    .type = "HELLO",
    .token = "0123456789abcdef0123456789abcdef",
    .stream = "train",
    .name = "trainer (2)",
    .fields = "image,label",
    .device = "host",
    .batch = 32,
    .hold = 3,
    .rank = 1,
    .world = 4,
    .join = TSOCKET_JOIN_NOW,
    .last = TSOCKET_LAST_PAD,
};

static void a_hello_comes_out_as_it_went_in(void **state)
{
    char *text = tsi_hello_pack(&hello);
    struct tsi_hello again;

    (void)state;
    assert_int_equal(tsi_hello_unpack(text, strlen(text), &again), TSOCKET_OK);
    assert_string_equal(again.type, hello.type);
    assert_string_equal(again.token, hello.token);
    assert_string_equal(again.stream, hello.stream);
    assert_string_equal(again.name, hello.name);
    assert_string_equal(again.fields, hello.fields);
    assert_string_equal(again.device, hello.device);
    assert_true(again.batch == 32 && again.hold == 3 && again.rank == 1 && again.world == 4);
    assert_true(again.join == TSOCKET_JOIN_NOW && again.last == TSOCKET_LAST_PAD);
    free(text);
}

/* `text` with what `find` finds replaced, as a hello: refused, and the output left alone. */
static void refuse_hello(const char *text, const char *find, const char *replacement)
{
    const char *at = strstr(text, find);
    struct tsi_hello out, before;
    char spoilt[2048];

    assert_non_null(at);
    snprintf(spoilt, sizeof(spoilt), "%.*s%s%s", (int)(at - text), text, replacement, at + strlen(find));
    memset(&out, 0xa5, sizeof(out));
    before = out;
    assert_int_equal(tsi_hello_unpack(spoilt, strlen(spoilt), &out), TSOCKET_EPROTOCOL);
    assert_memory_equal(&out, &before, sizeof(out));
}

static void a_hello_with_one_wrong_member_is_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"\"batch\":32", "\"batch\":0"},
        {"\"batch\":32", "\"batch\":-1"},
        {"\"batch\":32", "\"batch\":1.5"},
        {"\"batch\":32", "\"batch\":1e300"},
        {"\"batch\":32", "\"batch\":\"32\""},
        {"\"batch\":32", "\"x\":1"},
        {"\"batch\":32", "\"batch\":4294967296"},
        {"\"hold\":3", "\"hold\":0"},
        {"\"hold\":3", "\"hold\":1025"},
        {"\"rank\":1", "\"rank\":4"},
        {"\"world\":4", "\"world\":0"},
        {"\"world\":4", "\"world\":65537"},
        {"\"join\":1", "\"join\":3"},
        {"\"last\":2", "\"last\":3"},
        {"\"train\"", "\"../x\""},
        {"\"train\"", "7"},
        {"\"trainer (2)\"", "\"a\\nb\""},
        {"\"HELLO\"", "null"},
        {"{", "["},
        {"\"0123456789abcdef", "\"0123456789abcdef0"},
    };
    char *text = tsi_hello_pack(&hello);

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        refuse_hello(text, wrong[i][0], wrong[i][1]);
    free(text);
}

static void a_request_for_the_status_needs_its_token_only(void **state)
{
    const char *text = "{\"type\":\"STATUS\",\"token\":\"0123\"}";
    struct tsi_hello out;

    (void)state;
    assert_int_equal(tsi_hello_unpack(text, strlen(text), &out), TSOCKET_OK);
    assert_string_equal(out.type, "STATUS");
}

static struct tsi_welcome make_welcome(void)
{
    const struct tsocket_field fields[] = {
        {.name = "image", .dtype = TSOCKET_FLOAT32, .ndim = 3, .shape = {3, 8, 8}},
        {.name = "label", .dtype = TSOCKET_INT64},
    };
    struct tsi_welcome welcome = {.daemon = "main", .stream = "val", .epoch_samples = 1009, .epochs = 90};

    welcome.epoch = 3;
    welcome.first = 7;
    welcome.position = 3034;
    assert_int_equal(tsi_layout_init(fields, 2, 64, 32, &welcome.layout), TSOCKET_OK);
    return welcome;
}

static void a_welcome_comes_out_as_it_went_in_with_the_layout_computed(void **state)
{
    struct tsi_welcome welcome = make_welcome(), again;
    char *text = tsi_welcome_pack(&welcome);

    (void)state;
    assert_int_equal(tsi_welcome_unpack(text, strlen(text), &again), TSOCKET_OK);
    assert_int_equal(again.refused, TSOCKET_OK);
    assert_string_equal(again.daemon, "main");
    assert_string_equal(again.stream, "val");
    assert_int_equal(again.layout.bytes, welcome.layout.bytes);
    assert_int_equal(again.layout.offset[1], welcome.layout.offset[1]);
    assert_int_equal(again.layout.capacity, 64);
    assert_int_equal(again.layout.mirror, 32);
    assert_int_equal(again.layout.fields[0].dtype, TSOCKET_FLOAT32);
    assert_true(again.epoch_samples == 1009 && again.epochs == 90);
    assert_true(again.epoch == 3 && again.first == 7 && again.position == 3034);
    free(text);
}

static void a_refusal_keeps_its_code_and_reason(void **state)
{
    struct tsi_welcome refusal = {.refused = TSOCKET_ENOTFOUND, .reason = "no stream \"x\""}, again;
    char *text = tsi_welcome_pack(&refusal);

    (void)state;
    assert_int_equal(tsi_welcome_unpack(text, strlen(text), &again), TSOCKET_OK);
    assert_int_equal(again.refused, TSOCKET_ENOTFOUND);
    assert_string_equal(again.reason, refusal.reason);
    free(text);
    /* a code of a later version is a refusal as well */
    text = strdup("{\"type\":\"REFUSED\",\"code\":\"ELATER\",\"reason\":\"new\"}");
    assert_int_equal(tsi_welcome_unpack(text, strlen(text), &again), TSOCKET_OK);
    assert_int_equal(again.refused, TSOCKET_EREFUSED);
    free(text);
}

static void a_greeting_of_another_protocol_says_so(void **state)
{
    const char *text = "{\"protocol\":99,\"socket\":\"/tmp/x\",\"token\":\"00\"}";
    struct tsi_greeting greeting;

    (void)state;
    assert_int_equal(tsi_greeting_unpack(text, strlen(text), &greeting), TSOCKET_EPROTOCOL);
    assert_non_null(strstr(tsocket_last_error(), "99"));
}

/* Every prefix of a message, and every message with one byte turned over, is taken or refused but never a crash. */
static void cut_and_spoilt_messages_are_survived(void **state)
{
    struct tsi_welcome welcome = make_welcome(), out;
    char *text = tsi_welcome_pack(&welcome);
    size_t len = strlen(text);

    (void)state;
    for (size_t i = 0; i < len; i++) {
        char *copy = malloc(len);

        assert_non_null(copy);
        memcpy(copy, text, len);
        assert_int_equal(tsi_welcome_unpack(copy, i, &out), TSOCKET_EPROTOCOL);
        copy[i] = (char)~copy[i];
        tsi_welcome_unpack(copy, len, &out);
        free(copy);
    }
    free(text);
}

static void places_settings_and_moves_come_out_as_they_went_in(void **state)
{
    const struct tsi_hello place = {.type = "PLACE",
                                    .token = "00",
                                    .place = {.epoch = 3, .index = TSI_NUMBER_MAX, .removed = 7},
                                    .number = 12,
                                    .again = true};
    const struct tsi_hello setting = {
        .type = "SET", .token = "00", .stream = "val", .name = "a b", .setting = "max-hold=2s"};
    const struct tsi_move move = {.number = 3, .ring = 17, .memory = true, .capacity = 512, .max_lag = 9};
    struct tsi_hello again;
    struct tsi_move moved;
    char *text = tsi_hello_pack(&place);

    (void)state;
    assert_int_equal(tsi_hello_unpack(text, strlen(text), &again), TSOCKET_OK);
    assert_memory_equal(&again.place, &place.place, sizeof(place.place));
    assert_int_equal(again.number, 12);
    assert_true(again.again);
    free(text);
    text = tsi_hello_pack(&setting);
    assert_int_equal(tsi_hello_unpack(text, strlen(text), &again), TSOCKET_OK);
    assert_string_equal(again.setting, setting.setting);
    assert_string_equal(again.stream, setting.stream);
    assert_string_equal(again.name, setting.name);
    free(text);
    text = tsi_move_pack(&move);
    assert_int_equal(tsi_move_unpack(text, strlen(text), &moved), TSOCKET_OK);
    assert_true(moved.number == 3 && moved.ring == 17 && moved.memory && moved.capacity == 512 && moved.max_lag == 9 &&
                moved.refused == TSOCKET_OK);
    free(text);
}

static void a_refused_move_says_why(void **state)
{
    const struct tsi_move move = {.refused = TSOCKET_ELAPPED, .reason = "too slow"};
    char *text = tsi_move_pack(&move);
    struct tsi_move moved;

    (void)state;
    assert_int_equal(tsi_move_unpack(text, strlen(text), &moved), TSOCKET_OK);
    assert_int_equal(moved.refused, TSOCKET_ELAPPED);
    assert_string_equal(moved.reason, "too slow");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_settings_and_moves_come_out_as_they_went_in),
        cmocka_unit_test(a_refused_move_says_why),
        cmocka_unit_test(a_hot_message_is_24_little_endian_bytes),
        cmocka_unit_test(hot_messages_of_another_form_are_refused),
        cmocka_unit_test(a_hello_comes_out_as_it_went_in),
        cmocka_unit_test(a_hello_with_one_wrong_member_is_refused),
        cmocka_unit_test(a_request_for_the_status_needs_its_token_only),
        cmocka_unit_test(a_welcome_comes_out_as_it_went_in_with_the_layout_computed),
        cmocka_unit_test(a_refusal_keeps_its_code_and_reason),
        cmocka_unit_test(a_greeting_of_another_protocol_says_so),
        cmocka_unit_test(cut_and_spoilt_messages_are_survived),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
