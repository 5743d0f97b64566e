/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration file: any bytes give options that pass all checks, or a message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "producer/config.h"
#include "producer/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct tsp_layer layer = {0};
    struct tsp_problem problem;
    static struct tsp_options options;
    char *text = malloc(len + 1);

    if (text == NULL)
        return 0;
    if (len > 0)
        memcpy(text, data, len);
    text[len] = '\0';
    if (tsp_config_parse(&layer, text, "fuzz.json", &problem) && tsp_options_merge(&layer, 1, &options, &problem)) {
        for (uint32_t i = 0; i < options.n_streams; i++) {
            struct tsp_ring_plan plan;
            if (tsp_options_ring(&options.streams[i], 150544, &plan, &problem) &&
                (plan.max_batch < 1 || plan.max_batch > plan.capacity))
                abort();
        }
        tsp_options_fini(&options);
    }
    tsp_layer_fini(&layer);
    free(text);
    return 0;
}
