/* SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <dirent.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    PATH_LEN = 4096,
    LINE_LEN = 4352,
};

/* The first line of a small file, without its newline. */
static bool read_line(const char *path, char *line, size_t len)
{
    FILE *file = fopen(path, "re");
    bool ok = file != NULL && fgets(line, (int)len, file) != NULL;

    if (file != NULL)
        fclose(file);
    if (ok)
        line[strcspn(line, "\n")] = '\0';
    return ok;
}

/*
 * The folder below /sys/fs/cgroup of `controller` for this process, as /proc/self/cgroup names it: lines of
 * "ID:CONTROLLERS:PATH", version 2 with no controllers.
 */
static bool find_cgroup(const char *controller, char folder[PATH_LEN])
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[LINE_LEN];
    bool found = false;

    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        char *controllers = strchr(line, ':');
        char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;

        if (path == NULL)
            continue;
        *path++ = '\0';
        controllers++;
        path[strcspn(path, "\n")] = '\0';
        if (controllers[0] == '\0' && controller == NULL)
            found = snprintf(folder, PATH_LEN, "/sys/fs/cgroup%s", path) < PATH_LEN;
        else if (controller != NULL && strcmp(controllers, controller) == 0)
            found = snprintf(folder, PATH_LEN, "/sys/fs/cgroup/%s%s", controller, path) < PATH_LEN;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* Reads `folder`/`name`; in a container the path of the host does not exist, the root of the mount is ours then. */
static bool read_cgroup(const char *controller, const char *name, char *line, size_t len)
{
    char folder[PATH_LEN];
    char path[PATH_LEN + 64];

    if (find_cgroup(controller, folder)) {
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        if (read_line(path, line, len))
            return true;
    }
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s%s/%s", controller != NULL ? "/" : "",
             controller != NULL ? controller : "", name);
    return read_line(path, line, len);
}

/* Quota over period in CPUs, rounded up; 0: no quota. */
static uint64_t quota_cpus(void)
{
    char line[LINE_LEN], period_line[LINE_LEN];
    int64_t quota = -1, period = 0;

    if (read_cgroup(NULL, "cpu.max", line, sizeof(line))) { /* "max 100000" or "150000 100000" */
        if (sscanf(line, "%" SCNd64 " %" SCNd64, &quota, &period) != 2)
            return 0;
    } else if (read_cgroup("cpu", "cpu.cfs_quota_us", line, sizeof(line)) &&
               read_cgroup("cpu", "cpu.cfs_period_us", period_line, sizeof(period_line))) {
        quota = strtoll(line, NULL, 10);
        period = strtoll(period_line, NULL, 10);
    }
    return quota > 0 && period > 0 ? (uint64_t)((quota + period - 1) / period) : 0;
}

uint32_t tsp_machine_cpus(void)
{
    cpu_set_t mask;
    uint64_t quota = quota_cpus();
    uint32_t cpus = 1;

    if (sched_getaffinity(0, sizeof(mask), &mask) == 0 && CPU_COUNT(&mask) > 0)
        cpus = (uint32_t)CPU_COUNT(&mask);
    return quota > 0 && quota < cpus ? (uint32_t)quota : cpus;
}

/* A count of bytes in a cgroup's file; UINT64_MAX for "max", version 1's near-infinity, or no such file. */
static uint64_t cgroup_bytes(const char *controller, const char *name)
{
    char line[LINE_LEN];
    uint64_t bytes;

    if (!read_cgroup(controller, name, line, sizeof(line)) || sscanf(line, "%" SCNu64, &bytes) != 1)
        return UINT64_MAX;
    return bytes;
}

static uint64_t left_in_cgroup(void)
{
    uint64_t limit = cgroup_bytes(NULL, "memory.max");
    uint64_t used = cgroup_bytes(NULL, "memory.current");

    if (limit == UINT64_MAX) {
        limit = cgroup_bytes("memory", "memory.limit_in_bytes");
        used = cgroup_bytes("memory", "memory.usage_in_bytes");
    }
    if (limit == UINT64_MAX || used == UINT64_MAX)
        return UINT64_MAX;
    return limit > used ? limit - used : 0;
}

static uint64_t memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char line[256];
    uint64_t kib = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            break;
    }
    if (file != NULL)
        fclose(file);
    return kib > 0 ? kib * 1024 : UINT64_MAX;
}

uint64_t tsp_machine_memory_bytes(void)
{
    uint64_t cgroup = left_in_cgroup();
    uint64_t machine = memory_available();

    return cgroup < machine ? cgroup : machine;
}

uint64_t tsp_machine_descriptors(void)
{
    struct rlimit limit;
    uint64_t open_now = 0;
    DIR *dir = opendir("/proc/self/fd");

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        limit.rlim_cur = 1024;
    while (dir != NULL && readdir(dir) != NULL)
        open_now++; /* counts ".", ".." and itself as well: on the safe side */
    if (dir != NULL)
        closedir(dir);
    return limit.rlim_cur > open_now ? limit.rlim_cur - open_now : 0;
}
