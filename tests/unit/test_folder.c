/* SPDX-License-Identifier: Apache-2.0 */
/* The folder source, against the trees of make_inputs.py and what its expected.json says of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/stat.h>
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <tsocket/tsocket.h>

#include "inputs.h"
#include "producer/fingerprint.h"
#include "producer/source.h"

static const struct tsp_source_limits limits = {.max_bytes = 1 << 20};

static const char *root; /* of the folder made for this process */
static cJSON *expected;
static char warnings[4096];

static void keep_warning(void *context, char level, const char *message)
{
    (void)context;
    size_t used = strlen(warnings);
    snprintf(warnings + used, sizeof warnings - used, "%c %s\n", level, message);
}

static int make(void **state)
{
    (void)state;
    char arguments[512];
    size_t len;
    root = inputs_folder();
    snprintf(arguments, sizeof arguments, "make_inputs.py '%s' --only folders", root);
    inputs_python(arguments);
    uint8_t *text = inputs_read(inputs_path(root, "expected.json"), &len);
    expected = cJSON_Parse((char *)text);
    free(text);
    tsocket_set_log_sink(keep_warning, NULL);
    return expected ? 0 : -1;
}

static int discard(void **state)
{
    (void)state;
    cJSON_Delete(expected);
    return 0;
}

static struct tsp_source *open_good(const char *path)
{
    char error[512] = "";
    struct tsp_source *source = tsp_source_open(path, &limits, error, sizeof error);
    if (!source)
        fail_msg("%s", error);
    return source;
}

static void assert_refused(const char *path, const char *reason)
{
    char error[512] = "";
    assert_null(tsp_source_open(path, &limits, error, sizeof error));
    if (!strstr(error, path) || !strstr(error, reason))
        fail_msg("\"%s\" does not name \"%s\" and \"%s\"", error, path, reason);
}

static const cJSON *field(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const cJSON *find_case(const char *id)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, field(expected, "folders"))
    {
        if (strcmp(field(entry, "id")->valuestring, id) == 0)
            return entry;
    }
    fail_msg("no case %s", id);
    return NULL;
}

static struct tsp_source *open_case(const char *id)
{
    return open_good(inputs_path(root, field(find_case(id), "dir")->valuestring));
}

static void assert_same_bytes(const struct tsp_source *source, uint64_t index, const char *path)
{
    size_t len;
    struct tsp_encoded encoded = {0};
    uint8_t *bytes = inputs_read(path, &len);
    assert_int_equal(source->ops->read(source, index, &encoded), TSP_GOOD);
    assert_int_equal(encoded.len, len);
    assert_memory_equal(encoded.data, bytes, len);
    tsp_encoded_fini(&encoded);
    free(bytes);
}

/* How many of the tree's files are errors that only a read can find. */
static uint64_t bad_content(const cJSON *entry)
{
    uint64_t n = 0;
    const cJSON *bad;
    cJSON_ArrayForEach(bad, field(entry, "errors")) n += strcmp(field(bad, "class")->valuestring, "not_found") != 0;
    return n;
}

static void check_case(const cJSON *entry)
{
    const char *dir = inputs_path(root, field(entry, "dir")->valuestring);
    struct tsp_source *source = open_good(dir);
    const cJSON *item;
    uint32_t n_classes = 0;
    cJSON_ArrayForEach(item, field(entry, "classes"))
    {
        assert_true(n_classes < source->n_classes);
        assert_string_equal(source->classes[n_classes++], item->valuestring);
    }
    assert_int_equal(source->n_classes, n_classes);
    assert_int_equal(source->count, (uint64_t)cJSON_GetArraySize(field(entry, "samples")) + bad_content(entry));

    uint64_t index = 0;
    cJSON_ArrayForEach(item, field(entry, "samples"))
    {
        const char *path = field(item, "path")->valuestring;
        while (index < source->count && strcmp(source->ops->key(source, index), path) != 0)
            index++; /* over the bad ones, which expected.json has in another list */
        assert_true(index < source->count);
        assert_int_equal(source->ops->label(source, index), field(item, "label")->valueint);
        assert_same_bytes(source, index, inputs_path(dir, path));
    }
    tsp_source_close(source);
}

static void every_tree_gives_the_expected_list(void **state)
{
    (void)state;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, field(expected, "folders"))
    {
        if (strcmp(field(entry, "policy")->valuestring, "decode") == 0)
            check_case(entry);
    }
}

static void what_is_left_out_is_counted(void **state)
{
    (void)state;
    static const char *const ids[] = {"order", "hidden", "nested", "names"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct tsp_source *source = open_case(ids[i]);
        assert_int_equal(source->skipped, cJSON_GetArraySize(field(find_case(ids[i]), "skipped")));
        tsp_source_close(source);
    }
}

