/* SPDX-License-Identifier: Apache-2.0 */
#include "debts.h"

#include <stdlib.h>
#include <string.h>

bool tsc_debts_add(struct tsc_debts *debts, const struct tsc_debt *debt)
{
    if (debts->n == debts->room) {
        size_t room = debts->room > 0 ? 2 * debts->room : 16;
        struct tsc_debt *items = realloc(debts->items, room * sizeof(*items));

        if (items == NULL)
            return false;
        debts->items = items;
        debts->room = room;
    }
    debts->items[debts->n++] = *debt;
    return true;
}

static bool is_same(const struct tsc_debt *a, const struct tsc_debt *b)
{
    return a->epoch == b->epoch && a->from == b->from && a->to == b->to;
}

bool tsc_debts_settle(struct tsc_debts *debts, const struct tsc_debt *debt)
{
    size_t i = 0;

    while (i < debts->n && !is_same(&debts->items[i], debt))
        i++;
    if (i == debts->n)
        return false;
    debts->n--;
    memmove(&debts->items[i], &debts->items[i + 1], (debts->n - i) * sizeof(debts->items[0]));
    return true;
}

bool tsc_debts_until(const struct tsc_debts *debts, uint64_t epoch)
{
    for (size_t i = 0; i < debts->n; i++) {
        if (debts->items[i].epoch <= epoch)
            return true;
    }
    return false;
}

void tsc_debts_fini(struct tsc_debts *debts)
{
    free(debts->items);
    *debts = (struct tsc_debts){0};
}
