/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "ipc/clock.h"
#include "producer/join.h"
#include "producer/side.h"

enum {
    SAMPLES = 100,
    BATCH = 4,
};

/* A stream with one side ring, whose group reads epoch 1, and two who have joined it; places are in epoch 0. */
struct scene {
    struct tsp_roster roster;
    struct tsp_stream *stream;
    struct tsp_consumer *one;
    struct tsp_consumer *other;
    uint64_t now_ns;
};

static void nothing(void *context)
{
    (void)context;
}

static struct tsp_consumer *join(struct scene *scene, const char *name)
{
    const struct tsi_peer nobody = {.pid = 0};
    struct tsp_consumer *consumer;
    bool catch_up;

    assert_int_equal(tsp_roster_add(&scene->roster, -1, &nobody, scene->now_ns, &consumer), TSOCKET_OK);
    consumer->hello = (struct tsi_hello){.batch = BATCH, .hold = 1, .world = 1};
    strcpy(consumer->hello.name, name);
    consumer->max_hold_ns = TSI_NS_PER_S;
    assert_int_equal(tsp_join_attach(scene->stream, &scene->roster, consumer, scene->now_ns, &catch_up), TSOCKET_OK);
    return consumer;
}

static void set_up(struct scene *scene)
{
    static const struct tsocket_field field = {.name = "value", .dtype = TSOCKET_INT64, .sample_bytes = 8};
    const struct tsp_store_watcher watcher = {.moved = nothing};
    struct tsocket_stream_options options;

    *scene = (struct scene){.now_ns = TSI_NS_PER_S};
    tsocket_stream_options_init(&options);
    options.name = "train";
    options.fields = &field;
    options.n_fields = 1;
    options.epoch_samples = SAMPLES;
    options.capacity = 4 * BATCH;
    options.max_batch = BATCH;
    options.first_epoch = 1;
    options.side_rings = 1;
    options.dataset_id = options.recipe_id = "0123456789abcdef";
    assert_int_equal(tsp_roster_init(&scene->roster, 2), TSOCKET_OK);
    assert_int_equal(tsp_stream_create(&options, 0, 0, &watcher, &scene->stream), TSOCKET_OK);
    scene->one = join(scene, "one");
    scene->other = join(scene, "other");
}

static void tear_down(struct scene *scene)
{
    tsp_roster_fini(&scene->roster);
    tsp_stream_destroy(scene->stream);
}

static void says_it_is_at(struct scene *scene, struct tsp_consumer *consumer, uint64_t index)
{
    const struct tsi_place place = {.index = index};

    assert_int_equal(tsp_side_ask(consumer, &place, false, scene->now_ns), TSOCKET_OK);
}

static bool is_answered(struct scene *scene, struct tsp_consumer *consumer)
{
    struct tsi_move move;
    bool same;

    return tsp_side_answer(scene->stream, &scene->roster, consumer, scene->now_ns, &move, &same);
}

static void where_it_said_it_stands_holds_when_it_is_parked_before_the_answer(void **state)
{
    (void)state;
    struct scene scene;
    uint64_t position, ordinal;
    bool wake = false;

    set_up(&scene);
    says_it_is_at(&scene, scene.one, 60);
    assert_true(is_answered(&scene, scene.one));
    struct tsp_stream *side = scene.one->side;
    assert_int_equal(tsp_stream_progress(side, &scene.roster, scene.now_ns, &wake), TSOCKET_OK);
    assert_true(tsp_filler_take(&side->filler, &position, &ordinal)); /* the ring cannot begin anew until it is back */
    says_it_is_at(&scene, scene.one, 20);
    assert_false(is_answered(&scene, scene.one));

    says_it_is_at(&scene, scene.other, 40); /* waits for the side ring */
    tsp_side_progress(scene.stream, &scene.roster, scene.now_ns);
    scene.now_ns += 2 * TSI_NS_PER_S;
    tsp_side_progress(scene.stream, &scene.roster, scene.now_ns);
    assert_null(scene.one->side);
    assert_int_equal(scene.one->state, TSP_PARKED);

    tsp_filler_put(&side->filler, position, TSP_SLOT_READY, NULL, NULL);
    assert_true(is_answered(&scene, scene.one));
    assert_int_equal(tsp_stream_epoch(side, 0).start + 20, side->begun);
    tear_down(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_it_said_it_stands_holds_when_it_is_parked_before_the_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