static void a_dangling_link_is_reported_by_name(void **state)
{
    (void)state;
    warnings[0] = '\0';
    tsp_source_close(open_case("links"));
    assert_non_null(strstr(warnings, "W "));
    assert_non_null(strstr(warnings, "b/dangling.jpg"));
    assert_non_null(strstr(warnings, "not_found"));
    assert_null(strstr(warnings, "self"));
}

static void hidden_names_count_where_they_are_wanted(void **state)
{
    (void)state;
    char error[512];
    const struct tsp_source_limits all = {.max_bytes = 1 << 20, .hidden = 1};
    const cJSON *entry = find_case("hidden"), *name;
    struct tsp_source *source =
        tsp_source_open(inputs_path(root, field(entry, "dir")->valuestring), &all, error, sizeof error);
    assert_non_null(source);
    uint32_t n = 0;
    cJSON_ArrayForEach(name, field(entry, "torchvision_classes"))
        assert_string_equal(source->classes[n++], name->valuestring);
    assert_int_equal(source->n_classes, n);
    tsp_source_close(source);
}

/* A folder `name` with the file class/`file`. */
static const char *small_tree(const char *name, const char *file)
{
    const char *dir = inputs_path(root, name);
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(mkdir(inputs_path(dir, "class"), 0755), 0);
    inputs_write(inputs_path(inputs_path(dir, "class"), file), "12345", 5);
    return dir;
}

static void what_is_no_dataset_is_refused_by_name(void **state)
{
    (void)state;
    assert_refused(inputs_path(root, "folders/empty_root"), "empty");
    assert_refused(inputs_path(root, "folders/nowhere"), "No such file");
    assert_refused(inputs_path(root, "expected.json"), "Not a directory");
    assert_refused(small_tree("words", "x.txt"), "no pictures");
}

static void names_may_hold_any_bytes(void **state)
{
    (void)state;
    struct tsp_source *source = open_good(small_tree("bytes", "\xff\x01\xc3.JPG"));
    assert_int_equal(source->count, 1);
    assert_string_equal(source->ops->key(source, 0), "class/\xff\x01\xc3.JPG");
    tsp_source_close(source);
}

static enum tsp_bad read_first(const struct tsp_source *source)
{
    struct tsp_encoded encoded = {0};
    enum tsp_bad bad = source->ops->read(source, 0, &encoded);
    if (bad != TSP_GOOD)
        assert_int_not_equal(encoded.why[0], '\0');
    tsp_encoded_fini(&encoded);
    return bad;
}

static void unreadable_files_say_why(void **state)
{
    (void)state;
    const char *dir = small_tree("unreadable", "x.jpg");
    const char *path = inputs_path(dir, "class/x.jpg");
    struct tsp_source *source = open_good(dir);
    assert_int_equal(read_first(source), TSP_GOOD);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(read_first(source), TSP_EMPTY);
    assert_int_equal(truncate(path, (1 << 20) + 1), 0);
    assert_int_equal(read_first(source), TSP_TOO_LARGE);
    if (geteuid() != 0) {
        assert_int_equal(chmod(path, 0), 0);
        assert_int_equal(read_first(source), TSP_PERMISSION);
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read_first(source), TSP_NOT_FOUND);
    assert_int_equal(mkfifo(path, 0644), 0);
    assert_int_equal(read_first(source), TSP_NOT_IMAGE); /* and does not wait for a writer */
    tsp_source_close(source);
}

static void want_of_descriptors_stops_the_run(void **state)
{
    (void)state;
    enum {
        MANY = 1 << 16
    };
    static int taken[MANY];
    struct tsp_source *source = open_good(small_tree("descriptors", "x.jpg"));
    int n = 0;
    while (n < MANY && (taken[n] = dup(STDERR_FILENO)) >= 0)
        n++;
    enum tsp_bad bad = n < MANY ? read_first(source) : TSP_STOP;
    while (n > 0)
        close(taken[--n]);
    assert_int_equal(bad, TSP_STOP);
    assert_int_equal(read_first(source), TSP_GOOD);
    tsp_source_close(source);
}

static void a_pipe_is_not_a_sample(void **state)
{
    (void)state;
    const char *dir = small_tree("pipe", "x.jpg");
    assert_int_equal(mkfifo(inputs_path(dir, "class/pipe.jpg"), 0644), 0);
    struct tsp_source *source = open_good(dir);
    assert_int_equal(source->count, 1);
    assert_int_equal(source->skipped, 1);
    tsp_source_close(source);
}

