/* SPDX-License-Identifier: Apache-2.0 */
/* The decode threads, on a double of the engine: one epoch of one stream, every sample in memory of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "inputs.h"
#include "producer/pipeline.h"

enum {
    SIDE = 16,
    IMAGE_BYTES = SIDE * SIDE * 3,
    SAMPLES_MAX = 1009,
};

static const struct tsp_limits limits = {.max_pixels = 1 << 20, .max_scans = 100};
static const struct tsp_source_limits source_limits = {.max_bytes = 1 << 20};
static const char *root;

/* What became of one claim; written by the thread that had it, read after the join. */
struct slot {
    uint8_t image[IMAGE_BYTES];
    int64_t label;
    int64_t index;
    uint8_t valid;
    uint8_t small[IMAGE_BYTES / 4]; /* a second view */
    float aug[2][TSP_AUG_VALUES];
    bool committed;
    char kind[32]; /* of a reject */
    char why[256];
};

struct tsocket_producer {
    atomic_uint_fast64_t next;
    uint64_t count;
    atomic_bool stopped;
    atomic_bool signals_blocked;
    atomic_uint failures;
    char failure[256];
    struct slot *slots;
};

int tsocket_producer_claim(struct tsocket_producer *producer, int timeout_ms, struct tsocket_claim *claim_out)
{
    (void)timeout_ms;
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    if (sigismember(&blocked, SIGTERM) != 1 || sigismember(&blocked, SIGCHLD) != 1)
        atomic_store(&producer->signals_blocked, false);
    uint64_t ordinal = atomic_fetch_add(&producer->next, 1);
    if (ordinal >= producer->count || atomic_load(&producer->stopped))
        return TSOCKET_END;
    struct slot *slot = &producer->slots[ordinal];
    memset(slot->image, 0xaa, sizeof slot->image); /* a slot holds what was there before */
    *claim_out = (struct tsocket_claim){
        .epoch = 2,
        .ordinal = ordinal,
        .position = ordinal,
        .data = {slot->image, &slot->label, &slot->index, &slot->valid, slot->small, slot->aug[0], slot->aug[1]},
    };
    return TSOCKET_OK;
}

void tsocket_producer_commit(struct tsocket_producer *producer, const struct tsocket_claim *claim)
{
    assert_true(claim->stage_ns[1] > 0);
    producer->slots[claim->position].committed = true;
}

void tsocket_producer_reject(struct tsocket_producer *producer, const struct tsocket_claim *claim, const char *kind,
                             const char *why)
{
    struct slot *slot = &producer->slots[claim->position];
    snprintf(slot->kind, sizeof slot->kind, "%s", kind);
    snprintf(slot->why, sizeof slot->why, "%s", why);
}

void tsocket_producer_fail(struct tsocket_producer *producer, int error, const char *why)
{
    assert_int_equal(error, TSOCKET_ESYSTEM);
    if (atomic_fetch_add(&producer->failures, 1) == 0)
        snprintf(producer->failure, sizeof producer->failure, "%s", why);
}

void tsocket_producer_stop(struct tsocket_producer *producer)
{
    atomic_store(&producer->stopped, true);
}

static struct tsp_source *open_source(const char *spec)
{
    char error[512];
    struct tsp_source *source = tsp_source_open(spec, &source_limits, error, sizeof error);
    if (!source)
        fail_msg("%s", error);
    return source;
}

/* One epoch of `plan` through `workers` threads; the slots are the caller's. */
static struct tsocket_producer run_cached(const struct tsp_stream_plan *plan, struct tsp_cache *cache, uint32_t workers)
{
    char error[256] = "";
    struct tsocket_producer producer = {
        .count = plan->source->count,
        .signals_blocked = true,
        .slots = calloc(SAMPLES_MAX, sizeof(struct slot)),
    };
    assert_true(plan->source->count <= SAMPLES_MAX);
    struct tsp_pipeline *pipeline =
        tsp_pipeline_start(&producer, plan, 1, &limits, cache, workers, error, sizeof error);
    assert_non_null(pipeline);
    tsp_pipeline_join(pipeline);
    assert_true(producer.signals_blocked);
    return producer;
}

static struct tsocket_producer run_plan(const struct tsp_stream_plan *plan, uint32_t workers)
{
    return run_cached(plan, NULL, workers);
}

