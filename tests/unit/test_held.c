/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "consumer/held.h"
#include <tsocket/tsocket.h>

static struct tsc_ring ring; /* all windows are of one ring, but where a test says otherwise */

static uint64_t add(struct tsc_held *held, uint64_t position, bool private)
{
    return tsc_held_add(held, &(struct tsc_window){.position = position, .ring = &ring, .private = private});
}

static void what_is_held_keeps_the_floor(void **state)
{
    struct tsc_held held;
    uint64_t a, b, c;

    (void)state;
    assert_int_equal(tsc_held_init(&held, 3), TSOCKET_OK);
    assert_int_equal(tsc_held_floor(&held, &ring, 77), 77);
    a = add(&held, 10, false);
    b = add(&held, 20, false);
    c = add(&held, 30, true);
    assert_true(tsc_held_full(&held));
    tsc_held_release(&held, b);
    assert_int_equal(tsc_held_floor(&held, &ring, 77), 10);
    assert_true(tsc_held_full(&held)); /* the span counts, not the number */
    tsc_held_release(&held, a);
    assert_int_equal(tsc_held_floor(&held, &ring, 77), 30);
    assert_false(tsc_held_full(&held));
    assert_true(tsc_held_find(&held, c)->private);
    tsc_held_release(&held, c);
    assert_int_equal(tsc_held_floor(&held, &ring, 77), 77);
    tsc_held_fini(&held);
}

static void what_comes_again_behind_what_lies_further_on_keeps_the_floor(void **state)
{
    struct tsc_held held;
    uint64_t again;

    (void)state;
    assert_int_equal(tsc_held_init(&held, 2), TSOCKET_OK);
    add(&held, 28, false);
    again = add(&held, 24, false);
    assert_int_equal(tsc_held_floor(&held, &ring, 77), 24);
    tsc_held_release(&held, again);
    assert_int_equal(tsc_held_floor(&held, &ring, 77), 28);
    tsc_held_fini(&held);
}

static void only_what_is_held_is_found(void **state)
{
    struct tsc_held held;
    uint64_t id;

    (void)state;
    assert_int_equal(tsc_held_init(&held, 2), TSOCKET_OK);
    assert_null(tsc_held_find(&held, 0));
    assert_null(tsc_held_find(&held, UINT64_MAX));
    id = add(&held, 5, false);
    assert_int_equal(tsc_held_find(&held, id)->position, 5);
    assert_null(tsc_held_find(&held, id + 1));
    assert_null(tsc_held_find(&held, id + 2)); /* the same place in the table */
    tsc_held_release(&held, id);
    assert_null(tsc_held_find(&held, id));
    tsc_held_fini(&held);
}

static void the_newest_one_can_be_taken_out_of_the_span(void **state)
{
    struct tsc_held held;
    uint64_t a, b;

    (void)state;
    assert_int_equal(tsc_held_init(&held, 2), TSOCKET_OK);
    a = add(&held, 10, false);
    b = add(&held, 20, false);
    tsc_held_release(&held, b);
    assert_true(tsc_held_full(&held));
    tsc_held_retract(&held, b);
    assert_null(tsc_held_find(&held, b));
    assert_int_equal(add(&held, 30, false), b);
    tsc_held_release(&held, a);
    assert_int_equal(tsc_held_floor(&held, &ring, 77), 30);
    tsc_held_release(&held, b);
    tsc_held_retract(&held, b);
    assert_int_equal(add(&held, 40, false), b);
    tsc_held_release(&held, b);
    tsc_held_fini(&held);
}

/* Against the obvious way to do it: a flag per window ever held. */
static void any_order_of_releases_gives_the_floor_of_the_oldest_held(void **state)
{
    enum {
        HOLD = 5,
        WINDOWS = 2000
    };
    bool out[WINDOWS] = {false};
    struct tsc_held held;
    uint64_t oldest = 0, next = 0;

    (void)state;
    srand(1);
    assert_int_equal(tsc_held_init(&held, HOLD), TSOCKET_OK);
    while (next < WINDOWS) {
        if (!tsc_held_full(&held) && rand() % 2) {
            out[next] = true;
            assert_int_equal(add(&held, 3 * next, false), next);
            next++;
        } else if (next > oldest) {
            uint64_t id = oldest + (uint64_t)rand() % (next - oldest);

            assert_int_equal(tsc_held_find(&held, id) != NULL, out[id]);
            if (out[id])
                tsc_held_release(&held, id);
            out[id] = false;
        }
        while (oldest < next && !out[oldest])
            oldest++;
        assert_int_equal(tsc_held_floor(&held, &ring, 3 * next), 3 * oldest);
        assert_int_equal(tsc_held_full(&held), next - oldest == HOLD);
    }
    tsc_held_fini(&held);
}

static void a_window_of_another_ring_keeps_nothing_here(void **state)
{
    struct tsc_ring other = {.name = 1};
    struct tsc_held held;
    uint64_t id;

    (void)state;
    assert_int_equal(tsc_held_init(&held, 2), TSOCKET_OK);
    id = tsc_held_add(&held, &(struct tsc_window){.position = 3, .ring = &other});
    add(&held, 8, false);
    assert_int_equal(tsc_held_floor(&held, &ring, 9), 8);
    assert_int_equal(tsc_held_floor(&held, &other, 9), 3);
    assert_int_equal(other.held, 1);
    tsc_held_release(&held, id);
    assert_int_equal(tsc_held_floor(&held, &other, 9), 9);
    assert_int_equal(other.held, 0);
    tsc_held_fini(&held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_held_keeps_the_floor),
        cmocka_unit_test(what_comes_again_behind_what_lies_further_on_keeps_the_floor),
        cmocka_unit_test(only_what_is_held_is_found),
        cmocka_unit_test(a_window_of_another_ring_keeps_nothing_here),
        cmocka_unit_test(the_newest_one_can_be_taken_out_of_the_span),
        cmocka_unit_test(any_order_of_releases_gives_the_floor_of_the_oldest_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
