/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "producer/state.h"

static char folder[64];
static char path[128];
static struct tsp_problem problem;

static const struct tsp_state two = {
    .n = 2,
    .streams = {{"train", 12, UINT64_MAX, "0123456789abcdef", "fedcba9876543210"},
                {"val.small-1", 0, 0, "0000000000000000", "ffffffffffffffff"}},
};

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/tsocket-state-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/state", folder);
    return 0;
}

/* Nothing but the state itself may be in the folder. */
static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static size_t content(char *text, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t len;

    assert_non_null(file);
    len = fread(text, 1, room - 1, file);
    text[len] = '\0';
    fclose(file);
    return len;
}

static void put(const void *text, size_t len)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void write_state(const struct tsp_state *state)
{
    if (!tsp_state_write(path, state, &problem))
        fail_msg("%s", problem.text);
}

static void refuse(const char *says)
{
    struct tsp_state state;

    assert_false(tsp_state_read(path, &state, &problem));
    assert_non_null(strstr(problem.text, path));
    if (strstr(problem.text, says) == NULL)
        fail_msg("%s", problem.text);
}

static void what_is_written_is_read(void **unused)
{
    struct tsp_state state = {0};

    (void)unused;
    write_state(&(struct tsp_state){.n = 0});
    write_state(&two);
    assert_true(tsp_state_read(path, &state, &problem));
    assert_int_equal(state.n, 2);
    assert_memory_equal(&state.streams[0], &two.streams[0], 2 * sizeof(two.streams[0]));
    assert_ptr_equal(tsp_state_find(&state, "val.small-1"), &state.streams[1]);
    assert_null(tsp_state_find(&state, "val"));
}

static void a_file_that_is_not_there_has_no_streams(void **unused)
{
    struct tsp_state state = {.n = 5};

    (void)unused;
    assert_true(tsp_state_read(path, &state, &problem));
    assert_int_equal(state.n, 0);
}

static void a_file_cut_anywhere_is_refused(void **unused)
{
    char text[1024];
    size_t len;

    (void)unused;
    write_state(&two);
    len = content(text, sizeof(text));
    for (size_t cut = 14; cut < len; cut++) {
        put(text, cut);
        refuse(cut < 16 ? "another version" : "torn");
    }
}

static void any_changed_byte_is_refused(void **unused)
{
    char text[1024];
    struct tsp_state state;
    size_t len;

    (void)unused;
    write_state(&two);
    len = content(text, sizeof(text));
    for (size_t i = 0; i < len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(text[i] ^ 1 << bit);
            put(text, len);
            assert_false(tsp_state_read(path, &state, &problem));
            text[i] = (char)(text[i] ^ 1 << bit);
        }
    }
    put(text, len);
    assert_true(tsp_state_read(path, &state, &problem));
    text[len] = 'x';
    put(text, len + 1);
    refuse("torn");
}

static void foreign_files_are_left_alone(void **unused)
{
    (void)unused;
    put("mine", 4);
    refuse("no state of tsocketd");
    put("", 0);
    refuse("no state of tsocketd");
    put("tsocket-state 2\n", 16);
    refuse("another version");
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    refuse("not a regular file");
    assert_false(tsp_state_write(path, &two, &problem));
    assert_int_equal(rmdir(path), 0);
}

static void a_full_disk_leaves_the_old_state(void **unused)
{
    struct rlimit limit;
    struct tsp_state state;

    (void)unused;
    write_state(&two);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    for (rlim_t room = 0; room < 100; room += 33) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){room, limit.rlim_max});
        assert_false(tsp_state_write(path, &(struct tsp_state){.n = 2}, &problem));
    }
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_non_null(strstr(problem.text, "File too large"));
    assert_true(tsp_state_read(path, &state, &problem));
    assert_int_equal(state.streams[0].epoch, 12);
}

static void a_folder_that_is_gone_is_named(void **unused)
{
    (void)unused;
    assert_false(tsp_state_write("/no/such/folder/state", &two, &problem));
    assert_non_null(strstr(problem.text, "/no/such/folder/state"));
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(what_is_written_is_read),
        IN_FOLDER(a_file_that_is_not_there_has_no_streams),
        IN_FOLDER(a_file_cut_anywhere_is_refused),
        IN_FOLDER(any_changed_byte_is_refused),
        IN_FOLDER(foreign_files_are_left_alone),
        IN_FOLDER(a_full_disk_leaves_the_old_state),
        cmocka_unit_test(a_folder_that_is_gone_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
