/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and launches: PTX says the names, a table of C functions does the work. */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KERNELS_MAX = 64,
    PARAM_BYTES = 8, /* of one argument, at most */
    HELD_MAX = 32,   /* pieces of memory that one launch may reach for */
};

struct kernel {
    const char *name;
    simcuda_kernel *run;
    unsigned n_params;
    size_t param_bytes[SIMCUDA_PARAMS_MAX];
};

struct sim_launch {
    const struct kernel *kernel;
    struct simcuda_launch shown;
    uint64_t arguments[SIMCUDA_PARAMS_MAX];
    struct tsi_cu_context *context;
    struct sim_physical *held[HELD_MAX];
    unsigned n_held;
    int result;
};

struct tsi_cu_module {
    char *image;
};

static struct kernel kernels[KERNELS_MAX];
static unsigned n_kernels;

void simcuda_register(const char *name, simcuda_kernel *run, unsigned n_params, const size_t param_bytes[])
{
    struct kernel *kernel = kernels;

    pthread_mutex_lock(&sim.lock);
    while (kernel < kernels + n_kernels && strcmp(kernel->name, name) != 0)
        kernel++;
    if (kernel == kernels + KERNELS_MAX || n_params > SIMCUDA_PARAMS_MAX)
        abort(); /* a test of no use */
    if (kernel == kernels + n_kernels)
        n_kernels++;
    *kernel = (struct kernel){.name = name, .run = run, .n_params = n_params};
    memcpy(kernel->param_bytes, param_bytes, n_params * sizeof(param_bytes[0]));
    pthread_mutex_unlock(&sim.lock);
}

void *simcuda_at(struct simcuda_launch *shown, uint64_t address, size_t bytes, bool write)
{
    struct sim_launch *launch = shown->own;
    uint8_t *at = NULL;

    pthread_mutex_lock(&sim.lock);
    if (launch->n_held < HELD_MAX)
        at = sim_translate(launch->context, address, bytes, write, &launch->held[launch->n_held]);
    if (at != NULL)
        launch->n_held++;
    else
        launch->result = TSI_CU_ERROR_ILLEGAL_ADDRESS;
    pthread_mutex_unlock(&sim.lock);
    return at;
}

int sim_launch_run(struct sim_launch *launch, struct tsi_cu_context *context)
{
    launch->context = context;
    launch->kernel->run(&launch->shown);
    pthread_mutex_lock(&sim.lock);
    while (launch->n_held > 0)
        sim_physical_unref(launch->held[--launch->n_held]);
    pthread_mutex_unlock(&sim.lock);
    return launch->result;
}

void sim_launch_free(struct sim_launch *launch)
{
    free(launch);
}

/* --- modules */

int cuModuleLoadData(struct tsi_cu_module **module_out, const void *image)
{
    struct tsi_cu_context *context;
    struct tsi_cu_module *module;
    int result = sim_enter(SIM_cuModuleLoadData, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (strstr(image, ".version ") == NULL || strstr(image, ".target ") == NULL)
        return sim_leave(TSI_CU_ERROR_INVALID_IMAGE);
    module = malloc(sizeof(*module));
    if (module == NULL)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    module->image = strdup(image);
    if (module->image == NULL) {
        free(module);
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    }
    sim.live[SIM_KIND_MODULE]++;
    *module_out = module;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuModuleUnload(struct tsi_cu_module *module)
{
    struct tsi_cu_context *context;
    int result;

    if (!sim_enter_free(SIM_cuModuleUnload, &context, &result))
        return result;
    sim_drain(context);
    free(module->image);
    free(module);
    sim.live[SIM_KIND_MODULE]--;
    return sim_leave(result);
}

/* Whether the PTX has ".entry NAME". */
static bool has_entry(const char *image, const char *name)
{
    size_t len = strlen(name);
    const char *at = image;

    while ((at = strstr(at, ".entry ")) != NULL) {
        at += strlen(".entry ");
        if (strncmp(at, name, len) == 0 && strchr(" (\n\t", at[len]) != NULL)
            return true;
    }
    return false;
}

int cuModuleGetFunction(struct tsi_cu_function **function_out, struct tsi_cu_module *module, const char *name)
{
    struct tsi_cu_context *context;
    struct kernel *found = NULL;
    int result = sim_enter(SIM_cuModuleGetFunction, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    for (unsigned i = 0; i < n_kernels; i++) {
        if (strcmp(kernels[i].name, name) == 0)
            found = &kernels[i];
    }
    if (found == NULL || !has_entry(module->image, name))
        return sim_leave(TSI_CU_ERROR_NOT_FOUND);
    *function_out = (struct tsi_cu_function *)(void *)found;
    return sim_leave(TSI_CU_SUCCESS);
}

/* --- launches */

static struct sim_launch *create_launch(const struct kernel *kernel, void **params)
{
    struct sim_launch *launch = calloc(1, sizeof(*launch));

    if (launch == NULL)
        return NULL;
    launch->kernel = kernel;
    launch->shown.own = launch;
    for (unsigned i = 0; i < kernel->n_params; i++) {
        memcpy(&launch->arguments[i], params[i],
               kernel->param_bytes[i] < PARAM_BYTES ? kernel->param_bytes[i] : PARAM_BYTES);
        launch->shown.params[i] = &launch->arguments[i];
    }
    return launch;
}

int cuLaunchKernel(struct tsi_cu_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   struct tsi_cu_stream *stream, void **params, void **extra)
{
    struct tsi_cu_context *context;
    struct sim_launch *launch;
    int result = sim_enter(SIM_cuLaunchKernel, &context);

    (void)shared_bytes;
    if (result != TSI_CU_SUCCESS)
        return result;
    if (extra != NULL || grid_x * grid_y * grid_z == 0 || block_x * block_y * block_z == 0 ||
        block_x * block_y * block_z > 1024)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    launch = create_launch((const struct kernel *)(void *)function, params);
    if (launch == NULL)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    memcpy(launch->shown.grid, (unsigned[]){grid_x, grid_y, grid_z}, sizeof(launch->shown.grid));
    memcpy(launch->shown.block, (unsigned[]){block_x, block_y, block_z}, sizeof(launch->shown.block));
    result = sim_stream_launch(context, stream, launch);
    if (result != TSI_CU_SUCCESS)
        sim_launch_free(launch);
    return sim_leave(result);
}
