/* SPDX-License-Identifier: Apache-2.0 */
#include "setting.h"

#include <stdlib.h>
#include <string.h>

#include "../ipc/clock.h"

/* "30", "30s", "500ms"; false: none of these, or more than a year. */
static bool get_duration(const char *text, uint64_t *ns_out)
{
    char *end;
    double value = strtod(text, &end);
    bool ms = strcmp(end, "ms") == 0;

    if (end == text || !(value >= 0 && value <= 31536000.0) || !(ms || *end == '\0' || strcmp(end, "s") == 0))
        return false;
    *ns_out = (uint64_t)(value * (double)(ms ? TSI_NS_PER_MS : TSI_NS_PER_S));
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
    char *end;
    unsigned long long samples = strtoull(value, &end, 10);

    if (end == value || *end != '\0' || value[0] == '-' || samples > TSI_NUMBER_MAX)
        return false;
    consumer->max_lag = samples;
    return true;
}

bool tsp_setting_change(struct tsp_consumer *consumer, const char *setting)
{
    const char *value = strchr(setting, '=');
    size_t len = value != NULL ? (size_t)(value - setting) : 0;

    if (len == 8 && strncmp(setting, "max-hold", len) == 0)
        return get_duration(value + 1, &consumer->max_hold_ns);
    if (len == 6 && strncmp(setting, "on-lag", len) == 0)
        return set_on_lag(consumer, value + 1);
    if (len == 7 && strncmp(setting, "max-lag", len) == 0)
        return set_max_lag(consumer, value + 1);
    return false;
}
