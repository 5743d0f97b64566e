/* SPDX-License-Identifier: Apache-2.0 */
/* The environment, counted calls, injected errors, violations, and the report at the end. */
#include "sim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ATTRIBUTES = 256,
    ANY = SIM_FUNCTIONS, /* the row of the tables that stands for all functions */
    ROWS,
    KILL = -1, /* instead of a result */
};

static const char *const names[ROWS] = {
#define NAME(name, suffix, need, params) #name #suffix,
    TSI_CUDA_FUNCTIONS(NAME)
#undef NAME
        [ANY] = "*",
};

static const char *const violation_names[SIMCUDA_VIOLATIONS] = {
    [SIMCUDA_EARLY_REUSE] = "the source of a copy was written before the copy had run",
    [SIMCUDA_BAD_ADDRESS] = "work on memory that is not mapped, closed, or without access",
    [SIMCUDA_READ_ONLY_WRITE] = "work wrote to a read-only mapping",
    [SIMCUDA_DOUBLE_FREE] = "something was freed or closed that is not there",
    [SIMCUDA_FREE_BEFORE_CLOSE] = "memory was freed while another process has it open",
};

static const char *const kind_names[SIM_KINDS] = {
    [SIM_KIND_MEMORY] = "allocations", [SIM_KIND_MAPPING] = "mappings", [SIM_KIND_HANDLE] = "memory handles",
    [SIM_KIND_STREAM] = "streams",     [SIM_KIND_EVENT] = "events",     [SIM_KIND_REGISTRATION] = "registrations",
    [SIM_KIND_MODULE] = "modules",     [SIM_KIND_CONTEXT] = "contexts",
};

static unsigned long calls[ROWS];
static struct {
    unsigned long at; /* the call that fails; 0: none */
    int result;
} failures[ROWS];
static const char *failed = "";
static unsigned long violations[SIMCUDA_VIOLATIONS];
static bool strict;

static int attributes[ATTRIBUTES] = {
    [TSI_CU_ATTRIBUTE_ASYNC_ENGINES] = 2, [TSI_CU_ATTRIBUTE_CAPABILITY_MAJOR] = 9, [TSI_CU_ATTRIBUTE_VMM] = 1,
    [TSI_CU_ATTRIBUTE_POSIX_FD] = 1,      [TSI_CU_ATTRIBUTE_READ_ONLY_HOST] = 1,   [TSI_CU_ATTRIBUTE_HOST_NUMA] = -1,
    [TSI_CU_ATTRIBUTE_IPC_EVENT] = 1,
};

int sim_attribute(int attribute)
{
    return attribute >= 0 && attribute < ATTRIBUTES ? attributes[attribute] : 0;
}

/* --- calls */

static int row_of(const char *name, size_t len)
{
    for (int i = 0; i < ROWS; i++) {
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return i;
    }
    fprintf(stderr, "simcuda: the driver has no function %.*s\n", (int)len, name);
    abort(); /* a test that asks for it would test nothing */
}

static int count(int row)
{
    calls[row]++;
    if (failures[row].at != calls[row])
        return TSI_CU_SUCCESS;
    if (failures[row].result == KILL)
        raise(SIGKILL);
    return failures[row].result;
}

int sim_control_count(enum sim_function function)
{
    int any = count(ANY);
    int own = count((int)function);

    if (own != TSI_CU_SUCCESS || any != TSI_CU_SUCCESS)
        failed = names[function];
    return own != TSI_CU_SUCCESS ? own : any;
}

const char *simcuda_failed(void)
{
    const char *name;

    pthread_mutex_lock(&sim.lock);
    name = failed;
    pthread_mutex_unlock(&sim.lock);
    return name;
}

static void set_failure(int row, unsigned long nth, int result)
{
    failures[row].at = nth > 0 ? calls[row] + nth : 0;
    failures[row].result = result;
}

unsigned long simcuda_calls(const char *function)
{
    unsigned long n;

    pthread_mutex_lock(&sim.lock);
    n = calls[row_of(function, strlen(function))];
    pthread_mutex_unlock(&sim.lock);
    return n;
}

