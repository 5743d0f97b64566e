/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tsocket/tsocket.h>

#include "../ipc/arena.h"
#include "../ipc/cuda_arena.h"
#include "../ipc/runtime.h"
#include "../ipc/text.h"

enum {
    TEXT_MAX = 1024,
    TRIAL_BYTES = 1 << 20,
    FILES_LEAST = 256, /* a daemon needs three for each consumer */
    SEEN_MAX = 16,
};

#define TRIAL_NAME "doctor" /* of a daemon that is there for a moment */

enum verdict {
    GOOD,
    MISSING, /* something works less well, or not at all without it */
    BROKEN,  /* nothing works without it */
};

struct doctor {
    FILE *out;
    bool broken;
    char advice[TEXT_MAX]; /* the first; empty: there is none */
};

/* One line; `advice` (may be NULL) is what to change. */
static void say(struct doctor *doctor, enum verdict verdict, const char *what, const char *advice, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

static void say(struct doctor *doctor, enum verdict verdict, const char *what, const char *advice, const char *format,
                ...)
{
    static const char *const marks[] = {[GOOD] = "ok", [MISSING] = "no", [BROKEN] = "!!"};
    char text[TEXT_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    tsi_text_clean(text);
    fprintf(doctor->out, "%s  %-16s %s\n", marks[verdict], what, text);
    if (advice != NULL && (doctor->advice[0] == '\0' || (verdict == BROKEN && !doctor->broken)))
        snprintf(doctor->advice, sizeof(doctor->advice), "%s", advice);
    doctor->broken = doctor->broken || verdict == BROKEN;
}

/* --- the machine */

static void look_at_folder(struct doctor *doctor)
{
    struct tsi_runtime runtime = {.lock_fd = -1};

    if (tsi_runtime_take(TRIAL_NAME, false, &runtime) == TSOCKET_OK) {
        say(doctor, GOOD, "runtime folder", NULL, "%s", runtime.folder);
        tsi_runtime_give_back(&runtime);
    } else {
        say(doctor, BROKEN, "runtime folder", "set TSOCKET_DIR to a folder of yours that is not shared with others",
            "%s", tsocket_last_error());
    }
}

static void look_at_memory(struct doctor *doctor)
{
    double free_gib = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1 << 30);
    struct tsi_arena arena = {.fd = -1};
    int rc = tsi_arena_create("tsocketctl-doctor", TRIAL_BYTES, &arena);

    if (rc == TSOCKET_OK)
        say(doctor, GOOD, "shared memory", NULL, "sealed memfd; %.1f GiB of memory are free", free_gib);
    else
        say(doctor, BROKEN, "shared memory", "Linux 5.1 or newer is needed", "%s", tsocket_last_error());
    tsi_arena_close(&arena);
}

/* The first word of a small file; "" where there is none. */
static void read_word(const char *path, char word_out[64])
{
    FILE *file = fopen(path, "re");

    word_out[0] = '\0';
    if (file != NULL && fscanf(file, "%63s", word_out) != 1)
        word_out[0] = '\0';
    if (file != NULL)
        fclose(file);
}

static void look_at_cgroup(struct doctor *doctor)
{
    char memory[64], cpu[64];
    cpu_set_t set;
    int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    read_word("/sys/fs/cgroup/memory.max", memory);
    read_word("/sys/fs/cgroup/cpu.max", cpu);
    say(doctor, GOOD, "CPUs", NULL, "%d by affinity; cgroup: cpu.max %s, memory.max %s", cpus,
        cpu[0] != '\0' ? cpu : "not set", memory[0] != '\0' ? memory : "not set");
}

static void look_at_files(struct doctor *doctor)
{
    struct rlimit files = {0};
    bool enough;

    getrlimit(RLIMIT_NOFILE, &files);
    enough = files.rlim_cur >= FILES_LEAST;
    say(doctor, enough ? GOOD : MISSING, "open files", enough ? NULL : "raise ulimit -n: each consumer takes three",
        "%" PRIu64 ", so about %" PRIu64 " consumers", (uint64_t)files.rlim_cur, (uint64_t)files.rlim_cur / 3);
}

/* Pinned memory is the driver's to account, mostly; where it is not, this is the limit. */
static void look_at_memlock(struct doctor *doctor)
{
    struct rlimit locked = {0};

    getrlimit(RLIMIT_MEMLOCK, &locked);
    if (locked.rlim_cur == RLIM_INFINITY)
        say(doctor, GOOD, "locked memory", NULL, "no limit");
    else
        say(doctor, GOOD, "locked memory", NULL, "%" PRIu64 " KiB", (uint64_t)locked.rlim_cur / 1024);
}

static void look_at_container(struct doctor *doctor)
{
    bool inside = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0;
    struct stat own = {0};

    stat("/proc/self/ns/pid", &own);
    say(doctor, GOOD, "container", NULL, "%s; PID namespace %" PRIu64 " (CUDA IPC works within one only)",
        inside ? "this is one" : "none seen", (uint64_t)own.st_ino);
}

/* --- GPUs */

static void try_share(struct doctor *doctor, const struct tsi_device *device, enum tsi_share share, const char *what,
                      const char *advice)
{
    struct tsi_arena_ticket ticket;
    struct tsi_arena arena = {.fd = -1};
    int rc = tsi_cuda_arena_create(device, share, TRIAL_BYTES, &arena);

    if (rc == TSOCKET_OK)
        rc = tsi_cuda_arena_ticket(&arena, &ticket);
    if (rc == TSOCKET_OK)
        say(doctor, GOOD, what, NULL, "%s",
            share == TSI_SHARE_VMM ? "memory can be shared by descriptors, read-only"
                                   : "memory can be shared by CUDA IPC handles");
    else
        say(doctor, MISSING, what, advice, "%s", tsocket_last_error());
    if (arena.base != NULL)
        tsi_arena_close(&arena);
}

static const char *mode_text(const struct tsi_device *device)
{
    const char *mode = tsi_device_mode(device);

    if (strcmp(mode, "mps") == 0)
        return ", under MPS (a fault of one client ends them all: start tsocketd outside)";
    if (strcmp(mode, "plain") == 0)
        return "";
    return strcmp(mode, "mig") == 0
               ? ", a MIG instance (others cannot read its memory: add host to --device)"
               : ", a MIG instance under MPS (other instances cannot read its memory: add host to --device)";
}

static void look_at_device(struct doctor *doctor, const struct tsi_device *device, int ordinal)
{
    size_t free_bytes = 0, total_bytes = 0;
    char what[32];

    if (tsi_device_enter(device) == TSOCKET_OK) {
        device->cuda.cuMemGetInfo(&free_bytes, &total_bytes);
        tsi_device_leave(device);
    }
    snprintf(what, sizeof(what), "cuda:%d", ordinal);
    say(doctor, GOOD, what, NULL, "%s, %s, compute %d.%d, %.1f of %.1f GiB free%s", device->name, device->uuid_text,
        tsi_device_attribute(device, TSI_CU_ATTRIBUTE_CAPABILITY_MAJOR),
        tsi_device_attribute(device, TSI_CU_ATTRIBUTE_CAPABILITY_MINOR), (double)free_bytes / (1 << 30),
        (double)total_bytes / (1 << 30), mode_text(device));
    snprintf(what, sizeof(what), "cuda:%d vmm", ordinal);
    try_share(doctor, device, TSI_SHARE_VMM, what, NULL);
    snprintf(what, sizeof(what), "cuda:%d ipc", ordinal);
    try_share(doctor, device, TSI_SHARE_IPC, what, "use --share host: this GPU's memory cannot be shared");
}

static void look_at_driver(struct doctor *doctor)
{
    struct tsi_cuda cuda;
    int version = 0;

    if (tsi_cuda_load(&cuda) != TSOCKET_OK) {
        say(doctor, MISSING, "CUDA driver", "for GPUs: install the NVIDIA driver, or give the container its devices",
            "%s", tsocket_last_error());
        return;
    }
    cuda.cuDriverGetVersion(&version);
    say(doctor, GOOD, "CUDA driver", NULL, "for CUDA %d.%d", version / 1000, version % 1000 / 10);
}

/* Whoever starts CUDA while the control daemon's pipes are there becomes its client. */
static void look_at_mps(struct doctor *doctor)
{
    const char *folder = getenv("CUDA_MPS_PIPE_DIRECTORY");
    char control[TEXT_MAX];

    if (folder == NULL || folder[0] == '\0')
        folder = "/tmp/nvidia-mps";
    snprintf(control, sizeof(control), "%s/control", folder);
    if (access(control, F_OK) == 0)
        say(doctor, GOOD, "MPS", NULL, "a control daemon has its pipes in %s: what starts here is its client", folder);
    else
        say(doctor, GOOD, "MPS", NULL, "no control daemon has pipes in %s", folder);
}

static void look_at_gpus(struct doctor *doctor)
{
    struct tsi_cu_uuid seen[SEEN_MAX];
    unsigned n = 0;

    look_at_driver(doctor);
    if (tsi_devices_see("cuda", SEEN_MAX, seen, &n) != TSOCKET_OK)
        return;
    look_at_mps(doctor);
    for (unsigned i = 0; i < n; i++) {
        struct tsi_device device;

        if (tsi_device_open_uuid(&seen[i], &device) == TSOCKET_OK) {
            look_at_device(doctor, &device, (int)i);
            tsi_device_close(&device);
        } else {
            say(doctor, MISSING, "cuda", "look at nvidia-smi: the device does not work", "%s", tsocket_last_error());
        }
    }
}

bool tsc_doctor(FILE *out)
{
    struct doctor doctor = {.out = out};

    look_at_folder(&doctor);
    look_at_memory(&doctor);
    look_at_cgroup(&doctor);
    look_at_files(&doctor);
    look_at_memlock(&doctor);
    look_at_container(&doctor);
    look_at_gpus(&doctor);
    if (doctor.advice[0] != '\0')
        fprintf(out, "\nFirst: %s.\n", doctor.advice);
    else
        fprintf(out, "\nEverything works here.\n");
    return !doctor.broken;
}
