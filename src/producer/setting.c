/* SPDX-License-Identifier: Apache-2.0 */
#include "setting.h"

#include <string.h>

#include "../ipc/clock.h"
#include "quantity.h"

#define HOLD_MAX_MS (365 * 86400 * UINT64_C(1000)) /* a year */

static bool set_max_hold(struct tsp_consumer *consumer, const char *value)
{
    uint64_t ms;

    if (!tsp_quantity_duration(value, &ms) || ms > HOLD_MAX_MS)
        return false;
    consumer->max_hold_ns = ms * TSI_NS_PER_MS;
    return true;
}

static bool set_on_lag(struct tsp_consumer *consumer, const char *value)
{
    static const char *const words[] = {
        [TSOCKET_LAG_PARK] = "park", [TSOCKET_LAG_SKIP] = "skip", [TSOCKET_LAG_DETACH] = "detach"};

    for (int i = TSOCKET_LAG_PARK; i <= TSOCKET_LAG_DETACH; i++) {
        if (strcmp(value, words[i]) == 0) {
            consumer->hello.on_lag = (enum tsocket_on_lag)i;
            return true;
        }
    }
    return false;
}

static bool set_max_lag(struct tsp_consumer *consumer, const char *value)
{
    uint64_t samples;

    if (!tsp_quantity_count(value, &samples) || samples > TSI_NUMBER_MAX)
        return false;
    consumer->max_lag = samples;
    return true;
}

bool tsp_setting_change(struct tsp_consumer *consumer, const char *setting)
{
    const char *value = strchr(setting, '=');
    size_t len = value != NULL ? (size_t)(value - setting) : 0;

    if (len == 8 && strncmp(setting, "max-hold", len) == 0)
        return set_max_hold(consumer, value + 1);
    if (len == 6 && strncmp(setting, "on-lag", len) == 0)
        return set_on_lag(consumer, value + 1);
    if (len == 7 && strncmp(setting, "max-lag", len) == 0)
        return set_max_lag(consumer, value + 1);
    return false;
}