void simcuda_fail(const char *function, unsigned long nth, int result)
{
    pthread_mutex_lock(&sim.lock);
    set_failure(row_of(function, strlen(function)), nth, result);
    pthread_mutex_unlock(&sim.lock);
}

/* --- the environment */

static unsigned long number_of(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);

    return text != NULL && *text != '\0' ? strtoul(text, NULL, 0) : otherwise;
}

/* NAME:K:CODE,... */
static void read_failures(const char *text)
{
    while (text != NULL && *text != '\0') {
        size_t len = strcspn(text, ":");
        int row = row_of(text, len);
        char *end = (char *)text + len;
        unsigned long nth = *end == ':' ? strtoul(end + 1, &end, 10) : 0;

        if (strncmp(end, ":kill", 5) == 0)
            set_failure(row, nth, KILL);
        else if (*end == ':')
            set_failure(row, nth, (int)strtol(end + 1, &end, 10));
        text = strchr(end, ',');
        text = text != NULL ? text + 1 : NULL;
    }
}

/* A=V,... */
static void read_attributes(const char *text)
{
    while (text != NULL && *text != '\0') {
        char *end;
        long attribute = strtol(text, &end, 10);

        if (attribute >= 0 && attribute < ATTRIBUTES && *end == '=')
            attributes[attribute] = (int)strtol(end + 1, NULL, 10);
        text = strchr(end, ',');
        text = text != NULL ? text + 1 : NULL;
    }
}

void sim_control_read(void)
{
    const char *peers = getenv("SIMCUDA_PEERS");
    unsigned long devices = number_of("SIMCUDA_DEVICES", (unsigned long)sim.n_devices);

    sim.n_devices = devices < SIM_DEVICES_MAX ? (int)devices : SIM_DEVICES_MAX;
    sim.memory_bytes = number_of("SIMCUDA_MEMORY", sim.memory_bytes);
    sim.delay_us = (unsigned)number_of("SIMCUDA_DELAY_US", sim.delay_us);
    sim.seed = number_of("SIMCUDA_SEED", sim.seed);
    sim.mig = (int)number_of("SIMCUDA_MIG", 0);
    sim.peers = peers == NULL || strcmp(peers, "none") != 0;
    strict = number_of("SIMCUDA_STRICT", 0) != 0;
    read_failures(getenv("SIMCUDA_FAIL"));
    read_attributes(getenv("SIMCUDA_ATTRIBUTES"));
}

void simcuda_delay(unsigned max_us)
{
    pthread_mutex_lock(&sim.lock);
    sim.delay_us = max_us;
    pthread_mutex_unlock(&sim.lock);
}

/* --- violations and what is left */

void sim_violation(enum simcuda_violation which)
{
    violations[which]++;
    if (!strict)
        return;
    fprintf(stderr, "simcuda: %s\n", violation_names[which]);
    abort();
}

unsigned long simcuda_violations(enum simcuda_violation which)
{
    unsigned long n;

    pthread_mutex_lock(&sim.lock);
    n = violations[which];
    pthread_mutex_unlock(&sim.lock);
    return n;
}

unsigned long simcuda_live(void)
{
    unsigned long n = 0;

    pthread_mutex_lock(&sim.lock);
    for (int i = 0; i < SIM_KINDS; i++)
        n += sim.live[i];
    pthread_mutex_unlock(&sim.lock);
    return n;
}

void sim_control_report(void)
{
    const char *path = getenv("SIMCUDA_REPORT");
    FILE *file = path != NULL ? fopen(path, "ae") : NULL;

    if (file == NULL)
        return;
    for (int i = 0; i < SIM_KINDS; i++) {
        if (sim.live[i] > 0)
            fprintf(file, "left: %lu %s\n", sim.live[i], kind_names[i]);
    }
    for (int i = 0; i < SIMCUDA_VIOLATIONS; i++) {
        if (violations[i] > 0)
            fprintf(file, "violation: %lu times %s\n", violations[i], violation_names[i]);
    }
    fclose(file);
}