static struct tsp_stream_plan plain_plan(const struct tsp_source *source, enum tsocket_on_bad on_bad)
{
    struct tsp_stream_plan plan = {.source = source, .on_bad = on_bad};
    tsp_recipe_init(&plan.recipe);
    plan.recipe.size = SIDE;
    return plan;
}

/* Two views, the second of half the size, with their augs; all that is in a slot. */
static struct tsp_stream_plan two_views(const struct tsp_source *source)
{
    struct tsp_stream_plan plan = plain_plan(source, TSOCKET_BAD_MASK);
    plan.n_views = 2;
    plan.aug = true;
    plan.views[0] = (struct tsp_named_view){"big", plan.recipe};
    plan.views[1] = (struct tsp_named_view){"small", plan.recipe};
    plan.views[1].recipe.size = SIDE / 2;
    return plan;
}

static struct tsocket_producer run(const struct tsp_source *source, enum tsocket_on_bad on_bad, uint32_t workers)
{
    const struct tsp_stream_plan plan = plain_plan(source, on_bad);
    return run_plan(&plan, workers);
}

static void bytes_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    struct tsp_source *source = open_source("synthetic:1009x16x16");
    struct tsocket_producer one = run(source, TSOCKET_BAD_SKIP, 1);
    for (uint32_t workers = 2; workers <= 7; workers += 5) {
        struct tsocket_producer many = run(source, TSOCKET_BAD_SKIP, workers);
        assert_memory_equal(one.slots, many.slots, SAMPLES_MAX * sizeof(struct slot));
        free(many.slots);
    }
    free(one.slots);
    tsp_source_close(source);
}

static void every_sample_comes_once_with_its_label(void **state)
{
    (void)state;
    static bool seen[SAMPLES_MAX];
    struct tsp_source *source = open_source("synthetic:1009x16x16");
    struct tsocket_producer producer = run(source, TSOCKET_BAD_SKIP, 3);
    struct tsp_encoded encoded = {0};
    for (uint64_t i = 0; i < source->count; i++) {
        const struct slot *slot = &producer.slots[i];
        assert_true(slot->committed);
        assert_false(seen[slot->index]);
        seen[slot->index] = true;
        assert_int_equal(slot->label, slot->index % 10);
        assert_int_equal(source->ops->read(source, (uint64_t)slot->index, &encoded), TSP_GOOD);
        assert_memory_equal(slot->image, encoded.data, IMAGE_BYTES); /* raw pictures pass unchanged */
    }
    tsp_encoded_fini(&encoded);
    free(producer.slots);
    tsp_source_close(source);
}

/* The four files of folders/bad_files that cannot be decoded; the order of the list is that of their paths. */
static const struct {
    uint64_t index;
    const char *path, *kind;
} bad_files[] = {
    {0, "a/cut.jpg", "truncated"},
    {1, "a/empty.jpg", "empty"},
    {10, "b/page.jpg", "not_image"},
    {11, "b/zeros.jpg", "corrupt"},
};

static const struct slot *find_slot(const struct tsocket_producer *producer, uint64_t count, const char *path)
{
    for (uint64_t i = 0; i < count; i++)
        if (strncmp(producer->slots[i].why, path, strlen(path)) == 0)
            return &producer->slots[i];
    fail_msg("%s was not rejected", path);
    return NULL;
}

static void bad_samples_are_rejected_by_kind_and_path(void **state)
{
    (void)state;
    struct tsp_source *source = open_source(inputs_path(root, "folders/bad_files"));
    struct tsocket_producer producer = run(source, TSOCKET_BAD_SKIP, 2);
    uint32_t committed = 0;
    for (uint64_t i = 0; i < source->count; i++)
        committed += producer.slots[i].committed;
    assert_int_equal(committed, 8);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(find_slot(&producer, source->count, bad_files[i].path)->kind, bad_files[i].kind);
    free(producer.slots);
    tsp_source_close(source);
}