static void folders_that_link_to_each_other_end(void **state)
{
    (void)state;
    const char *dir = small_tree("mutual", "x.jpg");
    assert_int_equal(mkdir(inputs_path(dir, "other"), 0755), 0);
    assert_int_equal(symlink("../other", inputs_path(dir, "class/to_other")), 0);
    assert_int_equal(symlink("../class", inputs_path(dir, "other/to_class")), 0);
    struct tsp_source *source = open_good(dir);
    assert_int_equal(source->count, 2);
    assert_string_equal(source->ops->key(source, 1), "other/to_class/x.jpg");
    assert_int_equal(source->ops->label(source, 1), 1);
    tsp_source_close(source);
}

/* ---- skip lists ---- */

static struct tsp_source *open_without(const char *dir, const char *list, char *error, size_t len)
{
    const char *path = inputs_path(root, "skip");
    inputs_write(path, list, strlen(list));
    const struct tsp_source_limits skipping = {.max_bytes = 1 << 20, .skip = path};
    warnings[0] = '\0';
    return tsp_source_open(dir, &skipping, error, len);
}

static void a_skip_list_leaves_samples_out_and_moves_the_others_up(void **state)
{
    (void)state;
    char error[512];
    const char *dir = inputs_path(root, field(find_case("prime_13"), "dir")->valuestring);
    struct tsp_source *all = open_good(dir);
    struct tsp_source *some = open_without(dir, "# of a check\na/06.jpg\na/04.jpg\na/06.jpg\n\n", error, sizeof error);
    assert_non_null(some);
    assert_string_equal(warnings, "");
    assert_int_equal(some->count, all->count - 2);
    assert_int_equal(some->left_out, 2);
    assert_int_equal(some->n_classes, all->n_classes);
    for (uint64_t i = 0, at = 0; i < all->count; i++) {
        const char *key = all->ops->key(all, i);
        if (strcmp(key, "a/04.jpg") == 0 || strcmp(key, "a/06.jpg") == 0)
            continue;
        assert_string_equal(some->ops->key(some, at), key);
        assert_int_equal(some->ops->label(some, at++), all->ops->label(all, i));
    }
    char of_all[TSP_FINGERPRINT], of_some[TSP_FINGERPRINT];
    tsp_fingerprint_dataset(all, of_all);
    tsp_fingerprint_dataset(some, of_some);
    assert_string_not_equal(of_all, of_some); /* who resumes notices */
    tsp_source_close(some);
    tsp_source_close(all);
}

static void names_of_a_skip_list_that_are_no_samples_are_told(void **state)
{
    (void)state;
    char error[512];
    const char *dir = inputs_path(root, field(find_case("prime_13"), "dir")->valuestring);
    struct tsp_source *source = open_without(dir, "a/04.jpg\nz/last.jpg\na/none.jpg\n", error, sizeof error);
    assert_non_null(source);
    assert_non_null(strstr(warnings, "2 of its names are no pictures of "));
    assert_non_null(strstr(warnings, "the first: a/none.jpg"));
    assert_int_equal(source->left_out, 1);
    tsp_source_close(source);
}

static void what_is_no_skip_list_is_refused(void **state)
{
    (void)state;
    char error[512];
    const char *dir = small_tree("skipped", "x.jpg");
    assert_null(open_without(dir, "class/x.jpg\n", error, sizeof error));
    assert_non_null(strstr(error, "names every one of its 1 pictures"));
    assert_null(open_without(dir, "one\nC:\\x.jpg\n", error, sizeof error));
    assert_non_null(strstr(error, "line 2: write \\\\ for a backslash"));
    assert_null(open_without("synthetic:3x8x8", "x\n", error, sizeof error));
    assert_non_null(strstr(error, "synthetic:3x8x8: has no files"));
    const struct tsp_source_limits nowhere = {.max_bytes = 1 << 20, .skip = "/nowhere/at.all"};
    assert_null(tsp_source_open(dir, &nowhere, error, sizeof error));
    assert_non_null(strstr(error, "--skip /nowhere/at.all: cannot be opened"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tree_gives_the_expected_list),
        cmocka_unit_test(what_is_left_out_is_counted),
        cmocka_unit_test(a_dangling_link_is_reported_by_name),
        cmocka_unit_test(hidden_names_count_where_they_are_wanted),
        cmocka_unit_test(what_is_no_dataset_is_refused_by_name),
        cmocka_unit_test(names_may_hold_any_bytes),
        cmocka_unit_test(unreadable_files_say_why),
        cmocka_unit_test(want_of_descriptors_stops_the_run),
        cmocka_unit_test(a_pipe_is_not_a_sample),
        cmocka_unit_test(folders_that_link_to_each_other_end),
        cmocka_unit_test(a_skip_list_leaves_samples_out_and_moves_the_others_up),
        cmocka_unit_test(names_of_a_skip_list_that_are_no_samples_are_told),
        cmocka_unit_test(what_is_no_skip_list_is_refused),
    };
    return cmocka_run_group_tests(tests, make, discard);
}
