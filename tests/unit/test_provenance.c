/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "consumer/provenance.h"

static const char good[] =
    "{\"daemon\":\"main\",\"version\":\"0.1.0\",\"libraries\":\"libjpeg-turbo 2.1.5\",\"pid\":1,\"streams\":[{"
    "\"name\":\"train\",\"source\":\"/data\",\"origin\":\"0123456789abcdef.fedcba9876543210.ffffffffffffffff\","
    "\"recipe\":\"size=224 augment=train\",\"epoch_samples\":13,\"epoch\":4,"
    "\"bad\":{\"total\":3,\"kinds\":{\"truncated\":2,\"corrupt\":1}}}]}";

static char *text_of(const char *status, bool json)
{
    cJSON *document = cJSON_Parse(status), *provenance = tsc_provenance_of(document);
    char *text;
    size_t len;

    if (json) {
        text = cJSON_PrintUnformatted(provenance);
    } else {
        FILE *out = open_memstream(&text, &len);

        assert_non_null(out);
        tsc_provenance_print(provenance, out);
        fclose(out);
    }
    cJSON_Delete(provenance);
    cJSON_Delete(document);
    return text;
}

static void it_says_what_a_paper_needs(void **state)
{
    char *text = text_of(good, false);

    (void)state;
    assert_string_equal(
        text, "Served by tsocket 0.1.0 (libjpeg-turbo 2.1.5). The order of the samples and their augmentation\n"
              "are a function of the dataset, the recipe, the seed, the epoch and the sample alone.\n"
              "\n"
              "stream train\n"
              "  source    /data\n"
              "  dataset   0123456789abcdef (13 samples)\n"
              "  recipe    fedcba9876543210: size=224 augment=train\n"
              "  seed      18446744073709551615\n"
              "  epochs    0 to 4, so far\n"
              "  left out  3 (truncated 2, corrupt 1)\n");
    free(text);
    text = text_of(good, true);
    assert_string_equal(text, "{\"daemon\":\"main\",\"version\":\"0.1.0\",\"libraries\":\"libjpeg-turbo 2.1.5\","
                              "\"streams\":[{\"name\":\"train\",\"source\":\"/data\",\"dataset\":\"0123456789abcdef\","
                              "\"recipe_id\":\"fedcba9876543210\",\"seed\":18446744073709551615,"
                              "\"recipe\":\"size=224 augment=train\",\"epoch_samples\":13,\"epoch\":4,"
                              "\"bad\":{\"total\":3,\"kinds\":{\"truncated\":2,\"corrupt\":1}}}]}");
    free(text);
}

static void nothing_in_a_status_is_believed(void **state)
{
    static const char *const lies[] = {
        "{}",
        "[]",
        "{\"streams\":7}",
        "{\"version\":[],\"streams\":[7,{},{\"name\":{},\"origin\":\"x\",\"bad\":[]},{\"origin\":\"0.1.2\",\"bad\":{"
        "\"total\":\"x\",\"kinds\":{\"\\u001b\":\"b\"}}},{\"bad\":{\"kinds\":[1]}},{\"seed\":\"\",\"name\":\"\\u001b["
        "2J\"}]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        char *text = text_of(lies[i], false);

        assert_null(strchr(text, '\033'));
        free(text);
        free(text_of(lies[i], true));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_a_paper_needs),
        cmocka_unit_test(nothing_in_a_status_is_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