static void masked_samples_are_black_with_their_own_label(void **state)
{
    (void)state;
    static const uint8_t black[IMAGE_BYTES];
    struct tsp_source *source = open_source(inputs_path(root, "folders/bad_files"));
    struct tsocket_producer producer = run(source, TSOCKET_BAD_MASK, 2);
    for (size_t i = 0; i < 4; i++) {
        const struct slot *slot = find_slot(&producer, source->count, bad_files[i].path);
        assert_memory_equal(slot->image, black, IMAGE_BYTES);
        assert_int_equal(slot->index, bad_files[i].index);
        assert_int_equal(slot->label, bad_files[i].path[0] - 'a');
        assert_int_equal(slot->valid, 0);
    }
    for (uint64_t i = 0; i < source->count; i++)
        assert_int_equal(producer.slots[i].valid, producer.slots[i].committed);
    free(producer.slots);
    tsp_source_close(source);
}

/* A source on a disk that fails. */
static const char *failing_key(const struct tsp_source *source, uint64_t index)
{
    (void)source;
    (void)index;
    return "some/\npath";
}

static enum tsp_bad failing_read(const struct tsp_source *source, uint64_t index, struct tsp_encoded *out)
{
    (void)source;
    (void)index;
    snprintf(out->why, sizeof out->why, "read: Input/output error");
    return TSP_STOP;
}

static void a_failing_disk_ends_the_run(void **state)
{
    (void)state;
    static const struct tsp_source_ops ops = {.key = failing_key, .read = failing_read};
    const struct tsp_source source = {.ops = &ops, .count = 100};
    struct tsocket_producer producer = run(&source, TSOCKET_BAD_SKIP, 2);
    assert_int_equal(producer.failures, 2); /* each thread once */
    assert_string_equal(producer.failure, "some/\\x0apath: read: Input/output error");
    for (uint64_t i = 0; i < source.count; i++)
        assert_false(producer.slots[i].committed || producer.slots[i].kind[0]);
    free(producer.slots);
}

static void masked_streams_have_one_field_more(void **state)
{
    (void)state;
    struct tsocket_field fields[TSOCKET_FIELDS_MAX];
    struct tsp_source *source = open_source("synthetic:7x5x3");
    struct tsp_stream_plan plan = {.source = source};
    tsp_recipe_init(&plan.recipe);
    assert_int_equal(tsp_stream_plan_fields(&plan, fields), 3);
    assert_string_equal(fields[TSP_FIELD_IMAGE].name, "image");
    assert_int_equal(fields[TSP_FIELD_IMAGE].shape[0], 5); /* raw pictures keep their size */
    assert_int_equal(fields[TSP_FIELD_IMAGE].shape[1], 3);
    assert_string_equal(fields[TSP_FIELD_LABEL].name, "label");
    assert_string_equal(fields[TSP_FIELD_INDEX].name, "index");
    assert_int_equal(fields[TSP_FIELD_INDEX].dtype, TSOCKET_INT64);
    plan.on_bad = TSOCKET_BAD_MASK;
    assert_int_equal(tsp_stream_plan_fields(&plan, fields), 4);
    assert_string_equal(fields[TSP_FIELD_VALID].name, "valid");
    assert_int_equal(fields[TSP_FIELD_VALID].dtype, TSOCKET_UINT8);
    tsp_source_close(source);
}

static void views_are_fields_of_their_own(void **state)
{
    (void)state;
    struct tsocket_field fields[TSOCKET_FIELDS_MAX];
    struct tsp_source *source = open_source(inputs_path(root, "folders/bad_files"));
    const struct tsp_stream_plan plan = two_views(source);
    static const char *const names[] = {"big", "label", "index", "valid", "small", "big.aug", "small.aug"};
    assert_int_equal(tsp_stream_plan_fields(&plan, fields), 7);
    for (size_t i = 0; i < 7; i++)
        assert_string_equal(fields[i].name, names[i]);
    assert_int_equal(fields[0].shape[0], SIDE);
    assert_int_equal(fields[4].shape[0], SIDE / 2);
    assert_int_equal(fields[5].shape[0], TSP_AUG_VALUES);
    assert_int_equal(fields[5].dtype, TSOCKET_FLOAT32);
    tsp_source_close(source);
}

