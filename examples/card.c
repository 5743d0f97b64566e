/* SPDX-License-Identifier: Apache-2.0 */
#include "card.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NON_BLOCKING = 1, /* a stream that does not wait for the default one */
    THREADS = 256,    /* of a block */
};

bool card_check(const struct card *card, int result, const char *call)
{
    const char *name = NULL;

    if (result == 0)
        return true;
    card->error_name(result, &name);
    fprintf(stderr, "card: %s: %s (%d)\n", call, name != NULL ? name : "an unknown error", result);
    return false;
}

/* As tsocket does: TSOCKET_LIBCUDA names another driver than the system's. */
static bool find_driver(struct card *card)
{
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define CARD_FUNCTION(member, name, params) {name, offsetof(struct card, member)},
        CARD_FUNCTIONS(CARD_FUNCTION)
#undef CARD_FUNCTION
    };
    const char *path = getenv("TSOCKET_LIBCUDA");
    void *library = dlopen(path != NULL && path[0] != '\0' ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        fprintf(stderr, "card: there is no CUDA driver: %s\n", dlerror());
        return false;
    }
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = dlsym(library, functions[i].name);

        if (function == NULL) {
            fprintf(stderr, "card: the CUDA driver has no %s\n", functions[i].name);
            return false;
        }
        memcpy((char *)card + functions[i].offset, &function, sizeof(function));
    }
    return true;
}

bool card_open(int ordinal, const char *ptx, struct card *card)
{
    *card = (struct card){.context = NULL};
    return find_driver(card) && CARD(card, init(0)) && CARD(card, device_get(&card->device, ordinal)) &&
           CARD(card, retain(&card->context, card->device)) && CARD(card, set_current(card->context)) &&
           CARD(card, stream_create(&card->stream, NON_BLOCKING)) && CARD(card, module_load(&card->module, ptx));
}

/* Errors are no news: what broke has been said. */
void card_close(struct card *card)
{
    if (card->module != NULL)
        card->module_unload(card->module);
    if (card->stream != NULL)
        card->stream_destroy(card->stream);
    if (card->context != NULL)
        card->release(card->device);
}

bool card_kernel(const struct card *card, const char *name, void **kernel_out)
{
    int result = card->module_function(kernel_out, card->module, name);

    if (result != 0)
        fprintf(stderr, "card: the driver cannot run the kernel %s; a simulated one runs only those that it knows\n",
                name);
    return card_check(card, result, "cuModuleGetFunction");
}

bool card_run(const struct card *card, void *kernel, uint32_t count, void **params)
{
    params[0] = &count;
    return CARD(card,
                launch(kernel, (count + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, card->stream, params, NULL));
}
