/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "consumer/audit.h"
#include "ipc/clock.h"
#include "producer/join.h"
#include "producer/owed.h"
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
    consumer->hello = (struct tsi_hello){.batch = BATCH, .hold = 1, .world = 1, .join = TSOCKET_JOIN_WAIT};
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
    assert_int_equal(tsp_roster_init(&scene->roster, 3), TSOCKET_OK);
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

/* All that there is room for is made. */
static void make(struct scene *scene)
{
    uint64_t position, ordinal;
    bool wake = false;

    assert_int_equal(tsp_stream_progress(scene->stream, &scene->roster, scene->now_ns, &wake), TSOCKET_OK);
    while (tsp_filler_take(&scene->stream->filler, &position, &ordinal))
        tsp_filler_put(&scene->stream->filler, position, TSP_SLOT_READY, NULL, NULL);
    assert_int_equal(tsp_stream_progress(scene->stream, &scene->roster, scene->now_ns, &wake), TSOCKET_OK);
}

/* The whole ledger, and what is found in it: how much its consumers have released. */
static uint64_t samples_in(const char *path)
{
    unsigned char bytes[TSI_RECORD_BYTES];
    struct tsc_audit audit = {0};
    struct tsi_record record;
    FILE *file = fopen(path, "rb");
    uint32_t check;

    assert_non_null(file);
    assert_int_equal(fread(bytes, sizeof(bytes), 1, file), 1); /* the head */
    check = tsi_record_check(bytes);
    while (fread(bytes, sizeof(bytes), 1, file) == 1) {
        assert_int_equal(tsi_record_unpack(bytes, check, &record), TSOCKET_OK);
        check = tsi_record_check(bytes);
        tsc_audit_record(&audit, &record);
    }
    fclose(file);
    tsc_audit_end(&audit, 0);
    uint64_t samples = 0;
    assert_int_equal(audit.findings.exceptions, 0);
    for (const struct tsc_consumer *who = audit.consumers; who != NULL; who = who->next)
        samples += who->samples;
    tsc_audit_fini(&audit);
    return samples;
}

static struct tsp_ledger *open_ledger(struct scene *scene, char *path)
{
    struct tsp_ledger *ledger;

    close(mkstemp(path));
    assert_int_equal(tsp_ledger_open(path, &ledger), TSOCKET_OK);
    scene->stream->ledger = ledger;
    tsp_ledger_stream(ledger, 0, &(struct tsp_ledger_stream){.name = "train", .epoch_samples = SAMPLES});
    return ledger;
}

static void who_pauses_before_its_first_epoch_has_released_nothing(void **state)
{
    (void)state;
    static const struct tsi_place first = {.epoch = 2};
    struct tsp_ledger *ledger;
    char path[] = "/tmp/tsocket-test-side-XXXXXX";
    struct tsp_consumer *late;
    struct scene scene;

    set_up(&scene);
    ledger = open_ledger(&scene, path);
    make(&scene);
    scene.one->released = scene.other->released = BATCH;
    make(&scene);
    late = join(&scene, "late");
    assert_int_equal(late->state, TSP_JOINING);
    assert_int_equal(tsp_side_pause(late, &first, scene.now_ns), TSOCKET_OK);
    assert_int_equal(tsp_side_ask(late, &first, false, scene.now_ns), TSOCKET_OK);
    tsp_ledger_left(ledger, late->id, TSP_LEDGER_LEFT);
    tsp_ledger_close(ledger);
    assert_int_equal(samples_in(path), 0);
    unlink(path);
    tear_down(&scene);
}

/* The daemon had not heard of its last releases when it parked it, and it has no more to ask for. */
static void one_that_was_parked_and_leaves_says_what_it_has_released(void **state)
{
    (void)state;
    struct tsi_hot words = {.kind = TSI_PASSED, .a = 1, .b = 4 * BATCH + 1};
    struct tsp_ledger *ledger;
    char path[] = "/tmp/tsocket-test-side-XXXXXX";
    struct tsp_consumer *third;
    struct scene scene;

    set_up(&scene);
    ledger = open_ledger(&scene, path);
    third = join(&scene, "third");
    assert_int_equal(third->state, TSP_READING);
    make(&scene);
    tsp_side_park(third, TSP_LEDGER_HELD, scene.now_ns);
    tsp_owed_hear_passed(third, &words); /* more than it can have been given: not believed */
    words.b--;
    tsp_owed_hear_passed(third, &words);
    tsp_ledger_left(ledger, third->id, TSP_LEDGER_LEFT);
    tsp_ledger_close(ledger);
    assert_int_equal(samples_in(path), 4 * BATCH);
    unlink(path);
    tear_down(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(where_it_said_it_stands_holds_when_it_is_parked_before_the_answer),
        cmocka_unit_test(who_pauses_before_its_first_epoch_has_released_nothing),
        cmocka_unit_test(one_that_was_parked_and_leaves_says_what_it_has_released),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