/* The second view of the sample in `slot`, made once more by itself, is that of the slot; its aug is the box. */
static void check_second_view(const struct tsp_stream_plan *plan, const struct slot *slot, struct tsp_decoder *decoder)
{
    struct tsp_encoded encoded = {0};
    struct tsp_view view;
    uint32_t width, height;
    uint8_t made[IMAGE_BYTES / 4];
    assert_int_equal(plan->source->ops->read(plan->source, (uint64_t)slot->index, &encoded), TSP_GOOD);
    assert_int_equal(tsp_decoder_header(decoder, &encoded, true, &width, &height), TSP_GOOD);
    tsp_view_plan(&plan->views[1].recipe, 2, (uint64_t)slot->index, 1, width, height, &view);
    view.out.data = made;
    assert_int_equal(tsp_decoder_draw(decoder, &view, 1), TSP_GOOD);
    assert_memory_equal(slot->small, made, sizeof made);
    const float aug[] = {(float)view.x, (float)view.y, (float)view.width, (float)view.height, view.flip};
    assert_memory_equal(slot->aug[1], aug, sizeof aug);
    assert_memory_not_equal(slot->aug[0], aug, sizeof aug); /* each view has a box of its own */
    tsp_encoded_fini(&encoded);
}

static void views_are_crops_of_their_own(void **state)
{
    (void)state;
    static const uint8_t zero[IMAGE_BYTES];
    struct tsp_source *source = open_source(inputs_path(root, "folders/bad_files"));
    struct tsp_decoder *decoder = tsp_decoder_create(&limits);
    const struct tsp_stream_plan plan = two_views(source);
    struct tsocket_producer producer = run_plan(&plan, 2);
    for (uint64_t i = 0; i < source->count; i++) {
        const struct slot *slot = &producer.slots[i];
        assert_int_equal(slot->valid, slot->committed);
        if (slot->committed) {
            check_second_view(&plan, slot, decoder);
            continue;
        }
        assert_memory_equal(slot->small, zero, sizeof slot->small);
        assert_memory_equal(slot->aug, zero, sizeof slot->aug);
    }
    tsp_decoder_destroy(decoder);
    free(producer.slots);
    tsp_source_close(source);
}

/* What a sample becomes does not depend on the cache: none, one that holds three pictures, one that holds all. */
static void the_cache_changes_no_byte(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes, kept;
    } caches[] = {{3 * 900, 3}, {1 << 20, 8}};
    struct tsp_source *source = open_source(inputs_path(root, "folders/bad_files"));
    const struct tsp_stream_plan plan = two_views(source);
    struct tsocket_producer plain = run_plan(&plan, 2);
    for (size_t i = 0; i < sizeof caches / sizeof caches[0]; i++) {
        char error[256];
        struct tsp_cache *cache = tsp_cache_create(caches[i].bytes, &source->count, 1, error, sizeof error);
        assert_non_null(cache);
        for (int epoch = 0; epoch < 3; epoch++) {
            struct tsocket_producer cached = run_cached(&plan, cache, 2);
            assert_memory_equal(plain.slots, cached.slots, source->count * sizeof(struct slot));
            free(cached.slots);
        }
        struct tsp_cache_state state_of = tsp_cache_look(cache);
        assert_int_equal(state_of.kept, caches[i].kept);
        assert_int_equal(state_of.found, 2 * caches[i].kept); /* from the second epoch on */
        assert_int_equal(state_of.found + state_of.missed, 3 * source->count);
        assert_true(state_of.used_bytes <= state_of.capacity_bytes);
        tsp_cache_destroy(cache);
    }
    free(plain.slots);
    tsp_source_close(source);
}

static void a_cache_larger_than_memory_is_refused(void **state)
{
    (void)state;
    char error[256];
    const uint64_t count = 1;
    assert_null(tsp_cache_create(UINT64_C(1) << 50, &count, 1, error, sizeof error));
    assert_non_null(strstr(error, "--cache 1125899906842624B"));
}

static int make(void **state)
{
    (void)state;
    char arguments[512];
    root = inputs_folder();
    snprintf(arguments, sizeof arguments, "make_inputs.py '%s' --only folders", root);
    inputs_python(arguments);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(every_sample_comes_once_with_its_label),
        cmocka_unit_test(bad_samples_are_rejected_by_kind_and_path),
        cmocka_unit_test(masked_samples_are_black_with_their_own_label),
        cmocka_unit_test(a_failing_disk_ends_the_run),
        cmocka_unit_test(masked_streams_have_one_field_more),
        cmocka_unit_test(views_are_fields_of_their_own),
        cmocka_unit_test(views_are_crops_of_their_own),
        cmocka_unit_test(the_cache_changes_no_byte),
        cmocka_unit_test(a_cache_larger_than_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, make, NULL);
}
