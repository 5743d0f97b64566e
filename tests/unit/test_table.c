/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "consumer/table.h"

/* The table of a document; the caller's to free. */
static char *table(const char *json)
{
    char *out;
    size_t len;
    cJSON *status = cJSON_Parse(json);
    FILE *file = open_memstream(&out, &len);
    assert_non_null(file);
    tsc_table_print(status, file);
    fclose(file);
    cJSON_Delete(status);
    return out;
}

static void assert_rows_are_whole(const char *text)
{
    size_t width = strcspn(text, "\n");
    while (*text != '\0') {
        assert_int_equal(strcspn(text, "\n"), width);
        assert_true(text[0] == text[width - 1]);
        text += width + 1;
    }
}

static void assert_shows(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" is missing in\n%s", part, text);
}

static void a_status_becomes_a_table(void **state)
{
    (void)state;
    char *text = table(
        "{\"daemon\":\"main\",\"pid\":123,\"version\":\"0.1.0\",\"uptime_s\":3723.4,\"state\":\"running\","
        "\"workers\":{\"claims\":2,\"busy\":0.97,\"waiting_for_room\":0.03,\"stages\":{\"read\":{\"ms_per_sample\":0.1}"
        "}},"
        "\"streams\":[{\"name\":\"train\",\"source\":\"/data\",\"state\":\"running\",\"epoch\":1,\"epochs\":3,"
        "\"epoch_samples\":1009,\"epoch_length\":1008,\"head\":1500,\"floor\":1000,\"capacity\":1000,\"max_batch\":256,"
        "\"sample_bytes\":150544,\"ring_bytes\":1572864,\"made\":1500,\"delivered\":4000,\"samples_per_s\":1234.5,"
        "\"bad\":{\"total\":4,\"kinds\":{\"truncated\":1,\"empty\":3}},\"held_back_by\":\"slow (99)\",\"consumers\":["
        "{\"id\":1,\"name\":\"slow\",\"pid\":99,\"batch\":64,\"hold\":2,\"shard\":[1,4],\"state\":\"reading\","
        "\"epoch\":1,"
        "\"first\":55,\"ring\":\"group\",\"lag\":436,\"samples_per_s\":12.5,\"waited_s\":0.4,\"slack_s\":45.1},"
        "{\"name\":\"away\",\"state\":\"parked\",\"ring\":\"none\",\"parked_for\":\"paused\",\"parked_s\":2.5,"
        "\"parked\":3},"
        "{\"name\":\"behind\",\"state\":\"reading\",\"ring\":\"side\"}],"
        "\"side_rings\":2,\"side_rings_used\":1,\"side_ring_bytes\":1048576,\"made_again\":600}]}");
    assert_rows_are_whole(text);
    assert_shows(text, "| main   pid 123   running   up 1:02:03   tsocketd 0.1.0 ");
    assert_shows(text, "decode threads busy 97 %, waiting for room 3 %");
    assert_shows(text, "ms per sample   read 0.100 ");
    assert_shows(text, "stream train   running   /data ");
    assert_shows(text, "epoch 1 of 3   1,009 samples, 1,008 good   1,234 samples/s   head at 1,500 ");
    assert_shows(text, "ring [##########..........] 500 of 1,000   1.5 MiB   largest batch 256 ");
    assert_shows(text, "made 1,500   delivered 4,000   decodes saved 1,900   held back by slow (99) ");
    assert_shows(text, "bad samples 4   truncated 1   empty 3 ");
    assert_shows(text, "side rings: 1 of 2 in use, 1.0 MiB each   made again for them 600 ");
    assert_shows(text,
                 "slow                     99     64   1/4 reading      1         55     436    12.5    0.4s   45.1s");
    assert_shows(text, "    parked: paused, for 2.5 s; parked 3 times so far ");
    assert_shows(text, " on side ");
    free(text);
}

static void notes_are_shown_and_those_of_the_cache_in_words(void **state)
{
    (void)state;
    char *text =
        table("{\"notes\":{\"cache_capacity_bytes\":1000000,\"cache_used_bytes\":630000,\"cache_pictures\":1234,"
              "\"cache_found\":41,\"cache_missed\":59,\"loss\":0.25,\"steps\":12}}");
    assert_rows_are_whole(text);
    assert_shows(text, "| cache 63 % full: 1,234 pictures, 615 KiB   41 % of the samples found in it ");
    assert_shows(text, "| notes   loss 0.25   steps 12 ");
    free(text);
    text = table("{\"notes\":{}}");
    assert_null(strstr(text, "cache"));
    assert_null(strstr(text, "notes"));
    free(text);
}

static void where_the_ring_is_is_said_unless_it_is_in_host_memory_alone(void **state)
{
    (void)state;
    char *text = table("{\"streams\":[{\"places\":[{\"kind\":\"cuda-vmm\"},{\"kind\":\"host\"}]}]}");
    assert_rows_are_whole(text);
    assert_shows(text, "largest batch 0   in cuda-vmm, host ");
    free(text);
    text = table("{\"streams\":[{\"places\":[{\"kind\":\"host\"}]}]}");
    assert_null(strstr(text, "   in "));
    free(text);
}

static void nothing_in_it_is_believed(void **state)
{
    (void)state;
    static const char *const documents[] = {
        "null",
        "[]",
        "{}",
        "3",
        "{\"streams\":3}",
        "{\"streams\":[null,3,{},[[]]]}",
        "{\"daemon\":3,\"pid\":\"x\"}",
        "{\"streams\":[{\"consumers\":{\"a\":1},\"bad\":[],\"head\":-1e300,\"floor\":1e300,\"capacity\":0}]}",
        "{\"streams\":[{\"head\":9e15,\"floor\":0,\"capacity\":1}]}",
        "{\"streams\":[{\"consumers\":[{\"shard\":[\"a\"]},{\"shard\":[1,2,3]}]}]}",
        "{\"workers\":{\"stages\":[1,2]},\"uptime_s\":-5}",
        "{\"notes\":[1,2,null]}",
        "{\"streams\":[{\"places\":[3,null,{\"kind\":3},{\"kind\":\"\\u001b[2J\"}]}]}",
        "{\"notes\":{\"cache_capacity_bytes\":-1,\"x\":\"y\",\"\\u001b\":1e999}}",
    };
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        char *text = table(documents[i]);
        assert_rows_are_whole(text);
        free(text);
    }
}

static void names_cannot_command_the_terminal(void **state)
{
    (void)state;
    char *text =
        table("{\"daemon\":\"a\\u001b[2J\\n\\u009b\",\"streams\":[{\"name\":\"b\\r\","
              "\"bad\":{\"total\":1,\"kinds\":{\"\\u001b\":1}},\"consumers\":[{\"name\":\"\\u202e\\u001b]0;x\"}]}],"
              "\"workers\":{\"stages\":{\"\\u001b\":{}}}}");
    assert_null(strchr(text, '\033'));
    assert_null(strchr(text, '\r'));
    assert_null(strstr(text, "\xc2\x9b"));
    assert_null(strstr(text, "\xe2\x80\xae"));
    assert_shows(text, "| a?[2J??   pid 0");
    assert_rows_are_whole(text);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_status_becomes_a_table),
        cmocka_unit_test(notes_are_shown_and_those_of_the_cache_in_words),
        cmocka_unit_test(where_the_ring_is_is_said_unless_it_is_in_host_memory_alone),
        cmocka_unit_test(nothing_in_it_is_believed),
        cmocka_unit_test(names_cannot_command_the_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
